"""Stores that several nodes share; a test may hold, cut off or watch each call.

There are two engines: PostgreSQL itself, and one SQLite file with leases, fences and owners kept beside it, which
promises the same (`stores/base.py`) in the fewest lines. Both are on the tests' clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import psycopg

from tests.servers.database import Database
from twophase.core.errors import StoreFenced, StoreUnavailable
from twophase.stores.base import (
    DUE_EVER_MS,
    Attempt,
    Batch,
    FlushResult,
    HistoryRow,
    LiveRow,
    Overview,
    Purged,
    Store,
    Subscriber,
    Topics,
)
from twophase.stores.nodes import NodeSeen
from twophase.stores.postgres.store import PostgresStore
from twophase.stores.search import Found, Search
from twophase.stores.sqlite.store import SqliteStore
from twophase.testing.clock import VirtualClock

LEASE_MS = 400
Tenure = tuple[int, int]


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


class GatedStore(Store, Protocol):
    """One node's store, with its gates."""

    gates: Gates


class Shared(Protocol):
    """The actions of a test on all nodes' stores."""

    def store(self, number: int) -> GatedStore:
        """Return a node's store, not started."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def get(self, gid: str) -> LiveRow | HistoryRow | None:
        """Return the row as a reader outside the nodes sees it."""
        ...

    def end(self, store: GatedStore) -> None:
        """End this node's epoch from outside."""
        ...

    def renew(self) -> None:
        """Renew every node's lease after a jump of the clock."""
        ...


class SharedFile:
    """A SQLite file with the epochs of its nodes and the owner of each row."""

    def __init__(self, path: Path, clock: VirtualClock) -> None:
        self.clock = clock
        self.file = SqliteStore(path, clock=clock)
        self.epochs: dict[int, int] = {}
        self.seen_ms: dict[int, int] = {}
        self.owners: dict[str, Tenure] = {}

    async def start(self) -> None:
        await self.file.start()

    async def stop(self) -> None:
        await self.file.stop()

    def store(self, number: int) -> GatedStore:
        return SharedFileStore(self, number)

    async def get(self, gid: str) -> LiveRow | HistoryRow | None:
        return await self.file.get(gid)

    def take_place(self, node: int) -> Tenure:
        self.epochs[node] = self.epochs.get(node, 0) + 1
        self.seen_ms[node] = self.clock.now_ms()
        return node, self.epochs[node]

    def holds(self, tenure: Tenure) -> bool:
        return self.epochs[tenure[0]] == tenure[1]

    def end(self, store: GatedStore) -> None:
        self.end_node(store.place[0])

    def end_node(self, node: int) -> None:
        self.epochs[node] += 1
        self.seen_ms.pop(node, None)

    def renew(self) -> None:
        self.seen_ms = dict.fromkeys(self.seen_ms, self.clock.now_ms())


