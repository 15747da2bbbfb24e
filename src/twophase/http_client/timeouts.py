"""The deadlines of calls and connections on one event loop."""

from __future__ import annotations

import asyncio
import operator
from typing import Final, Protocol

from twophase.core.wheel import Slot, Wheel

_WIDTH_S: Final = 0.05
"""The longest delay of a deadline.

Nearly every one is removed before it passes, so precision is worth nothing.
"""


class Waiting(Protocol):
    """Something with a deadline."""

    def on_timeout(self) -> None:
        """Handle the deadline, which has passed; it is already forgotten."""
        ...


Deadline = Slot[Waiting]
"""The slot that something with a deadline is removed from when it has ended."""


class Timeouts(Wheel[Waiting]):
    """The deadlines of one event loop, by its own clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop.time, operator.methodcaller("on_timeout"), loop.call_later, width=_WIDTH_S)

    def after(self, waiting: Waiting, timeout_ms: int) -> Deadline:
        """Call `waiting.on_timeout()` once when `timeout_ms` have passed."""
        return self.add(waiting, self.now() + timeout_ms / 1000)
