"""A clock that tests own: it runs with the real one, and jumps on request."""

from __future__ import annotations

import time
from collections.abc import Callable


class VirtualClock:
    """The real time plus an offset that only `advance` increases.

    Watchers are notified of every jump.

    >>> clock = VirtualClock()
    >>> before = clock.now_ms()
    >>> clock.advance(35_000)
    >>> clock.now_ms() - before >= 35_000
    True
    """

    def __init__(self) -> None:
        self._offset_ms = 0
        self._watchers: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, offset included."""
        return time.time_ns() // 1_000_000 + self._offset_ms

    def advance(self, ms: int) -> None:
        """Jump ahead by `ms` milliseconds, then tell the watchers."""
        assert ms >= 0, "time does not run backwards"
        self._offset_ms += ms
        for watcher in self._watchers:
            watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` after every jump."""
        self._watchers.append(watcher)
