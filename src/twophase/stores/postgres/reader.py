"""The readings: one statement each, so that each sees one moment of the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from twophase.core.lifecycle import State
from twophase.stores.base import DUE_BYTES_MAX, Overview
from twophase.stores.postgres import statements
from twophase.stores.postgres.connection import Connection
from twophase.stores.rows import (
    NODES_SHOWN_MAX,
    OWNERS_COUNTED_MAX,
    Attempt,
    AttemptKind,
    HistoryRow,
    LiveRow,
    NodeSeen,
    Topics,
)
from twophase.stores.topic_rows import topics_of


class NodeEpoch(msgspec.Struct, frozen=True):
    """The node and epoch whose rows this node owns."""

    node: int
    epoch: int


async def get(connection: Connection, gids: Sequence[str], own: NodeEpoch) -> dict[str, LiveRow | HistoryRow]:
    """Return the rows of gids, live or history; what is not there is left out."""
    possible = [gid for gid in gids if is_text(gid)]
    if not possible:
        return {}
    return {row["gid"]: _any(row, own) for row in await connection.fetch(statements.GET, possible)}


async def due(
    connection: Connection, until_ms: int, after: tuple[int, str], limit: int, own: NodeEpoch
) -> list[LiveRow]:
    """Return a page of what is due, in the order of (due_ms, gid)."""
    rows = await connection.fetch(statements.DUE, until_ms, *after, limit, own.node, own.epoch, DUE_BYTES_MAX)
    return [live_row(row, own) for row in rows]


async def attempts(connection: Connection, gid: str, limit: int) -> list[Attempt]:
    """Return the newest attempts of a gid, oldest first."""
    rows = await connection.fetch(statements.ATTEMPTS, gid, limit) if is_text(gid) else []
    return [Attempt(row[0], AttemptKind(row[1]), *row[2:]) for row in reversed(rows)]


async def overview(connection: Connection, due_by_ms: int) -> Overview:
    """Count the live rows."""
    return Overview(*await connection.fetchrow(statements.OVERVIEW, due_by_ms))


async def horizon_ms(connection: Connection) -> int:
    """Gids born before this may have been forgotten."""
    value, _, _ = await connection.fetchrow(statements.BOUNDS)
    assert isinstance(value, int)
    return value


async def moved(connection: Connection, known: Sequence[tuple[str, int]], own: NodeEpoch) -> set[str]:
    """Those that no longer stand so as rows of this epoch."""
    possible = [(gid, version) for gid, version in known if is_text(gid)]
    gone = {gid for gid, _ in known if not is_text(gid)}
    if possible:
        gids, versions = [gid for gid, _ in possible], [version for _, version in possible]
        rows = await connection.fetch(statements.MOVED, gids, versions, own.node, own.epoch)
        gone |= {gid for (gid,) in rows}
    return gone


async def nodes(connection: Connection) -> list[NodeSeen]:
    """Return the node slots there ever were."""
    return [NodeSeen(*row) for row in await connection.fetch(statements.NODES_SEEN, NODES_SHOWN_MAX)]


async def waiting_by_owner(connection: Connection) -> dict[str, tuple[int, int]]:
    """Count the live rows of each owner, and the bytes of their bodies."""
    rows = await connection.fetch(statements.WAITING_BY_OWNER, OWNERS_COUNTED_MAX)
    return {owner: (messages, held) for owner, messages, held in rows}


async def size_bytes(connection: Connection) -> int:
    """Return the bytes of the tables on disk."""
    return int(await connection.fetchval(statements.SIZE))


async def oldest_undecided(
    connection: Connection, before_ms: int, after: tuple[int, str], limit: int, own: NodeEpoch
) -> list[LiveRow]:
    """Read a page of all nodes' prepared rows, in the order of (created_ms, gid)."""
    rows = await connection.fetch(statements.OLDEST_UNDECIDED, before_ms, *after, limit)
    return [live_row(row, own) for row in rows]


async def topics(connection: Connection, known: int) -> Topics | None:
    """Return all topics; None when the store still has the revision `known`."""
    return topics_of(await connection.fetch(statements.TOPICS, known))


async def now_ms(connection: Connection) -> int:
    """Return the database's clock."""
    value = await connection.fetchval(statements.NOW)
    assert isinstance(value, int)
    return value


def _any(row: Any, own: NodeEpoch) -> LiveRow | HistoryRow:
    return history_row(row) if row["final"] else live_row(row, own)


def history_row(row: Any) -> HistoryRow:
    """Return a final message from its columns."""
    return HistoryRow(
        node=row["node"],
        seq=row["seq"],
        gid=row["gid"],
        state=State(row["state"]),
        created_ms=row["created_ms"],
        decided_ms=row["decided_ms"],
        finished_ms=row["finished_ms"],
        decided_by=row["decided_by"],
        reason=row["reason"],
        attempts=row["attempts"],
        done=row["done"],
        body=row["body"],
        owner=row["owner"] or "",
    )


def live_row(row: Any, own: NodeEpoch) -> LiveRow:
    """Return a live row from its columns."""
    return LiveRow(
        gid=row["gid"],
        state=State(row["state"]),
        version=row["version"],
        due_ms=row["due_ms"],
        created_ms=row["created_ms"],
        decided_ms=row["decided_ms"],
        decided_by=row["decided_by"],
        attempts=row["attempts"],
        parked=row["parked"],
        done=row["done"],
        body=row["body"],
        owner=row["owner"] or "",
        owned=row["node"] == own.node and row["epoch"] == own.epoch,
    )


def is_text(gid: str) -> bool:
    """Return True when PostgreSQL can store this text.

    It stores neither lone surrogates nor NUL: no message has such a gid.
    """
    try:
        return b"\0" not in gid.encode()
    except UnicodeEncodeError:
        return False
