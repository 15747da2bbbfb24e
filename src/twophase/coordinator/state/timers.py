"""The due times of messages, by the store's clock.

Every prepared message has a due time that its submit almost always cancels. Slots are 32 ms wide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from twophase.coordinator.state.active_message import ActiveMessage
from twophase.core.hooks import Clock
from twophase.core.wheel import Timer, Wheel

_WIDTH_MS: Final = 32
_NEVER_MS: Final = 2**62


class Timers:
    """Calls `on_due(active)` once for each scheduled message, when it is due."""

    def __init__(self, clock: Clock, on_due: Callable[[ActiveMessage], None]) -> None:
        self._on_due = on_due
        self._wheel = Wheel(clock.now_ms, self._call, _call_later, width=_WIDTH_MS, unit_s=0.001)
        self.tick = self._wheel.tick
        self.stop = self._wheel.stop
        self.far_ms = _NEVER_MS
        """A due time later than this goes into `far`, where its reason is checked."""
        self.far: dict[ActiveMessage, None] = {}

    def schedule(self, active: ActiveMessage, due_ms: int) -> None:
        """Call `on_due(active)` at `due_ms`, instead of at any time scheduled before."""
        if active.slot is not None:
            active.slot.pop(active, None)
        active.due_ms = due_ms
        if due_ms > self.far_ms:
            self.far[active] = None
        active.slot = self._wheel.add(active, due_ms)

    def cancel(self, active: ActiveMessage) -> None:
        """Cancel a message's due time, if it has one."""
        if active.slot is not None:
            active.slot.pop(active, None)
            active.slot = None

    def _call(self, active: ActiveMessage) -> None:
        active.slot = None
        self._on_due(active)


def _call_later(pause_s: float, turn: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(pause_s, turn)
