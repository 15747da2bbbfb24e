"""The results of the standard set.

Each part has the rows of its table, runs for its plots, and the commands that repeat it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from benchmarks.compare import Comparison
from benchmarks.load.measurement import Latency, Measurement, Usage
from benchmarks.results.machine import Machine
from benchmarks.results.report import middle
from benchmarks.scenarios.figure import Figure


class Row(msgspec.Struct, frozen=True):
    """One figure with every measured value, and the bar for the median."""

    what: str
    unit: str
    values: tuple[float, ...]
    bar: float | None = None
    at_least: bool = False

    @property
    def middle(self) -> float:
        """Return the median."""
        return statistics.median(self.values)

    @property
    def reached(self) -> bool | None:
        """Return whether the median reaches the bar; None without one."""
        if self.bar is None:
            return None
        return self.middle >= self.bar if self.at_least else self.middle <= self.bar


class Detail(msgspec.Struct, frozen=True):
    """Latency, CPU and memory of the run with the middle throughput."""

    name: str
    latencies: dict[str, Latency]
    usage: list[Usage]

    @classmethod
    def of(cls, name: str, runs: Sequence[Measurement]) -> Detail:
        """Return the detail of at least one run."""
        run = middle(runs)
        return cls(name, {kind: Latency.of(found) for kind, found in run.histograms.items()}, run.usage)


class AtRate(msgspec.Struct, frozen=True):
    """submit → branch of one server at one rate in one round.

    Without a branch call, `latency` is `None`.
    """

    server: str
    rate: float
    latency: Latency | None


class Found(msgspec.Struct):
    """The results of one part while it is measured."""

    how: str = ""
    """The duration and the number of rounds, as text for people."""
    rows: list[Row] = []
    comparisons: list[Comparison] = []
    by_rate: dict[str, list[Measurement]] = {}
    """By server, the runs at every rate, one for each round."""
    commands: list[str] = []

    def add(self, store: str, plays: Sequence[Sequence[Figure]]) -> None:
        """Add the figures of a scenario, played once or several times."""
        for same in zip(*plays, strict=True):
            first = same[0]
            values = tuple(figure.value for figure in same)
            if len(same) == 1 and first.spread is not None:
                values = (first.spread.low, first.spread.middle, first.spread.high)
            what = f"{store}: {first.what}" if store else first.what
            self.rows.append(Row(what, first.unit, values, first.bar, first.at_least))


class Part(msgspec.Struct, frozen=True):
    """One part, as the record keeps it and the page shows it.

    It has the figures with the time, the manner and the machine of their measurement.
    """

    measured: str
    """The time of its begin: `2026-11-22 01:15 UTC`."""
    effort: str
    how: str
    took_s: float
    load_before: float
    """The load average before the first part of the same run."""
    machine: Machine
    rows: list[Row] = []
    details: list[Detail] = []
    at_rates: list[AtRate] = []
    commands: list[str] = []
    plots: list[str] = []
    """Files beside the record."""
    failure: str = ""
    """The reason of the last failed measurement; all other values are older."""
    instead_of: str = ""
    """The longer measurement that a quick one has replaced."""
    postgres: str = ""
    """The version of PostgreSQL's programs; empty when unknown or not installed."""

    @property
    def has_figures(self) -> bool:
        """Return whether it was ever measured."""
        return self.has_numbers or bool(self.plots)

    @property
    def has_numbers(self) -> bool:
        """Return whether there are numbers besides plots."""
        return bool(self.rows or self.at_rates)