class SharedFileStore:
    """One node's view of the file."""

    def __init__(self, shared_file: SharedFile, node: int) -> None:
        self._all = shared_file
        self._node = node
        self._tenure: Tenure = (0, 0)
        self.gates = Gates()

    @property
    def shared(self) -> bool:
        return True

    @property
    def lease_ms(self) -> int:
        return LEASE_MS

    @property
    def place(self) -> Tenure:
        return self._tenure

    async def start(self) -> None:
        self._tenure = self._all.take_place(self._node)

    async def stop(self) -> None:
        if self._tenure != (0, 0) and self._all.holds(self._tenure):
            self._all.end_node(self._node)

    async def rejoin(self) -> None:
        self.gates.pass_through()
        if self.gates.rejoins_refused:
            self.gates.rejoins_refused -= 1
            raise StoreUnavailable
        self._tenure = self._all.take_place(self._node)

    async def flush(self, batch: Batch) -> FlushResult:
        await self.gates.let_in()
        self._pass_fence()
        result = await self._all.file.flush(batch)
        self.gates.batches.append(batch)
        for index, item in enumerate(batch.items):
            if index not in result.refused:
                self._all.owners[item.gid] = self._tenure
        refused = {index: self._seen(row) if isinstance(row, LiveRow) else row for index, row in result.refused.items()}
        await self.gates.let_out()
        return FlushResult(result.at_ms, refused)

    async def heartbeat(self) -> int:
        self.gates.beats += 1
        self._pass_fence()
        now_ms = self._all.clock.now_ms()
        self._all.seen_ms = {node: min(seen_ms, now_ms) for node, seen_ms in self._all.seen_ms.items()}
        return now_ms

    async def adopt(self, limit: int, *, end_tenures: bool = True) -> int:
        self._pass_fence()
        now_ms = self._all.clock.now_ms()
        if end_tenures:
            for node, seen_ms in list(self._all.seen_ms.items()):
                if seen_ms < now_ms - LEASE_MS:
                    self._all.end_node(node)
        free = [gid for gid, tenure in self._all.owners.items() if not self._all.holds(tenure)][:limit]
        self._all.owners.update(dict.fromkeys(free, self._tenure))
        return len(free)

    async def moved(self, known: Sequence[tuple[str, int]]) -> set[str]:
        self.gates.pass_through("moved")
        self.gates.asked.append(len(known))
        foreign = {gid for gid, _ in known if self._all.owners.get(gid) != self._tenure}
        moved = foreign | await self._all.file.moved(known)
        await self.gates.let_out()
        return moved

    async def get(self, gid: str) -> LiveRow | HistoryRow | None:
        self.gates.pass_through()
        row = await self._all.file.get(gid)
        return self._seen(row) if isinstance(row, LiveRow) else row

    async def due(self, until_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        self.gates.pass_through()
        rows = await self._all.file.due(until_ms, after, 100_000)
        return self.gates.read([row for row in rows if self._seen(row).owned][:limit])

    def _seen(self, row: LiveRow) -> LiveRow:
        return msgspec.structs.replace(row, owned=self._all.owners.get(row.gid) == self._tenure)

    def _pass_fence(self) -> None:
        self.gates.pass_through()
        if not self._all.holds(self._tenure):
            raise StoreFenced
        self._all.seen_ms[self._node] = self._all.clock.now_ms()

    async def topics(self, known: int = -1) -> Topics | None:
        self.gates.pass_through()
        return await self._all.file.topics(known)

    async def change_topic(self, revision: int, name: str, subscribers: Sequence[Subscriber] | None) -> bool:
        self.gates.pass_through()
        return await self._all.file.change_topic(revision, name, subscribers)

    async def attempts(self, gid: str, limit: int = 100) -> Sequence[Attempt]:
        return await self._all.file.attempts(gid, limit)

    async def overview(self, due_by_ms: int = DUE_EVER_MS) -> Overview:
        return await self._all.file.overview(due_by_ms)

    async def nodes(self) -> Sequence[NodeSeen]:
        seen_ms = self._all.seen_ms
        return [NodeSeen(node, self._all.epochs[node], held=True, seen_ms=seen_ms[node]) for node in sorted(seen_ms)]

    async def now_ms(self) -> int:
        return self._all.clock.now_ms()

    async def history_horizon_ms(self) -> int:
        return await self._all.file.history_horizon_ms()

    async def purge(self, before_ms: int, limit: int) -> Purged:
        return await self._all.file.purge(before_ms, limit)

    async def oldest_undecided(self, before_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        return await self._all.file.oldest_undecided(before_ms, after, limit)

    async def search(self, wanted: Search, position: str, limit: int) -> Found:
        return await self._all.file.search(wanted, position, limit)

    async def later(self, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        return [self._seen(row) for row in await self._all.file.later(after, limit)]


class SharedDatabase:
    """A PostgreSQL database, on the tests' clock."""

    def __init__(self, database: Database, clock: VirtualClock) -> None:
        self._database = database
        self._clock = clock
        self._outsider = PostgresStore(database.dsn, clock=clock, lease_ms=LEASE_MS)

    async def start(self) -> None:
        await self._outsider.start()

    async def stop(self) -> None:
        await self._outsider.stop()

    def store(self, number: int) -> GatedStore:
        return GatedPostgresStore(self._database.dsn, self._clock)

    async def get(self, gid: str) -> LiveRow | HistoryRow | None:
        return await self._outsider.get(gid)

    def end(self, store: GatedStore) -> None:
        self._execute("update node set epoch = epoch + 1, fence = fence + 1, owner = '' where id = %s", store.place[0])

    def renew(self) -> None:
        self._execute("update node set seen_ms = %s where owner <> ''", self._clock.now_ms())

    def _execute(self, statement: str, value: int) -> None:
        with psycopg.connect(self._database.dsn, autocommit=True) as connection:
            connection.execute(statement.encode(), (value,))


class GatedPostgresStore(PostgresStore):
    """The real store behind gates."""

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

    async def adopt(self, limit: int, *, end_tenures: bool = True) -> int:
        self.gates.pass_through()
        return await super().adopt(limit, end_tenures=end_tenures)

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
