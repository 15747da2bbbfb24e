"""The backoff between tries: exponential, capped, with jitter, in milliseconds.

Pure: the random number is given.

Keeps I9: the pause never exceeds the cap, so once faults stop everything undecided is asked, and everything
undelivered is called, within one cap. Jitter keeps messages that failed together from coming back together.
"""

from __future__ import annotations

from typing import Final

import msgspec

PAUSE_MS_MAX: Final = 24 * 3600 * 1000
"""The longest pause between two tries, for every message and setting.

So a message that is not due for much longer has never been tried (see `coordinator.maintenance.horizon`).
"""

_DOUBLINGS_MAX = 32
"""The most doublings of a pause; any cap is reached long before.

Without a bound, attempt number 10 000 would compute a number of 10 000 bits.
"""


class Schedule(msgspec.Struct, frozen=True):
    """A backoff.

    It has the first pause, its growth, its cap, and the share of a pause that jitter may take away (0 to 1).
    """

    first_ms: int = 1_000
    factor: int = 2
    cap_ms: int = 60_000
    jitter: float = 0.2

    def __post_init__(self) -> None:
        assert self.first_ms >= 1, "a pause is at least a millisecond"
        assert self.factor >= 1, "a backoff never shrinks"
        assert self.cap_ms >= 1, "the cap is a pause, too"
        assert 0.0 <= self.jitter <= 1.0, "jitter is a share of the pause"

    def starting_at(self, first_ms: int) -> Schedule:
        """Return the same schedule with another first pause; 0 keeps it.

        >>> Schedule().starting_at(5_000).pause_ms(1, 0.0)
        5000
        """
        if first_ms <= 0 or first_ms == self.first_ms:
            return self
        return Schedule(first_ms, self.factor, max(self.cap_ms, first_ms), self.jitter)

    def pause_ms(self, attempt: int, chance: float) -> int:
        """Return the pause after attempt number `attempt`, in milliseconds.

        It is at least 1 ms, and at most the cap and `PAUSE_MS_MAX`.

        Arguments:
            attempt: the number of attempts that have failed, from 1.
            chance: a random number in [0, 1); 0 gives the whole pause, near 1 the shortest.

        >>> [Schedule().pause_ms(n, 0.0) for n in (1, 2, 3, 7, 500)]
        [1000, 2000, 4000, 60000, 60000]
        """
        assert attempt >= 1, "attempts count from 1"
        assert 0.0 <= chance < 1.0, "chance is in [0, 1)"
        growth: int = self.factor ** min(attempt - 1, _DOUBLINGS_MAX)
        pause_ms = min(self.cap_ms, self.first_ms * growth, PAUSE_MS_MAX)
        return max(1, pause_ms - int(pause_ms * self.jitter * chance))


def whole_seconds(duration_ms: int) -> int:
    """Return a span in seconds, as dtm's fields count it.

    It is rounded up, so that a span above zero stays above zero.

    >>> whole_seconds(1), whole_seconds(2_000)
    (1, 2)
    """
    return -(-duration_ms // 1000)


DELIVERY = Schedule()
CHECK_BACK = Schedule()
DEFAULT_TIMEOUT_TO_FAIL_MS = 35_000
DEFAULT_REQUEST_TIMEOUT_MS = 3_000
