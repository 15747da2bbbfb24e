"""How many calls may be under way: in total, and to one destination.

A destination that hangs fills its own lane and no other's: lanes wait side by side, and free places are handed
round among them. A lane's queue is bounded; when it is full the caller leaves the message in the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class _Lane:
    __slots__ = ("in_flight", "waiting")

    def __init__(self) -> None:
        self.in_flight = 0
        self.waiting: deque[Callable[[], None]] = deque()


class Gate:
    """Admits calls, keeps the others waiting in order, a lane a destination."""

    def __init__(self, total_max: int, per_destination_max: int, lane_waiting_max: int) -> None:
        self._total_max = total_max
        self._per_destination_max = per_destination_max
        self._lane_waiting_max = lane_waiting_max
        self._lanes: dict[str, _Lane] = {}
        self._hungry: deque[str] = deque()
        self.in_flight = 0
        self.waiting = 0

    def enter(self, key: str, run: Callable[[], None]) -> bool:
        """Run `run` now or when a place is free; False, and never, when the lane's queue is full.

        Whoever was run calls `leave(key)` exactly once.
        """
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        if lane.in_flight < self._per_destination_max and self.in_flight < self._total_max and not lane.waiting:
            lane.in_flight += 1
            self.in_flight += 1
            run()
            return True
        if len(lane.waiting) >= self._lane_waiting_max:
            return False
        if not lane.waiting:
            self._hungry.append(key)
        lane.waiting.append(run)
        self.waiting += 1
        return True

    def leave(self, key: str) -> None:
        """A call has ended; the place goes to the next that waits."""
        lane = self._lanes[key]
        assert lane.in_flight > 0, "leave follows enter"
        assert self.in_flight > 0, "the total counts every lane"
        lane.in_flight -= 1
        self.in_flight -= 1
        if not self._hungry:
            if lane.in_flight == 0:
                del self._lanes[key]
            return
        self._admit()
        if lane.in_flight == 0 and not lane.waiting and self._lanes.get(key) is lane:
            del self._lanes[key]

    def clear(self) -> None:
        """Forget everything that waits; calls under way still leave."""
        for lane in self._lanes.values():
            lane.waiting.clear()
        self._hungry.clear()
        self.waiting = 0

    def _admit(self) -> None:
        for _ in range(len(self._hungry)):
            if self.in_flight >= self._total_max:
                return
            key = self._hungry.popleft()
            lane = self._lanes[key]
            if lane.in_flight >= self._per_destination_max:
                self._hungry.append(key)
                continue
            run = lane.waiting.popleft()
            self.waiting -= 1
            if lane.waiting:
                self._hungry.append(key)
            lane.in_flight += 1
            self.in_flight += 1
            run()
