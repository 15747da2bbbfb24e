"""Brings unfinished messages from the store into memory: at the start, when they fall due, after a store fault.

Keeps I2 and I9: every live, unparked row is in memory or will be read when it is due, because whatever leaves
memory unfinished says from which due time on the store must be read again (`note`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from twophase.coordinator.active import Active
from twophase.coordinator.decisions import Decisions, restore
from twophase.coordinator.observer import Observer
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.timers import Timers
from twophase.core.errors import StoreError
from twophase.core.hooks import Clock
from twophase.core.message import decode
from twophase.stores.base import LiveRow, Store

_CROWDED_S = 0.2


class Recovery:
    """Pages due rows into memory, as long as there is room."""

    def __init__(
        self,
        store: Store,
        active: Active,
        timers: Timers,
        decisions: Decisions,
        settings: CoordinatorSettings,
        clock: Clock,
        observer: Observer,
        is_accepting: Callable[[], bool],
    ) -> None:
        self._store = store
        self._active = active
        self._timers = timers
        self._decisions = decisions
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._is_accepting = is_accepting
        self._from_ms = 0
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the first page, then go on in the background."""
        await self._read_pages(pages_max=1)
        self._wanted.set()
        self._task = asyncio.create_task(self._loop(), name="twophase recovery")

    async def stop(self) -> None:
        """Read nothing more. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def note(self, due_ms: int) -> None:
        """An unfinished message with this due time has left memory."""
        if due_ms < self._from_ms:
            self._from_ms = due_ms
            self._wanted.set()

    def wake(self) -> None:
        """The clock has moved by more than time does."""
        self._wanted.set()

    async def _loop(self) -> None:
        ahead_s = self._settings.page_ahead_ms / 2000
        while self._is_accepting():
            try:
                async with asyncio.timeout(ahead_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                everything = await self._read_pages(pages_max=1_000_000)
            except StoreError as error:
                self._observer.flush_failed(error.code)
                self.note(0)
                await asyncio.sleep(self._settings.store_retry_ms / 1000)
                continue
            if not everything:
                self._wanted.set()
                await asyncio.sleep(_CROWDED_S)

    async def _read_pages(self, pages_max: int) -> bool:
        """Read what is due; True when memory now holds every row due within the page-ahead time."""
        until_ms = self._clock.now_ms() + self._settings.page_ahead_ms
        position = (self._from_ms - 1, "\U0010ffff")
        # Set once, before the first wait: what leaves memory meanwhile lowers it again.
        self._from_ms = until_ms + 1
        for _ in range(pages_max):
            if self._active.crowded:
                self._from_ms = min(self._from_ms, max(0, position[0]))
                return False
            finished = self._decisions.finished_gids = set()
            try:
                rows = await self._store.due(until_ms, position, self._settings.page_rows)
            except BaseException:
                self._from_ms = min(self._from_ms, max(0, position[0]))
                raise
            finally:
                self._decisions.finished_gids = None
            for row in rows:
                if row.gid not in self._active and row.gid not in finished:
                    self._adopt(row)
            if len(rows) < self._settings.page_rows:
                return True
            position = (rows[-1].due_ms, rows[-1].gid)
        self._from_ms = min(self._from_ms, max(0, position[0]))
        return False

    def _adopt(self, row: LiveRow) -> None:
        try:
            message = decode(row.body)
        except (msgspec.DecodeError, msgspec.ValidationError):
            self._observer.incident(row.gid, "its stored body cannot be read; it stays in the store, undecided")
            return
        entry = self._active.add(message)
        restore(entry, row)
        self._timers.schedule(entry, row.due_ms)
