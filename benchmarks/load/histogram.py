"""Latencies counted into buckets.

The memory is constant for any number of samples, and percentiles are exact to 0.1 %. Up to 2 047 µs each microsecond
has its own bucket; above, buckets double in width each time the value doubles, so the error stays below one part in 1
024.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_EXACT_BITS: Final = 11
_STEPS: Final = 1 << (_EXACT_BITS - 1)
_MICROS_MAX: Final = 1 << 36
_BUCKETS: Final = (37 - _EXACT_BITS) * _STEPS + 2 * _STEPS
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)


class Histogram:
    """A counter of latencies in seconds, with percentiles in milliseconds.

    >>> latencies = Histogram()
    >>> for number in range(1, 101):
    ...     latencies.add(number / 1000)
    >>> [round(latencies.percentile_ms(p)) for p in (50, 99, 100)]
    [50, 99, 100]
    """

    __slots__ = ("_counts", "count")

    def __init__(self) -> None:
        self.count = 0
        self._counts = [0] * _BUCKETS

    def add(self, seconds: float) -> None:
        """Count one latency, bounded by 0 and 19 hours."""
        self.count += 1
        micros = int(seconds * 1e6)
        if 0 <= micros < 2 * _STEPS:
            self._counts[micros] += 1
            return
        micros = min(max(micros, 0), _MICROS_MAX)
        shift = max(micros.bit_length() - _EXACT_BITS, 0)
        self._counts[(shift << (_EXACT_BITS - 1)) + (micros >> shift)] += 1

    def clear(self) -> None:
        """Forget all samples."""
        self.count = 0
        self._counts = [0] * _BUCKETS

    def copy(self) -> Histogram:
        """Return a copy of the samples, which later ones do not change."""
        twin = Histogram()
        twin.count = self.count
        twin._counts = self._counts.copy()
        return twin

    def percentile_ms(self, percent: float) -> float:
        """Return the smallest latency that `percent` of all samples do not exceed.

        It is 0 without samples.
        """
        wanted = max(1, -(-self.count * percent // 100))
        seen = 0
        for micros, number in self.buckets():
            seen += number
            if seen >= wanted:
                return micros / 1000
        return 0.0

    def buckets(self) -> Iterator[tuple[int, int]]:
        """Yield each bucket that has samples: its upper bound and their number.

        The bounds are in microseconds, and rise.
        """
        for index, number in enumerate(self._counts):
            if number:
                yield _upper_micros(index), number


def _upper_micros(index: int) -> int:
    if index < 2 * _STEPS:
        return index
    shift = (index >> (_EXACT_BITS - 1)) - 1
    mantissa = index - (shift << (_EXACT_BITS - 1))
    return ((mantissa + 1) << shift) - 1
