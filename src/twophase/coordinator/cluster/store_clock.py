"""The store's time by this machine's clock, for a store that nodes share.

Due times are stored, and the next owner of a message must read them by the same clock; a node whose own clock is an
hour off would ask an hour late, or have another node do so. Keeps I9 there. So the difference is measured at the start
and at every heartbeat, and added; small ones are ignored, because answers take some time to arrive.
"""

from __future__ import annotations

from typing import Final

from twophase.core.hooks import Clock

_TOLERANCE_MS: Final = 500


class StoreClock:
    """A clock that follows the store's.

    Arguments:
        clock: this machine's, or a test's.

    >>> class Stopped:
    ...     def now_ms(self) -> int:
    ...         return 1_000
    >>> clock = StoreClock(Stopped())
    >>> clock.follow(1_400, asked_ms=1_000), clock.now_ms()
    (False, 1000)
    >>> clock.follow(3_601_000, asked_ms=1_000), clock.now_ms()
    (True, 3601000)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = 0

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC, by the store's clock."""
        return self._clock.now_ms() + self._ahead_ms

    def own_ms(self) -> int:
        """Return the same by this machine's clock."""
        return self._clock.now_ms()

    def follow(self, store_ms: int, asked_ms: int) -> bool:
        """Take the store's time; return True when that changes this clock.

        Arguments:
            asked_ms: this machine's time when it was asked.
        """
        answered_ms = self._clock.now_ms()
        ahead_ms = store_ms - (asked_ms + answered_ms) // 2
        if abs(ahead_ms - self._ahead_ms) <= _TOLERANCE_MS + (answered_ms - asked_ms):
            return False
        self._ahead_ms = ahead_ms
        return True
