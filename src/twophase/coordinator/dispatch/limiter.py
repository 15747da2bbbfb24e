"""Limits the calls under way: in total, by destination, and by owner.

Calls of one owner to one destination wait in one queue, in order; queues take turns. So a destination that hangs, or an
owner with many messages, delays no other. A queue is bounded; when it is full the caller tries again later: after as
long as its first call has waited, because the queue takes that long to pass.

A destination earns its places: it begins with a few, each answer gives it one more, up to its bound, and each call
without an answer takes one away. So a handful of addresses that never answer cannot take all the places (`UNPROVEN`).
Where both kinds wait, every other free place is for a destination that has answered: it need not wait for the turns of
a hundred thousand names that are unknown.

Invariant: a queue that is not ready waits for its destination or for its owner, and that one has no place free.
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
_QUICK_MS: Final = 2_000
"""Turns come quickly in a queue whose first call waits for less."""


class _Places:
    """The places of a destination or an owner, and the queues that wait for one."""

    __slots__ = ("blocked", "in_flight", "in_flight_max")

    def __init__(self, in_flight_max: int) -> None:
        self.in_flight = 0
        self.in_flight_max = in_flight_max
        self.blocked: deque[_Queue] = deque()


class _Destination(_Places):
    __slots__ = ("bound", "queues")

    def __init__(self, in_flight_max: int, bound: int) -> None:
        # Not by `super()`: a destination that is called now and then is made anew for each call.
        self.in_flight = 0
        self.in_flight_max = in_flight_max
        self.blocked = deque()
        self.bound = bound
        """The most places that its answers can earn it."""
        self.queues: dict[str, _Queue] = {}
        """Its queues that are not empty, by owner."""


class _Queue:
    """Calls that wait."""

    __slots__ = ("calls", "destination", "owner")

    def __init__(self, destination: _Destination, owner: str) -> None:
        self.destination = destination
        self.owner = owner
        self.calls: deque[tuple[Callable[[], None], int, Callable[[], None]]] = deque()
        """Each with the time since when it waits, and what happens when it gives up."""


class ConcurrencyLimiter:
    """Admits calls, and queues the others by destination and owner, in order.

    Arguments:
        total_max: the most calls under way.
        per_destination_max: the most to one destination.
        queue_waiting_max: the most calls that wait in one queue.
        clock: tells how long a call has waited.
        of_destination: the bounds of the destinations that have one of their own, by key.
        of_owner: returns the bound of an owner's calls; it may change. Calls without an owner, `""`, have none.
    """

    def __init__(
        self,
        total_max: int,
        per_destination_max: int,
        queue_waiting_max: int,
        clock: Clock,
        of_destination: Mapping[str, int] | None = None,
        of_owner: Callable[[str], int] | None = None,
    ) -> None:
        assert queue_waiting_max > 0
        self._total_max = total_max
        self._per_destination_max = per_destination_max
        self._queue_waiting_max = queue_waiting_max
        self._clock = clock
        self._of_destination = of_destination or {}
        self._of_owner = of_owner or (lambda _owner: total_max)
        self._destinations: dict[str, _Destination] = {}
        self._owners: dict[str, _Places] = {"": _Places(total_max)}
        self._learned: dict[str, int] = {}
        """Places of destinations without calls, where they are more than `UNPROVEN`."""
        self._ready: deque[_Queue] = deque()
        self._unproven: deque[_Queue] = deque()
        """The ready queues of destinations that have not answered yet."""
        self._unproven_next = False
        self._admitting = False
        self.in_flight = 0
        self.waiting = 0

    def enter(
        self,
        key: str,
        run: Callable[[], None],
        owner: str = "",
        *,
        pressure: int = 0,
        give_up: Callable[[], None] = lambda: None,
    ) -> bool:
        """Run `run` now or in its turn; False, and never, when the queue is full.

        Each run is followed by one `leave(key, owner)`, at any time; `run` does not raise. With a `pressure` of 1 it
        waits only where turns come quickly; with 2 it is now or never, and only to a destination that has answered.

        `give_up` is called instead of `run` when a call that waits has to make room; see `make_room`.
        """
        destination = self._destinations.get(key)
        if destination is None:
            bound = self._of_destination.get(key, self._per_destination_max)
            places_earned = self._learned.get(key) or min(UNPROVEN, bound)
            destination = self._destinations[key] = _Destination(places_earned, bound)
        places = self._owners.get(owner) or self._new_owner(owner)
        if (
            destination.in_flight < destination.in_flight_max
            and places.in_flight < places.in_flight_max
            and self.in_flight < self._total_max
            and not self._ready
            and not self._unproven
            and (pressure <= 1 or _has_answered(destination))
        ):
            destination.in_flight += 1
            places.in_flight += 1
            self.in_flight += 1
            run()
            return True
        queue = destination.queues.get(owner)
        if pressure and not (pressure == 1 and _has_answered(destination) and self._passes_quickly(queue)):
            if not destination.in_flight and not destination.queues:
                del self._destinations[key]
            if owner and not places.in_flight and not places.blocked:
                del self._owners[owner]
            return False
        if queue is None:
            queue = destination.queues[owner] = _Queue(destination, owner)
            self._make_ready(queue)
        elif len(queue.calls) >= self._queue_waiting_max:
            return False
        queue.calls.append((run, self._clock.now_ms(), give_up))
        self.waiting += 1
        self._admit()
        return True

    def leave(self, key: str, owner: str = "", *, answered: bool | None = True) -> None:
        """Note the end of a call, and run the next that waits.

        `answered`: the destination gave an answer, whatever it says; None where nothing was called.
        """
        destination = self._destinations[key]
        places = self._owners[owner]
        assert destination.in_flight > 0, "leave follows enter"
        assert places.in_flight > 0, "an owner's places count its calls"
        assert self.in_flight > 0, "the total counts every call"
        destination.in_flight -= 1
        places.in_flight -= 1
        self.in_flight -= 1
        if answered:
            if destination.in_flight_max < destination.bound:
                destination.in_flight_max += 1
        elif answered is not None and destination.in_flight_max > UNPROVEN:
            destination.in_flight_max -= 1
        if owner:
            places.in_flight_max = self._of_owner(owner)
        if destination.blocked or places.blocked:
            self._wake(destination)
            self._wake(places)
        if self._ready or self._unproven:
            self._admit()
        if not destination.in_flight and not destination.queues and self._destinations.get(key) is destination:
            del self._destinations[key]
            learned = self._learned
            learned.pop(key, None)
            if destination.in_flight_max > UNPROVEN:
                learned[key] = destination.in_flight_max
                if len(learned) > _LEARNED_MAX:
                    del learned[next(iter(learned))]
        if owner and not places.in_flight and not places.blocked and self._owners.get(owner) is places:
            del self._owners[owner]

    def waited_ms(self, key: str, owner: str = "") -> int:
        """Return the age of a queue's first call; 0 for an empty queue."""
        destination = self._destinations.get(key)
        queue = destination.queues.get(owner) if destination is not None else None
        return max(0, self._clock.now_ms() - queue.calls[0][1]) if queue is not None else 0

    def make_room(self, calls_max: int) -> None:
        """Have slow queues give up as many calls at most.

        The slowest queue comes first, and the last of its calls. Each queue keeps its first.
        """
        slow_ms = self._clock.now_ms() - _QUICK_MS
        queues = [
            (queue.calls[0][1], len(queue.calls), queue)
            for destination in self._destinations.values()
            for queue in destination.queues.values()
            if len(queue.calls) > 1 and queue.calls[0][1] <= slow_ms
        ]
        queues.sort(key=lambda one: one[:2])
        given_up: list[Callable[[], None]] = []
        for _, waiting, queue in queues:
            give = min(waiting - 1, calls_max - len(given_up))
            given_up += [queue.calls.pop()[2] for _ in range(give)]
        self.waiting -= len(given_up)
        for give_up in given_up:
            give_up()

    def busiest(self, limit: int) -> list[tuple[str, int, int]]:
        """Return the destinations with most calls, as (key, in flight, waiting)."""
        counts = (
            (key, destination.in_flight, sum(len(queue.calls) for queue in destination.queues.values()))
            for key, destination in self._destinations.items()
        )
        return heapq.nlargest(limit, counts, key=lambda one: (one[1] + one[2], one[0]))

    def clear(self) -> None:
        """Forget everything that waits; calls under way still leave."""
        for places in (*self._destinations.values(), *self._owners.values()):
            places.blocked.clear()
        for destination in self._destinations.values():
            for queue in destination.queues.values():
                queue.calls.clear()
            destination.queues.clear()
        self._destinations = {key: one for key, one in self._destinations.items() if one.in_flight}
        self._owners = {owner: one for owner, one in self._owners.items() if one.in_flight or not owner}
        self._ready.clear()
        self._unproven.clear()
        self.waiting = 0

    def _passes_quickly(self, queue: _Queue | None) -> bool:
        return queue is None or self._clock.now_ms() - queue.calls[0][1] < _QUICK_MS

    def _new_owner(self, owner: str) -> _Places:
        new = self._owners[owner] = _Places(self._of_owner(owner))
        return new

    def _wake(self, places: _Places) -> None:
        """Make the first waiting queue ready, where a place is free."""
        if places.blocked and places.in_flight < places.in_flight_max:
            self._make_ready(places.blocked.popleft())

    def _make_ready(self, queue: _Queue) -> None:
        """Let a queue wait for its turn, among those of its kind."""
        (self._ready if _has_answered(queue.destination) else self._unproven).append(queue)

    def _admit(self) -> None:
        # A call that ends at once leaves inside this loop. Were it to admit the next itself, a queue of them would be
        # as many frames deep as it is long.
        if self._admitting:
            return
        self._admitting = True
        try:
            while (self._ready or self._unproven) and self.in_flight < self._total_max:
                takes_unproven = not self._ready or (self._unproven_next and bool(self._unproven))
                self._unproven_next = not takes_unproven
                self._turn((self._unproven if takes_unproven else self._ready).popleft())
        finally:
            self._admitting = False

    def _turn(self, queue: _Queue) -> None:
        """Run the first call of a ready queue, or note what the queue waits for.

        A queue that cannot use the place it was woken for passes it to the next that waits for it.
        """
        destination, owner = queue.destination, queue.owner
        places = self._owners.get(owner) or self._new_owner(owner)
        if destination.in_flight >= destination.in_flight_max:
            destination.blocked.append(queue)
            self._wake(places)
            return
        if places.in_flight >= places.in_flight_max:
            places.blocked.append(queue)
            self._wake(destination)
            return
        run, _, _ = queue.calls.popleft()
        self.waiting -= 1
        destination.in_flight += 1
        places.in_flight += 1
        self.in_flight += 1
        self._wake(destination)
        self._wake(places)
        if queue.calls:
            self._make_ready(queue)
        else:
            del destination.queues[owner]
        run()


def _has_answered(destination: _Destination) -> bool:
    return destination.in_flight_max > min(UNPROVEN, destination.bound - 1)
