"""A PostgreSQL database that several nodes share, on the tests' clock.

A test may hold, cut off or watch each call of a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg

from tests.servers.database import Database
from twophase.core.errors import StoreUnavailable
from twophase.stores.batch import Batch, FlushResult
from twophase.stores.postgres.store import PostgresStore
from twophase.stores.rows import HistoryRow, LiveRow
from twophase.testing.clock import VirtualClock

LEASE_MS = 400


class Gates:
    """The holds and faults that a test may set on one node's store."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.answers = asyncio.Event()
        self.answers.set()
        self.cut = False
        self.batches: list[Batch] = []
        self.asked: list[int] = []
        self.pages: list[set[str]] = []
        """Gids of each page of due rows that was read."""
        self.cut_off: list[str] = []
        """The requests that came while the store was cut off."""
        self.rejoins_refused = 0
        self.beats = 0
        """Heartbeats begun, also those that the store did not answer."""
        self.held_flushes = 0
        self.held_answers = 0

    def pass_through(self, asked: str = "") -> None:
        if self.cut:
            self.cut_off.append(asked)
            raise StoreUnavailable

    async def let_in(self) -> None:
        """Hold a flush until flushes may begin."""
        self.held_flushes += 1
        await self.open.wait()
        self.held_flushes -= 1

    async def let_out(self) -> None:
        """Hold the answer of a store that has done its work, until answers may pass."""
        self.held_answers += 1
        await self.answers.wait()
        self.held_answers -= 1

    def read(self, rows: Sequence[LiveRow]) -> Sequence[LiveRow]:
        self.pages.append({row.gid for row in rows})
        return rows


class GatedStore(PostgresStore):
    """One node's store, behind gates."""

    def __init__(self, url: str, clock: VirtualClock) -> None:
        super().__init__(url, clock=clock, lease_ms=LEASE_MS)
        self.gates = Gates()

    async def rejoin(self) -> None:
        self.gates.pass_through()
        if self.gates.rejoins_refused:
            self.gates.rejoins_refused -= 1
            raise StoreUnavailable
        await super().rejoin()

    async def flush(self, batch: Batch) -> FlushResult:
        await self.gates.let_in()
        self.gates.pass_through()
        result = await super().flush(batch)
        self.gates.batches.append(batch)
        await self.gates.let_out()
        return result

    async def heartbeat(self) -> int:
        self.gates.beats += 1
        self.gates.pass_through()
        return await super().heartbeat()

    async def adopt(self, limit: int, *, end_epochs: bool = True) -> int:
        self.gates.pass_through()
        return await super().adopt(limit, end_epochs=end_epochs)

    async def moved(self, known: Sequence[tuple[str, int]]) -> set[str]:
        self.gates.pass_through("moved")
        self.gates.asked.append(len(known))
        moved = await super().moved(known)
        await self.gates.let_out()
        return moved

    async def get(self, gid: str) -> LiveRow | HistoryRow | None:
        self.gates.pass_through()
        return await super().get(gid)

    async def due(self, until_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        self.gates.pass_through()
        return self.gates.read(await super().due(until_ms, after, limit))


class Shared:
    """The actions of a test on all nodes' stores."""

    def __init__(self, database: Database, clock: VirtualClock) -> None:
        self._database = database
        self._clock = clock
        self._outsider = PostgresStore(database.dsn, clock=clock, lease_ms=LEASE_MS)

    async def start(self) -> None:
        await self._outsider.start()

    async def stop(self) -> None:
        await self._outsider.stop()

    def store(self) -> GatedStore:
        """Return a node's store, not started."""
        return GatedStore(self._database.dsn, self._clock)

    async def get(self, gid: str) -> LiveRow | HistoryRow | None:
        """Return the row as a reader outside the nodes sees it."""
        return await self._outsider.get(gid)

    def end(self, store: GatedStore) -> None:
        """End this node's epoch from outside."""
        self._execute("update node set epoch = epoch + 1, fence = fence + 1, owner = '' where id = %s", store.slot[0])

    def renew(self) -> None:
        """Renew every node's lease after a jump of the clock."""
        self._execute("update node set seen_ms = %s where owner <> ''", self._clock.now_ms())

    def age(self, ms: int) -> None:
        """Set back the times of history and of all entries of queues.

        Each entry is of a millisecond of its own.
        """
        self._execute("update queue_entry set stored_ms = stored_ms + number - %s", ms)
        self._execute("update history set finished_ms = finished_ms - %s", ms)

    def _execute(self, statement: str, value: int) -> None:
        with psycopg.connect(self._database.dsn, autocommit=True) as connection:
            connection.execute(statement.encode(), (value,))
