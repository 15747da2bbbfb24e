"""One coarse timer for very many deadlines: adding and removing one costs two dictionary operations.

A timer of the event loop for every call costs more than parsing the call's response. Nearly every deadline is
removed before it passes, so precision is worth nothing: deadlines are gathered in slots of `tick_ms`, and one loop
timer, which runs only while something waits, visits a slot when it is over.

Promise: a deadline never passes early, and at most two ticks late (unless the loop itself is late).
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Waiting(Protocol):
    """Something with a deadline."""

    def on_timeout(self) -> None:
        """The deadline has passed; the wheel has forgotten this entry already."""
        ...


class TimeoutWheel:
    """The deadlines of one event loop."""

    __slots__ = ("_count", "_loop", "_slots", "_tick_s", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, tick_ms: int = 50) -> None:
        assert tick_ms > 0
        self._loop = loop
        self._tick_s = tick_ms / 1000
        self._slots: dict[int, dict[Waiting, None]] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many deadlines are pending."""
        return self._count

    @property
    def running(self) -> bool:
        """Whether the loop timer is set."""
        return self._timer is not None

    def add(self, entry: Waiting, timeout_ms: int) -> int:
        """Call `entry.on_timeout()` once when `timeout_ms` have passed; returns the slot that `remove` wants."""
        slot = int((self._loop.time() + timeout_ms / 1000) / self._tick_s) + 1
        entries = self._slots.get(slot)
        if entries is None:
            self._slots[slot] = {entry: None}
        else:
            assert entry not in entries, "one deadline per entry and slot"
            entries[entry] = None
        self._count += 1
        if self._timer is None:
            self._start()
        return slot

    def remove(self, entry: Waiting, slot: int) -> None:
        """Forget a deadline; harmless when it has passed or was removed before."""
        entries = self._slots.get(slot)
        if entries is not None and entries.pop(entry, self) is None:
            self._count -= 1

    def stop(self) -> None:
        """Forget every deadline."""
        for entries in self._slots.values():
            entries.clear()
        self._slots.clear()
        self._count = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        next_slot = int(self._loop.time() / self._tick_s) + 1
        self._timer = self._loop.call_at(next_slot * self._tick_s, self._turn)

    def _turn(self) -> None:
        """Visit the slots that are over. An entry may add and remove others while it is told."""
        now_slot = int(self._loop.time() / self._tick_s)
        for slot in [slot for slot in self._slots if slot <= now_slot]:
            entries = self._slots.get(slot, {})
            while entries:
                entry, _ = entries.popitem()
                self._count -= 1
                entry.on_timeout()
            self._slots.pop(slot, None)
        self._timer = None
        if self._count:
            self._start()
        else:
            self._slots.clear()
