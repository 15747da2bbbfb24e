"""The fate of finished rows in a cleaning, and the history horizon behind them.

Both engines use it. Keeps I10 with correctness rule 15, and lets no request wait for a clock that was wrong once. The
rules:

* The horizon lies behind every row that was removed, behind its birth and its end, and nowhere else: not at the bound
  that the clock gave. It never falls, so under a clock that is ahead it would refuse every new gid until that time has
  come. A gid of twophase's that is not found, and was born behind the horizon, was never here.
* A row whose gid was born at the bound or after it stays until the bound has passed its birth.
* A pass ends at the first row that is younger than the bound, as rows are numbered in the order they end. One that
  ended later than it is now was written under a clock that was ahead, and says nothing of the rows behind it.

A horizon can still lie ahead where rows that ended under a clock that was ahead grew older than the retention under it,
or where a producer's clock was ahead as far.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from twophase.core.gid import born_ms, lowest_gid


class Fate(enum.Enum):
    """The fate of a row that a pass looks at."""

    GOES = enum.auto()
    STAYS = enum.auto()
    """And the pass goes on behind it."""
    ENDS_PASS = enum.auto()
    """It stays, and so does all behind it."""


class Bound:
    """Up to where a step may remove.

    Arguments:
        before_ms: what ended before this is old.
        now_ms: the store's clock; no row that was written under it ended later.

    >>> bound = Bound(before_ms=1_000, now_ms=5_000)
    >>> [bound.fate("order-17", ended_ms).name for ended_ms in (999, 1_000, 5_000, 5_001)]
    ['GOES', 'ENDS_PASS', 'ENDS_PASS', 'STAYS']
    """

    def __init__(self, before_ms: int, now_ms: int) -> None:
        self.before_ms = before_ms
        self._now_ms = now_ms
        self._lowest_kept = lowest_gid(before_ms)

    def fate(self, gid: str, finished_ms: int) -> Fate:
        """Return the fate of a history row."""
        if finished_ms >= self.before_ms:
            return self.fate_of_young(finished_ms)
        goes = gid < self._lowest_kept or born_ms(gid) is None
        return Fate.GOES if goes else Fate.STAYS

    def fate_of_young(self, at_ms: int) -> Fate:
        """Return the fate of a row, or an attempt, that is not older than the bound."""
        return Fate.STAYS if at_ms > self._now_ms else Fate.ENDS_PASS


def horizon_behind(removed: Iterable[tuple[str, int]]) -> int:
    """Return the least horizon that stands for these (gid, finished_ms); 0 for none.

    >>> horizon_behind([("order-17", 900), ("tp01hf7yat000000000000000000", 800)]), horizon_behind([])
    (1700000000001, 0)
    """
    rows = list(removed)
    if not rows:
        return 0
    horizon_ms = max(finished_ms for _, finished_ms in rows) + 1
    lowest = lowest_gid(horizon_ms)
    for gid, _ in rows:
        if gid >= lowest:
            horizon_ms = max(horizon_ms, (born_ms(gid) or 0) + 1)
    return horizon_ms
