"""Timer wheel for due messages.

Every prepared message has a due time that its submit almost always cancels, so adding and removing must cost nothing:
messages are in buckets of 32 ms, found by number, and one loop timer waits for the earliest bucket.
A bucket is never early, and late by at most its width. Time comes from the given clock, so tests own it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from twophase.coordinator.state.active_message import ActiveMessage
from twophase.core.hooks import Clock

_SHIFT = 5
_SLICE = 1_000
_CANCELLED_MAX = 10_000
_NEVER_MS = 2**62


class Timers:
    """Calls `on_due(active)` once for each scheduled message, when it is due."""

    def __init__(self, clock: Clock, on_due: Callable[[ActiveMessage], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._buckets: dict[int, dict[ActiveMessage, None]] = {}
        self._order: list[int] = []
        self._wake: asyncio.TimerHandle | asyncio.Handle | None = None
        self._wake_bucket = -1
        self._stopped = False
        self._cancelled = 0
        self.far_ms = _NEVER_MS
        """A due time later than this goes into `far`, where its reason is checked."""
        self.far: dict[ActiveMessage, None] = {}

    def schedule(self, active: ActiveMessage, due_ms: int) -> None:
        """Call `on_due(active)` at `due_ms`, instead of at any time scheduled before."""
        if active.bucket >= 0:
            self.cancel(active)
        active.due_ms = due_ms
        if due_ms > self.far_ms:
            self.far[active] = None
        number = (due_ms >> _SHIFT) + 1
        active.bucket = number
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = {active: None}
            heapq.heappush(self._order, number)
            if self._wake is None or number < self._wake_bucket:
                self._arm()
        else:
            bucket[active] = None

    def cancel(self, active: ActiveMessage) -> None:
        """Cancel a message's due time, if it has one."""
        if active.bucket < 0:
            return
        bucket = self._buckets.get(active.bucket)
        if bucket is not None:
            bucket.pop(active, None)
        active.bucket = -1
        self._cancelled += 1
        if self._cancelled > _CANCELLED_MAX + len(self._order) // 2:
            self._sweep()

    def tick(self) -> None:
        """Read the clock now, and call what is due.

        It takes a slice a call, so that many messages do not stop the loop.
        """
        if self._stopped:
            return
        now_bucket = self._clock.now_ms() >> _SHIFT
        called = 0
        try:
            while self._order and self._order[0] <= now_bucket and called < _SLICE:
                # The bucket stays in the table while it is emptied: what is called may cancel or schedule in it.
                bucket = self._buckets[self._order[0]]
                if not bucket:
                    del self._buckets[heapq.heappop(self._order)]
                    continue
                active, _ = bucket.popitem()
                active.bucket = -1
                called += 1
                self._on_due(active)
        finally:
            self._arm()

    def stop(self) -> None:
        """Stop calling."""
        self._stopped = True
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        self._buckets.clear()
        self._order.clear()
        self.far.clear()

    def _sweep(self) -> None:
        """Remove the buckets that cancelling has emptied.

        A far one would stay until its time.
        """
        self._cancelled = 0
        self._buckets = {number: bucket for number, bucket in self._buckets.items() if bucket}
        self._order = sorted(self._buckets)

    def _arm(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if self._stopped or not self._order:
            return
        loop = asyncio.get_running_loop()
        self._wake_bucket = self._order[0]
        pause_ms = (self._wake_bucket << _SHIFT) - self._clock.now_ms()
        if pause_ms <= 0:
            self._wake = loop.call_soon(self.tick)
        else:
            self._wake = loop.call_later(pause_ms / 1000, self.tick)
