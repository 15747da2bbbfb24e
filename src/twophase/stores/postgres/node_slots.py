"""The slot of a node: taking it and giving it back.

A slot is a row of `node`, held by a lease in the database's clock. A process that takes a vacant one raises its fence,
so that nothing that the holder before has begun can be written any more (correctness rule 19). It continues the slot's
history numbers and its rows, as far as no other node has adopted them: those carry the same (node, epoch).

No node is seen later than now: when the database's clock has fallen back, the next heartbeat of any node counts the
others as seen at that moment, and those that live report again. A dead node's lease would else last until the clock has
caught up, and its rows wait as long (I9).

No process takes an expired slot: after an outage of the database every lease has run out, and every holder is about to
report. Adoption makes it vacant, after a whole lease of contact; so vacant slots come back, and their number stays
bounded.

One node judges another by a lease of its own, so all must have the same. A holder writes its lease behind its
secret, and a process that takes a slot checks afterwards whether another slot is held by a different lease. Of two that
start at once, the later to look sees the other.
"""

from __future__ import annotations

import msgspec

from twophase.core.errors import ConfigurationError, StoreError
from twophase.core.hooks import Clock
from twophase.stores.postgres import statements
from twophase.stores.postgres.connection import Connection
from twophase.stores.rows import Secrets

_TRIES_MAX = 100
_FREE = -1


class NodeSlot(msgspec.Struct):
    """The slot that this process holds.

    `flushes` counts the flushes that are known to be committed.
    """

    node: int
    epoch: int
    fence: int
    flushes: int
    owner: str


class Settled(msgspec.Struct, frozen=True):
    """The node's row after its fence was raised.

    It has the number of flushes, and the outcome of the last one.
    """

    fence: int
    flushes: int
    seen_ms: int
    refused: list[int]


async def take(connection: Connection, clock: Clock | None, lease_ms: int, secrets: Secrets) -> NodeSlot:
    """Take a slot: a vacant one, or else a new one.

    The slots of former processes are given back first: no lease has to run out. The topics of queues that the process
    before served in the slot are free.

    Raises:
        ConfigurationError: another slot is held by another lease; this one was given back.
    """
    if secrets.former:
        await leave(connection, *(_owner(secret, lease_ms) for secret in secrets.former))
    owner = _owner(secrets.own, lease_ms)
    await _require_one_lease(connection, _FREE, lease_ms, clock.now_ms() if clock else None)
    for _ in range(_TRIES_MAX):
        clock_ms = clock.now_ms() if clock else None
        row = await connection.fetchrow(statements.TAKE_SLOT, owner, clock_ms)
        if row is None:
            row = await connection.fetchrow(statements.ADD_SLOT, owner, clock_ms)
        if row is not None:
            slot = NodeSlot(row["id"], row["epoch"], row["fence"], row["flushes"], owner)
            try:
                await _require_one_lease(connection, slot.node, lease_ms, clock_ms)
            except ConfigurationError:
                await leave(connection, owner)
                raise
            await connection.execute(statements.FREE_TOPICS, slot.node, slot.epoch)
            return slot
    raise StoreError(f"Others took {_TRIES_MAX} node slots before this process; are thousands of nodes starting?")


async def _require_one_lease(connection: Connection, own: int, lease_ms: int, clock_ms: int | None) -> None:
    """Refuse a slot when another one is held by another lease.

    It runs before a slot is taken, so that a refused process marks none; and after it, for two that start at once.
    """
    if other := await connection.fetchrow(statements.OTHER_LEASE, own, lease_ms, clock_ms):
        raise _two_leases(other["id"], other["lease_ms"], lease_ms)


async def leave(connection: Connection, *owners: str) -> None:
    """Give the slots of these owners back, with their rows."""
    await connection.execute(statements.LEAVE_SLOT, owners)


def _owner(secret: str, lease_ms: int) -> str:
    return f"{secret}/{lease_ms}"


def _two_leases(other: int, others_ms: int, own_ms: int) -> ConfigurationError:
    return ConfigurationError(
        f"The node in slot {other} has a lease of {others_ms} ms, and lease_ms is {own_ms} here:"
        " the node that waits less would end the other's epoch again and again.",
        remedy=(
            "Give all nodes of the database the same lease_ms. To change it, stop them all first; one that was killed"
            " counts until its lease has run out."
        ),
    )
