"""Limits the calls under way: in total, and to one destination.

A destination that hangs fills its own queue and no other's: queues wait side by side and take turns. A queue is
bounded; when it is full the caller tries again later: after as long as its first call has waited, because the queue
takes that long to pass.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from twophase.core.hooks import Clock


class _DestinationQueue:
    __slots__ = ("hungry", "in_flight", "waiting")

    def __init__(self) -> None:
        self.in_flight = 0
        self.waiting: deque[tuple[Callable[[], None], int]] = deque()
        """Waiting calls, with the time since when each waits."""
        self.hungry = False
        """True while the queue waits for its turn.

        Calls wait, and the destination has room.
        """


class ConcurrencyLimiter:
    """Admits calls and queues the others in order, one queue a destination."""

    def __init__(self, total_max: int, per_destination_max: int, lane_waiting_max: int, clock: Clock) -> None:
        self._total_max = total_max
        self._per_destination_max = per_destination_max
        self._lane_waiting_max = lane_waiting_max
        self._clock = clock
        self._lanes: dict[str, _DestinationQueue] = {}
        self._line: deque[str] = deque()
        self._admitting = False
        self.in_flight = 0
        self.waiting = 0

    def enter(self, key: str, run: Callable[[], None]) -> bool:
        """Run `run` now or in its turn; False, and never, when the queue is full.

        Each run is followed by one `leave(key)`, at any time; `run` does not raise.
        """
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _DestinationQueue()
        room = lane.in_flight < self._per_destination_max and self.in_flight < self._total_max
        if room and not lane.waiting and not self._line:
            lane.in_flight += 1
            self.in_flight += 1
            run()
            return True
        if len(lane.waiting) >= self._lane_waiting_max:
            if not lane.in_flight and not lane.waiting:
                del self._lanes[key]
            return False
        lane.waiting.append((run, self._clock.now_ms()))
        self.waiting += 1
        self._queue_up(key, lane)
        return True

    def leave(self, key: str) -> None:
        """Note the end of a call, and run the next that waits."""
        lane = self._lanes[key]
        assert lane.in_flight > 0, "leave follows enter"
        assert self.in_flight > 0, "the total counts every lane"
        lane.in_flight -= 1
        self.in_flight -= 1
        if lane.waiting:
            self._queue_up(key, lane)
        if self._line:
            self._admit()
        if not lane.in_flight and not lane.waiting and self._lanes.get(key) is lane:
            del self._lanes[key]

    def waited_ms(self, key: str) -> int:
        """Return the age of a queue's first call; 0 for an empty queue."""
        lane = self._lanes.get(key)
        return max(0, self._clock.now_ms() - lane.waiting[0][1]) if lane is not None and lane.waiting else 0

    def busiest(self, limit: int) -> list[tuple[str, int, int]]:
        """Return the destinations with most calls, as (key, in flight, waiting)."""
        lanes = ((key, lane.in_flight, len(lane.waiting)) for key, lane in self._lanes.items())
        return heapq.nlargest(limit, lanes, key=lambda one: (one[1] + one[2], one[0]))

    def clear(self) -> None:
        """Forget everything that waits; calls under way still leave."""
        for lane in self._lanes.values():
            lane.waiting.clear()
            lane.hungry = False
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane.in_flight}
        self._line.clear()
        self.waiting = 0

    def _queue_up(self, key: str, lane: _DestinationQueue) -> None:
        if lane.waiting and not lane.hungry and lane.in_flight < self._per_destination_max:
            lane.hungry = True
            self._line.append(key)

    def _admit(self) -> None:
        # A call that ends at once leaves inside this loop. Were it to admit the next itself, a queue of them would be
        # as many frames deep as it is long.
        if self._admitting:
            return
        self._admitting = True
        try:
            while self._line and self.in_flight < self._total_max:
                key = self._line.popleft()
                lane = self._lanes[key]
                lane.hungry = False
                run, _ = lane.waiting.popleft()
                self.waiting -= 1
                lane.in_flight += 1
                self.in_flight += 1
                self._queue_up(key, lane)
                run()
        finally:
            self._admitting = False
