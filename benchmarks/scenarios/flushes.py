"""The flushes of a server, from its metrics: their number and their total time."""

from __future__ import annotations

from typing import Final

import msgspec

from benchmarks.scenarios.metrics import said

_COUNT: Final = "twophase_flush_seconds_count"
_SUM: Final = "twophase_flush_seconds_sum"


class Flushes(msgspec.Struct, frozen=True):
    """The flushes since the server's start, or between two readings."""

    count: float
    seconds: float

    def __sub__(self, earlier: Flushes) -> Flushes:
        """Return the flushes between two readings.

        >>> Flushes(30, 0.5) - Flushes(10, 0.25)
        Flushes(count=20, seconds=0.25)
        """
        return Flushes(self.count - earlier.count, self.seconds - earlier.seconds)

    @property
    def mean_ms(self) -> float:
        """Return the mean time of a flush in milliseconds; 0 without flushes.

        >>> Flushes(20, 0.25).mean_ms, Flushes(0, 0).mean_ms
        (12.5, 0.0)
        """
        return self.seconds / self.count * 1000 if self.count else 0.0


def flushes(server_url: str) -> Flushes:
    """Read the flushes from a server's metrics.

    Arguments:
        server_url: `http://host:port`.

    Raises:
        OSError: it does not answer.
    """
    samples = said(server_url)
    return Flushes(samples[_COUNT], samples[_SUM])
