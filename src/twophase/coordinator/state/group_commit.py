"""Group commit with linger 0: a flush starts as soon as the last one ended, with everything that came meanwhile.

Keeps I8: an outcome is reported only after the store's durable commit. Changes nobody waits for (a finished
message, a new due time) may wait some milliseconds for company, because a commit costs more than they do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from twophase.coordinator.observer import Observer
from twophase.coordinator.state.active_message import Entry, Occurrence
from twophase.coordinator.store_faults import as_store_error, log_text
from twophase.core import failpoint
from twophase.core.errors import StoreError, StoreFenced
from twophase.stores.base import (
    Attempt,
    AttemptKind,
    Batch,
    Decide,
    FlushResult,
    Insert,
    Item,
    NotApplied,
    Redirect,
    Store,
)

_ATTEMPTS_MAX = 10_000
_TOLD_AT_ONCE = 32
"""Outcomes told in one turn of the event loop, which sends what they wrote when the turn ends. With a whole flush told
in one turn, clients stood still meanwhile, and the server did while they all answered: 15 % fewer messages."""
_NOT_DONE = frozenset({AttemptKind.BRANCH, AttemptKind.CHECK_BACK})
_BODIES_BYTES_MAX = 16 * 1024 * 1024
"""Of one flush: with more, a statement would take longer than a store gives it, and all that is in it would fail."""
_WITH_BODY = (Insert, Decide, Redirect)
_LARGEST_AT_ONCE = 4
"""So many of the longest bodies are no more than that."""

OnOutcome = Callable[[Entry, Occurrence, Item, int], None]
"""Called with (entry, occurrence, item, at_ms) when the item is durable."""


class Committer:
    """Collects changes, flushes them in batches, and reports each one's outcome."""

    def __init__(
        self,
        store: Store,
        observer: Observer,
        *,
        flush_items_max: int,
        linger_ms: int,
        memory_bytes: Callable[[], int],
        on_applied: OnOutcome,
        on_refused: Callable[[Entry, Occurrence, NotApplied], None],
        on_failed: Callable[[Entry, Occurrence, StoreError], None],
        on_fenced: Callable[[StoreFenced], None],
    ) -> None:
        self._store = store
        self._observer = observer
        self._flush_items_max = flush_items_max
        self._linger_s = linger_ms / 1000
        self._memory_bytes = memory_bytes
        """About how much all messages in memory are; while that is little, no flush is weighed."""
        self._on_applied = on_applied
        self._on_refused = on_refused
        self._on_failed = on_failed
        self._on_fenced = on_fenced
        self._items: list[Item] = []
        self._about: list[tuple[Entry, Occurrence]] = []
        self._attempts: list[Attempt] = []
        self._flush: asyncio.Task[None] | None = None
        """The flush that is with the store."""
        self._unfinished: set[asyncio.Task[None]] = set()
        """That one, and those whose outcomes are still being told."""
        self._urgent = False
        self._linger: asyncio.TimerHandle | None = None
        self._in_flush = 0
        self._halted = False

    @property
    def waiting(self) -> int:
        """How many changes are not durable yet."""
        return len(self._items) + self._in_flush

    def add(self, entry: Entry, occurrence: Occurrence, item: Item, *, urgent: bool = True) -> None:
        """Make a change durable; `entry` is busy until its outcome has been reported."""
        assert not entry.busy, "one change of a gid at a time"
        entry.busy = True
        self._items.append(item)
        self._about.append((entry, occurrence))
        if self._flush is None:
            if urgent:
                self._start_soon()
            elif self._linger is None and not self._urgent:
                self._linger = asyncio.get_running_loop().call_later(self._linger_s, self._start)

    def record(self, attempt: Attempt) -> None:
        """Write an attempt with the next flush, and tell the observer. Beyond a bound failed calls are not written."""
        if attempt.kind in _NOT_DONE:
            self._observer.not_done(attempt)
        if len(self._attempts) >= _ATTEMPTS_MAX and attempt.kind is not AttemptKind.OPERATOR:
            return
        self._attempts.append(attempt)
        if self._flush is None and self._linger is None and not self._urgent:
            self._linger = asyncio.get_running_loop().call_later(self._linger_s, self._start)

    async def drained(self) -> None:
        """Return when nothing waits for the store any more."""
        while not self._halted and (self._unfinished or self._items or self._attempts):
            if self._flush is None:
                self._start()
            if self._unfinished:
                await asyncio.wait(self._unfinished)

    def halt(self) -> None:
        """Start no flush until `resume`, if ever."""
        self._halted = True

    def resume(self) -> None:
        """Start flushes again, with nothing that was planned before."""
        assert not self._items, "what was planned before was planned in another tenure"
        self._halted = False
        self._start()

    async def discard(self, error: StoreError) -> None:
        """Halted: wait for the flush under way, and report whatever has not been written as failed.

        What is planned until this returns is reported with the rest, so whoever forgets entries awaits nothing between.
        """
        assert self._halted, "no flush may begin meanwhile"
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._unfinished:
            await asyncio.wait(self._unfinished)
        self._items.clear()
        self._attempts.clear()
        about, self._about = self._about, []
        self._report_failed(error, about)

    def _start_soon(self) -> None:
        if self._urgent:
            return
        self._urgent = True
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._urgent = False
        self._linger = None
        if self._halted or self._flush is not None or not (self._items or self._attempts):
            return
        size = self._fitting()
        if len(self._items) <= size:
            items, self._items = self._items, []
            about, self._about = self._about, []
        else:
            items, self._items = self._items[:size], self._items[size:]
            about, self._about = self._about[:size], self._about[size:]
        attempts, self._attempts = self._attempts, []
        self._in_flush = len(items)
        self._flush = asyncio.get_running_loop().create_task(self._run(Batch(items, attempts), about))
        self._unfinished.add(self._flush)
        self._flush.add_done_callback(self._unfinished.discard)

    def _fitting(self) -> int:
        """How many of the changes that wait go into one flush: at least one, in their order."""
        size = min(len(self._items), self._flush_items_max)
        if size > _LARGEST_AT_ONCE and self._memory_bytes() > _BODIES_BYTES_MAX:
            left = _BODIES_BYTES_MAX
            for index in range(size):
                item = self._items[index]
                if isinstance(item, _WITH_BODY) and item.body is not None:
                    left -= len(item.body)
                    if left < 0:
                        return max(1, index)
        return size

    async def _run(self, batch: Batch, about: list[tuple[Entry, Occurrence]]) -> None:
        if failpoint.ARMED:
            failpoint.reach("coordinator.before_flush")
        started = time.perf_counter()
        try:
            result = await self._store.flush(batch)
        except Exception as cause:  # noqa: BLE001 -- whatever it is, every requester gets an answer
            self._flush = None
            self._in_flush = 0
            self._failed(as_store_error(cause), about)
        else:
            if failpoint.ARMED:
                failpoint.reach("coordinator.after_flush")
            self._flush = None
            self._in_flush = 0
            self._observer.flushed(len(about), time.perf_counter() - started)
            await self._tell(batch.items, about, result)
        self._start()

    async def _tell(self, items: list[Item], about: list[tuple[Entry, Occurrence]], result: FlushResult) -> None:
        """Report what is durable, some at a time; meanwhile the next flush may begin, with what concerns others."""
        refused = result.refused
        for index, (entry, occurrence) in enumerate(about):
            if index % _TOLD_AT_ONCE == _TOLD_AT_ONCE - 1:
                await asyncio.sleep(0)
            entry.busy = False
            try:
                if refused and index in refused:
                    self._on_refused(entry, occurrence, refused[index])
                else:
                    self._on_applied(entry, occurrence, items[index], result.at_ms)
            except Exception as cause:  # noqa: BLE001 -- one message's fault never stops its neighbours
                self._on_failed(entry, occurrence, as_store_error(cause))

    def _failed(self, error: StoreError, about: list[tuple[Entry, Occurrence]]) -> None:
        self._observer.flush_failed(error.code, log_text(error))
        self._report_failed(error, about)
        if isinstance(error, StoreFenced):
            self._on_fenced(error)

    def _report_failed(self, error: StoreError, about: list[tuple[Entry, Occurrence]]) -> None:
        for entry, occurrence in about:
            entry.busy = False
            self._on_failed(entry, occurrence, error)
