"""Limits the calls under way: in total, and to one destination.

A destination that hangs fills its own queue and no other's: queues wait side by side and take turns. A queue is
bounded; when it is full the caller tries again later: after as long as its first call has waited, because the queue
takes that long to pass.

A destination earns its places: it begins with a few, each answer gives it one more, up to its bound, and each call
without an answer takes one away. So a handful of addresses that never answer cannot take all the places (`UNPROVEN`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from twophase.core.hooks import Clock

UNPROVEN: Final = 16
"""Calls under way to a destination that has not answered yet."""
_LEARNED_MAX: Final = 4096


class _DestinationQueue:
    __slots__ = ("bound", "hungry", "in_flight", "in_flight_max", "waiting")

    def __init__(self, in_flight_max: int, bound: int) -> None:
        self.in_flight = 0
        self.in_flight_max = in_flight_max
        """Its places now; they grow and shrink with its answers."""
        self.bound = bound
        self.waiting: deque[tuple[Callable[[], None], int]] = deque()
        """Waiting calls, with the time since when each waits."""
        self.hungry = False
        """True while the queue waits for its turn.

        Calls wait, and the destination has room.
        """


class ConcurrencyLimiter:
    """Admits calls and queues the others in order, one queue a destination.

    `of_destination`: the bounds of those that have one of their own, by key.
    """

    def __init__(
        self,
        total_max: int,
        per_destination_max: int,
        queue_waiting_max: int,
        clock: Clock,
        of_destination: Mapping[str, int] | None = None,
    ) -> None:
        self._total_max = total_max
        self._per_destination_max = per_destination_max
        self._queue_waiting_max = queue_waiting_max
        self._clock = clock
        self._of_destination = of_destination or {}
        self._queues: dict[str, _DestinationQueue] = {}
        self._learned: dict[str, int] = {}
        """Places of destinations without a queue, where they are more than `UNPROVEN`."""
        self._ready: deque[str] = deque()
        self._admitting = False
        self.in_flight = 0
        self.waiting = 0

    def enter(self, key: str, run: Callable[[], None]) -> bool:
        """Run `run` now or in its turn; False, and never, when the queue is full.

        Each run is followed by one `leave(key)`, at any time; `run` does not raise.
        """
        queue = self._queues.get(key)
        if queue is None:
            bound = self._of_destination.get(key, self._per_destination_max)
            queue = self._queues[key] = _DestinationQueue(self._learned.get(key) or min(UNPROVEN, bound), bound)
        room = queue.in_flight < queue.in_flight_max and self.in_flight < self._total_max
        if room and not queue.waiting and not self._ready:
            queue.in_flight += 1
            self.in_flight += 1
            run()
            return True
        if len(queue.waiting) >= self._queue_waiting_max:
            if not queue.in_flight and not queue.waiting:
                del self._queues[key]
            return False
        queue.waiting.append((run, self._clock.now_ms()))
        self.waiting += 1
        self._queue_up(key, queue)
        return True

    def leave(self, key: str, *, answered: bool | None = True) -> None:
        """Note the end of a call, and run the next that waits.

        `answered`: the destination gave an answer, whatever it says; None where nothing was called.
        """
        queue = self._queues[key]
        assert queue.in_flight > 0, "leave follows enter"
        assert self.in_flight > 0, "the total counts every queue"
        queue.in_flight -= 1
        self.in_flight -= 1
        if answered:
            if queue.in_flight_max < queue.bound:
                queue.in_flight_max += 1
        elif answered is not None and queue.in_flight_max > UNPROVEN:
            queue.in_flight_max -= 1
        if queue.waiting:
            self._queue_up(key, queue)
        if self._ready:
            self._admit()
        if not queue.in_flight and not queue.waiting and self._queues.get(key) is queue:
            del self._queues[key]
            learned = self._learned
            learned.pop(key, None)
            if queue.in_flight_max > UNPROVEN:
                learned[key] = queue.in_flight_max
                if len(learned) > _LEARNED_MAX:
                    del learned[next(iter(learned))]

    def waited_ms(self, key: str) -> int:
        """Return the age of a queue's first call; 0 for an empty queue."""
        queue = self._queues.get(key)
        return max(0, self._clock.now_ms() - queue.waiting[0][1]) if queue is not None and queue.waiting else 0

    def busiest(self, limit: int) -> list[tuple[str, int, int]]:
        """Return the destinations with most calls, as (key, in flight, waiting)."""
        queues = ((key, queue.in_flight, len(queue.waiting)) for key, queue in self._queues.items())
        return heapq.nlargest(limit, queues, key=lambda one: (one[1] + one[2], one[0]))

    def clear(self) -> None:
        """Forget everything that waits; calls under way still leave."""
        for queue in self._queues.values():
            queue.waiting.clear()
            queue.hungry = False
        self._queues = {key: queue for key, queue in self._queues.items() if queue.in_flight}
        self._ready.clear()
        self.waiting = 0

    def _queue_up(self, key: str, queue: _DestinationQueue) -> None:
        if queue.waiting and not queue.hungry and queue.in_flight < queue.in_flight_max:
            queue.hungry = True
            self._ready.append(key)

    def _admit(self) -> None:
        # A call that ends at once leaves inside this loop. Were it to admit the next itself, a queue of them would be
        # as many frames deep as it is long.
        if self._admitting:
            return
        self._admitting = True
        try:
            while self._ready and self.in_flight < self._total_max:
                key = self._ready.popleft()
                queue = self._queues[key]
                queue.hungry = False
                run, _ = queue.waiting.popleft()
                self.waiting -= 1
                queue.in_flight += 1
                self.in_flight += 1
                self._queue_up(key, queue)
                run()
        finally:
            self._admitting = False
