"""What the standard set found: rows for the table, runs for the plots, the commands that repeat them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from twophase.bench.compare import Comparison
from twophase.bench.machine import Machine
from twophase.bench.measurement import Measurement
from twophase.bench.scenarios.figure import Figure


class Row(msgspec.Struct, frozen=True):
    """One figure with every value that was measured, and the bar the middle one should reach."""

    part: str
    what: str
    unit: str
    values: tuple[float, ...]
    bar: float | None = None
    at_least: bool = False

    @property
    def middle(self) -> float:
        """The median."""
        return statistics.median(self.values)

    @property
    def reached(self) -> bool | None:
        """Whether the median reaches the bar; None without one."""
        if self.bar is None:
            return None
        return self.middle >= self.bar if self.at_least else self.middle <= self.bar


class Results(msgspec.Struct):
    """Everything a page is written from."""

    machine: Machine
    effort: str
    load_before: float
    rows: list[Row] = []
    comparisons: list[Comparison] = []
    by_rate: dict[str, list[Measurement]] = {}
    commands: dict[str, list[str]] = {}
    failures: dict[str, str] = {}
    """Parts that could not be measured, and why."""

    def add(self, part: str, store: str, plays: Sequence[Sequence[Figure]]) -> None:
        """The figures of a scenario, played once or several times."""
        for same in zip(*plays, strict=True):
            first = same[0]
            values = tuple(figure.value for figure in same)
            if len(same) == 1 and first.spread is not None:
                values = (first.spread.low, first.spread.middle, first.spread.high)
            what = f"{store}: {first.what}" if store else first.what
            self.rows.append(Row(part, what, first.unit, values, first.bar, first.at_least))
