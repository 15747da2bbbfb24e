"""What a server says of its flushes: how many there were, and how long they took together."""

from __future__ import annotations

from typing import Final

import msgspec

from benchmarks.scenarios.metrics import said

_COUNT: Final = "twophase_flush_seconds_count"
_SUM: Final = "twophase_flush_seconds_sum"


class Flushes(msgspec.Struct, frozen=True):
    """Since the server's start, or between two looks."""

    count: float
    seconds: float

    def __sub__(self, earlier: Flushes) -> Flushes:
        """What came between two looks.

        >>> Flushes(30, 0.5) - Flushes(10, 0.25)
        Flushes(count=20, seconds=0.25)
        """
        return Flushes(self.count - earlier.count, self.seconds - earlier.seconds)

    @property
    def mean_ms(self) -> float:
        """Milliseconds one took; 0 without any.

        >>> Flushes(20, 0.25).mean_ms, Flushes(0, 0).mean_ms
        (12.5, 0.0)
        """
        return self.seconds / self.count * 1000 if self.count else 0.0


def flushes(server_url: str) -> Flushes:
    """A look at a server's metrics.

    Arguments:
        server_url: `http://host:port`.

    Raises:
        OSError: it does not answer.
    """
    samples = said(server_url)
    return Flushes(samples[_COUNT], samples[_SUM])
