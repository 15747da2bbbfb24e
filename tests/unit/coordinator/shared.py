"""One SQLite file as if several nodes shared it: who owns a row, leases and fences, kept beside the file.

What a shared engine promises (`stores/base.py`), in the fewest lines; the engine itself is tested elsewhere. It lets
tests of the coordinator hold a node's flush, silence it or fence it at the moment they want.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from twophase.core.errors import StoreFenced, StoreUnavailable
from twophase.stores.base import Attempt, Batch, FlushResult, HistoryRow, LiveRow, Overview, Purged
from twophase.stores.sqlite.store import SqliteStore
from twophase.testing.clock import VirtualClock

LEASE_MS = 400
Tenure = tuple[int, int]


class SharedFile:
    """What all nodes agree on: the file, its tenures, and whose each row is."""

    def __init__(self, path: Path, clock: VirtualClock) -> None:
        self.clock = clock
        self.file = SqliteStore(path, clock=clock)
        self.epochs: dict[int, int] = {}
        self.seen_ms: dict[int, int] = {}
        self.owners: dict[str, Tenure] = {}

    def take_place(self, node: int) -> Tenure:
        self.epochs[node] = self.epochs.get(node, 0) + 1
        self.seen_ms[node] = self.clock.now_ms()
        return node, self.epochs[node]

    def holds(self, tenure: Tenure) -> bool:
        return self.epochs[tenure[0]] == tenure[1]

    def end(self, node: int) -> None:
        """The node is fenced."""
        self.epochs[node] += 1
        self.seen_ms.pop(node, None)


class SharedStore:
    """One node's view of the file; a test may hold it, cut it off, and look at what it wrote."""

    def __init__(self, shared_file: SharedFile, node: int) -> None:
        self._all = shared_file
        self._node = node
        self._tenure: Tenure = (0, 0)
        self.open = asyncio.Event()
        self.open.set()
        self.cut = False
        self.batches: list[Batch] = []
        self.asked: list[int] = []
        self.rejoins_refused = 0

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
            self._all.end(self._node)

    async def rejoin(self) -> None:
        self._reach()
        if self.rejoins_refused:
            self.rejoins_refused -= 1
            raise StoreUnavailable
        self._tenure = self._all.take_place(self._node)

    async def flush(self, batch: Batch) -> FlushResult:
        await self.open.wait()
        self._pass_fence()
        result = await self._all.file.flush(batch)
        self.batches.append(batch)
        for index, item in enumerate(batch.items):
            if index not in result.refused:
                self._all.owners[item.gid] = self._tenure
        refused = {index: self._seen(row) if isinstance(row, LiveRow) else row for index, row in result.refused.items()}
        return FlushResult(result.at_ms, refused)

    async def heartbeat(self) -> int:
        self._pass_fence()
        return self._all.clock.now_ms()

    async def adopt(self, limit: int, *, end_tenures: bool = True) -> int:
        self._pass_fence()
        now_ms = self._all.clock.now_ms()
        if end_tenures:
            for node, seen_ms in list(self._all.seen_ms.items()):
                if seen_ms < now_ms - LEASE_MS:
                    self._all.end(node)
        free = [gid for gid, tenure in self._all.owners.items() if not self._all.holds(tenure)][:limit]
        self._all.owners.update(dict.fromkeys(free, self._tenure))
        return len(free)

    async def moved(self, known: Sequence[tuple[str, int]]) -> set[str]:
        self._reach()
        self.asked.append(len(known))
        foreign = {gid for gid, _ in known if self._all.owners.get(gid) != self._tenure}
        return foreign | await self._all.file.moved(known)

    async def get(self, gid: str) -> LiveRow | HistoryRow | None:
        self._reach()
        row = await self._all.file.get(gid)
        return self._seen(row) if isinstance(row, LiveRow) else row

    async def due(self, until_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        self._reach()
        rows = await self._all.file.due(until_ms, after, 100_000)
        return [row for row in rows if self._seen(row).mine][:limit]

    def _seen(self, row: LiveRow) -> LiveRow:
        return msgspec.structs.replace(row, mine=self._all.owners.get(row.gid) == self._tenure)

    def _reach(self) -> None:
        if self.cut:
            raise StoreUnavailable

    def _pass_fence(self) -> None:
        self._reach()
        if not self._all.holds(self._tenure):
            raise StoreFenced
        self._all.seen_ms[self._node] = self._all.clock.now_ms()

    # ---- the same for every node --------------------------------------------------------------------

    async def attempts(self, gid: str, limit: int = 100) -> Sequence[Attempt]:
        return await self._all.file.attempts(gid, limit)

    async def overview(self) -> Overview:
        return await self._all.file.overview()

    async def now_ms(self) -> int:
        return self._all.clock.now_ms()

    async def history_horizon_ms(self) -> int:
        return await self._all.file.history_horizon_ms()

    async def purge(self, before_ms: int, limit: int) -> Purged:
        return await self._all.file.purge(before_ms, limit)

    async def oldest_undecided(self, before_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        return await self._all.file.oldest_undecided(before_ms, after, limit)
