"""The retries of a producer's request to the coordinator."""

from __future__ import annotations

import math
from datetime import timedelta

import msgspec

from twophase.core.errors import ConfigurationError
from twophase.core.spans import as_ms, as_seconds


class RetryPolicy(msgspec.Struct, frozen=True):
    """The bounds within which a client repeats a request that got no answer.

    Repeating is safe: prepare, submit and abort are idempotent.

    >>> RetryPolicy(attempts=2, total=3)
    RetryPolicy(attempts=2, total=3)
    """

    attempts: int = 4
    """Tries of one request, from 1, that get no answer, or only that it is busy.

    A refused or broken connection is not counted: it is tried again until `total` ends, so that a restart of the
    coordinator loses nothing.
    """
    total: float | timedelta = 10.0
    """Seconds for all tries of one request and their pauses."""

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ConfigurationError: one of them is no number above zero, or without an end.
        """
        try:
            bounded = 0 < as_seconds(self.total) < math.inf and self.attempts >= 1
        except TypeError:
            bounded = False
        if not bounded:
            raise ConfigurationError("A RetryPolicy's attempts and total must be numbers above zero.")

    @property
    def total_ms(self) -> int:
        """`total` in whole milliseconds, at least one."""
        return max(1, as_ms(self.total))
