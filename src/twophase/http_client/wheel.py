"""One coarse timer for very many deadlines.

Adding and removing one costs little more than a set operation. A timer of the event loop for every call costs more than
parsing the call's response. Nearly every deadline is removed before it passes, so precision is worth nothing: deadlines
are gathered in slots of `tick_ms`, and one loop timer, which runs only while something waits, visits a slot when it is
over.

Promise: a deadline never passes early, and at most two ticks late (unless the loop itself is late).
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Waiting(Protocol):
    """Something with a deadline."""

    def on_timeout(self) -> None:
        """Handle the deadline, which has passed; the wheel has already forgotten it."""
        ...


Slot = set[Waiting]
"""The deadlines that end in the same tick."""


class TimeoutWheel:
    """The deadlines of one event loop."""

    __slots__ = ("_loop", "_slots", "_ticks_per_ms", "_time", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, tick_ms: int = 50) -> None:
        assert tick_ms > 0
        self._loop = loop
        self._time = loop.time
        self._ticks_per_ms = 1 / tick_ms
        self._slots: dict[int, Slot] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of pending deadlines."""
        return sum(map(len, self._slots.values()))

    @property
    def running(self) -> bool:
        """True while the loop timer is set."""
        return self._timer is not None

    def add(self, entry: Waiting, timeout_ms: int) -> Slot:
        """Call `entry.on_timeout()` once when `timeout_ms` have passed.

        Returns:
            The slot: `slot.discard(entry)` forgets the deadline, and is harmless when it has passed.
        """
        number = int((self._time() * 1000 + timeout_ms) * self._ticks_per_ms) + 1
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = set()
            if self._timer is None:
                self._start()
        slot.add(entry)
        return slot

    def stop(self) -> None:
        """Forget every deadline."""
        for slot in self._slots.values():
            slot.clear()
        self._slots.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now(self) -> int:
        return int(self._time() * 1000 * self._ticks_per_ms)

    def _start(self) -> None:
        self._timer = self._loop.call_at((self._now() + 1) / self._ticks_per_ms / 1000, self._turn)

    def _turn(self) -> None:
        """Visit the slots that are over.

        An entry may add and forget others while its `on_timeout` runs.
        """
        now = self._now()
        for number in [number for number in self._slots if number <= now]:
            slot = self._slots.get(number, set())
            while slot:
                slot.pop().on_timeout()
            self._slots.pop(number, None)
        self._timer = None
        if any(self._slots.values()):
            self._start()
        else:
            self._slots.clear()
