"""The cleaning of the oldest history rows and attempts.

They are found by reading alone, then removed by key.

Keeps I10 with correctness rules 15 and 17. The search and the removal are statements of their own on a reading
connection, so that no flush waits for them; the horizon is raised in the commit that removes. History needs no index
for it: a node numbers its rows in the order they end, so the oldest stand first. What goes, what stays and how far the
horizon rises is decided in `stores.forgetting`.

A row is looked at once a pass: what stays (the newest attempts of a message that is still live, what a clock that was
ahead has dated) is stepped over, and met again by the next pass. They are few: only a message that has waited since
before the bound, parked, delayed or tried seldom, keeps attempts that old.
"""

from __future__ import annotations

import msgspec

from twophase.stores.base import ATTEMPTS_SHOWN, Purged
from twophase.stores.forgetting import Bound, Fate, horizon_behind
from twophase.stores.postgres import auditing, statements
from twophase.stores.postgres.connection import Connection

_LOOKED_AT_MAX = 4
"""Rows that a step reads, for each row that it may remove.

So a step is bounded, however many rows it must pass over.
"""
_BEGINNING = (-1, -1)


class Removable(msgspec.Struct):
    """The rows that one step may remove."""

    nodes: list[int]
    seqs: list[int]
    rows: list[tuple[str, int]]
    """(gid, finished_ms) of each seq."""
    attempts: list[tuple[int, int]]
    """(at_ms, id)."""
    more: bool = False
    before_ms: int = 0
    """The age of the rows of the audit log that go."""
    audit_through: int | None = None
    """The last row of the audit log that the archive has; None without an archive."""


class Sweep:
    """Where the pass over history and attempts stands. One step at a time."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        """The last seq this pass has looked at, by node."""
        self._gone: dict[int, int] = {}
        """The seq of each node up to which all rows are known to be removed.

        PostgreSQL's remains of them are not read again.
        """
        self._attempt = _BEGINNING
        self._stayed = 0
        """The number of attempts that the last step passed over.

        The next step reads as many more; each costs a look at newer ones.
        """

    async def step(self, connection: Connection, before_ms: int, now_ms: int, limit: int) -> Purged:
        """Find and remove at most `limit` rows of each kind.

        They are older than `before_ms`, and no archive needs them.
        """
        found = await self._find(connection, before_ms, now_ms, limit)
        await auditing.forget(connection, found.before_ms, found.audit_through, limit)
        horizon_ms = await connection.fetchval(
            statements.FORGET,
            *(horizon_behind(found.rows), found.nodes, found.seqs),
            *([at_ms for at_ms, _ in found.attempts], [number for _, number in found.attempts]),
        )
        oldest_ms = await self._oldest_ms(connection)
        return Purged(len(found.seqs), len(found.attempts), found.more, horizon_ms, oldest_ms)

    async def _find(self, connection: Connection, before_ms: int, now_ms: int, limit: int) -> Removable:
        _, archived_until_ms, audit_through = await connection.fetchrow(statements.BOUNDS)
        if archived_until_ms is not None:
            before_ms = min(before_ms, archived_until_ms)
        bound = Bound(max(0, before_ms), now_ms)
        through = None if archived_until_ms is None else audit_through or 0
        found = Removable([], [], [], [], before_ms=bound.before_ms, audit_through=through)
        for (node,) in await connection.fetch(statements.NODES):
            await self._find_history(connection, node, bound, limit, found)
        if not found.more:
            self._seen.clear()
        found.more |= await self._find_attempts(connection, bound.before_ms, limit, found)
        return found

    async def _find_history(
        self, connection: Connection, node: int, bound: Bound, limit: int, found: Removable
    ) -> None:
        seen = self._seen.get(node, self._gone.get(node, 0))
        page = limit * _LOOKED_AT_MAX
        rows = await connection.fetch(statements.OLDEST_HISTORY, node, seen, page)
        for seq, gid, finished_ms, queued in rows:
            fate = bound.fate(gid, finished_ms)
            if fate is Fate.ENDS_PASS:
                return
            if len(found.seqs) == limit:
                found.more = True
                return
            self._seen[node] = seq
            if fate is Fate.GOES and not queued:
                found.nodes.append(node)
                found.seqs.append(seq)
                found.rows.append((gid, finished_ms))
        found.more |= len(rows) == page

    async def _find_attempts(self, connection: Connection, before_ms: int, limit: int, found: Removable) -> bool:
        page = limit + min(self._stayed, limit * (_LOOKED_AT_MAX - 1))
        self._stayed = 0
        position = (before_ms, *self._attempt)
        rows = await connection.fetch(statements.OLDEST_ATTEMPTS, *position, ATTEMPTS_SHOWN - 1, page)
        for at_ms, number, stays in rows:
            if len(found.attempts) == limit:
                return True
            self._attempt = (at_ms, number)
            self._stayed += stays
            if not stays:
                found.attempts.append((at_ms, number))
        if len(rows) == page:
            return True
        self._attempt = _BEGINNING
        return False

    async def _oldest_ms(self, connection: Connection) -> int | None:
        """When the oldest history row that is left was finished."""
        oldest: list[int] = []
        for (node,) in await connection.fetch(statements.NODES):
            rows = await connection.fetch(statements.OLDEST_HISTORY, node, self._gone.get(node, 0), 1)
            for seq, _, finished_ms, _ in rows:
                self._gone[node] = seq - 1
                oldest.append(finished_ms)
        return min(oldest, default=None)
