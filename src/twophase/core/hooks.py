"""Time, random numbers and failpoints, given from outside so that tests own them.

The composition root of a program passes in `Clock` and `Chance`. A failpoint (`core.failpoint`) is a named instruction
at which a test lets the process die by SIGKILL: `TWOPHASE_FAILPOINT=name` or `name:3` for the third passage. Call sites
read

    if failpoint.ARMED:
        failpoint.reach("coordinator.before_flush")

so that an unset variable costs one look-up of a constant and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...


class WallClock:
    """The time of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000


MonotonicMs = Callable[[], float]
"""Milliseconds of a clock that never goes back; only differences mean something."""


def monotonic_ms() -> float:
    """Return the monotonic clock of this machine."""
    return time.monotonic() * 1000


Chance = Callable[[], float]
"""A random number in [0, 1) a call, such as `random.random`."""
