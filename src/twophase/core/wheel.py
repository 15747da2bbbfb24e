"""A timer wheel: very many due times on one timer of an event loop.

Nearly every due time is cancelled before it passes: a prepared message is submitted, a call is answered. So adding and
removing one cost little more than an operation on a dict. Entries are in slots of one width, found by number, and one
timer waits for the earliest slot that has an entry.

Promise: an entry is called once, never early, and at most a slot's width late, unless the loop itself is late. It is
never called after it was removed from its slot. The clock is given, so tests own the time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

E = TypeVar("E")
Slot = dict[E, None]
"""Entries of about the same due time.

`slot.pop(entry, None)` removes one. It is harmless when the entry was called.
"""

CALLS_MAX: Final = 1_000
"""The entries called in one turn of the loop: a crowd does not stop the loop."""
_SLOTS_MAX: Final = 10_000


class Timer(Protocol):
    """A timer of an event loop."""

    def cancel(self) -> None:
        """Never fire; harmless when it has fired."""
        ...


class Wheel(Generic[E]):
    """The due times of one event loop.

    Arguments:
        now: the clock of all due times, in any unit; it may be set back.
        on_due: called with each entry that is due.
        call_later: sets a timer of the loop, as `asyncio.loop.call_later`, in seconds.
        width: of a slot, in the clock's unit.
        unit_s: the clock's unit, in seconds.

    >>> due, timers = [], []
    >>> wheel = Wheel(lambda: 1.25, due.append, lambda pause_s, turn: timers.append(pause_s), width=0.5)
    >>> slot = wheel.add("call", 1.75)
    >>> timers, slot
    ([0.75], {'call': None})
    """

    def __init__(
        self,
        now: Callable[[], Any],
        on_due: Callable[[E], object],
        call_later: Callable[[float, Callable[[], None]], Timer],
        *,
        width: float,
        unit_s: float = 1.0,
    ) -> None:
        self.now = now
        self._on_due = on_due
        self._call_later = call_later
        self._width = width
        self._unit_s = unit_s
        self._slots: dict[float, Slot[E]] = {}
        self._order: list[float] = []
        self._slots_max = _SLOTS_MAX
        self._timer: Timer | None = None
        self._timer_slot = 0.0
        self._stopped = False

    def __len__(self) -> int:
        """Return the number of entries."""
        return sum(map(len, self._slots.values()))

    def add(self, entry: E, due: float) -> Slot[E]:
        """Call `on_due(entry)` once at `due`.

        Returns:
            The slot. An entry that is removed from it is not called.
        """
        number = due // self._width + 1
        slot = self._slots.get(number)
        if slot is None:
            slot = {}
            if not self._stopped:
                if len(self._slots) >= self._slots_max:
                    self._sweep()
                self._slots[number] = slot
                heapq.heappush(self._order, number)
                if self._timer is None or number < self._timer_slot:
                    self._set_timer()
        slot[entry] = None
        return slot

    def tick(self) -> None:
        """Read the clock now, and call what is due.

        An entry may add and remove others, and stop the wheel, while it is called. One that raises is not called again.
        """
        if self._stopped:
            return
        slots, order, width = self._slots, self._order, self._width
        now = self.now()
        calls = 0
        try:
            while order and order[0] * width <= now and calls < CALLS_MAX:
                # The slot stays in the table while it is emptied: what is called may remove or add in it.
                slot = slots[order[0]]
                if not slot:
                    del slots[heapq.heappop(order)]
                    continue
                calls += 1
                self._on_due(slot.popitem()[0])
        finally:
            self._arm()

    def stop(self) -> None:
        """Call nothing any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.clear()
        self._order.clear()

    def _sweep(self) -> None:
        """Remove the slots that removing has emptied: a far one would stay until its time."""
        kept = {number: slot for number, slot in self._slots.items() if slot}
        self._slots.clear()
        self._slots.update(kept)
        self._order[:] = sorted(kept)
        self._slots_max = _SLOTS_MAX + 2 * len(kept)

    def _arm(self) -> None:
        """Set the timer for the earliest slot that has an entry."""
        slots, order = self._slots, self._order
        while order and not slots[order[0]]:
            del slots[heapq.heappop(order)]
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._order:
            number = self._timer_slot = self._order[0]
            pause_s = (number * self._width - self.now()) * self._unit_s
            self._timer = self._call_later(max(0.0, pause_s), self.tick)
