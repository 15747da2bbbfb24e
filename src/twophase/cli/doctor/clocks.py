"""Comparison of two machines' clocks.

The barrier's horizon allows for clocks that differ, within a bound.
"""

from __future__ import annotations

from typing import Final

from twophase.barrier.asking import CLOCK_SKEW_MS
from twophase.cli.findings import Finding, Level

_APART_MS: Final = 10_000
_REMEDY: Final = "Let every machine keep its clock by NTP."


def compared(one: str, one_ms: int, other: str, other_ms: int) -> Finding:
    """Return the finding about two clocks that were read at about the same time.

    Times are in milliseconds since 1970.

    >>> compared("its database's", 5_000, "this machine's", 4_000).found
    "its database's clock is 1.0 s ahead of this machine's"
    """
    apart_ms = one_ms - other_ms
    direction = "ahead of" if apart_ms >= 0 else "behind"
    found = f"{one} clock is {abs(apart_ms) / 1000:.1f} s {direction} {other}"
    if abs(apart_ms) >= CLOCK_SKEW_MS:
        return Finding(Level.BAD, "clock", found, _REMEDY)
    if abs(apart_ms) >= _APART_MS:
        return Finding(Level.WARNING, "clock", found, _REMEDY)
    return Finding(Level.OK, "clock", found)
