"""What the standard set found: of each part the rows of its table, runs for its plots, the commands that repeat it."""

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
    """One figure with every value that was measured, and the bar the middle one should reach."""

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


class Detail(msgspec.Struct, frozen=True):
    """Latency, CPU and memory of the run with the middle throughput."""

    name: str
    latencies: dict[str, Latency]
    usage: list[Usage]

    @classmethod
    def of(cls, name: str, runs: Sequence[Measurement]) -> Detail:
        """Of at least one run."""
        run = middle(runs)
        return cls(name, {kind: Latency.of(found) for kind, found in run.histograms.items()}, run.usage)


class AtRate(msgspec.Struct, frozen=True):
    """submit → branch of one server at one rate in one round; None when no branch was called."""

    server: str
    rate: float
    latency: Latency | None


class Found(msgspec.Struct):
    """What one part measures, as it is measured."""

    how: str = ""
    """How long and how often, for people."""
    rows: list[Row] = []
    comparisons: list[Comparison] = []
    by_rate: dict[str, list[Measurement]] = {}
    """By server, the runs at every rate, as many as there were rounds."""
    commands: list[str] = []

    def add(self, store: str, plays: Sequence[Sequence[Figure]]) -> None:
        """The figures of a scenario, played once or several times."""
        for same in zip(*plays, strict=True):
            first = same[0]
            values = tuple(figure.value for figure in same)
            if len(same) == 1 and first.spread is not None:
                values = (first.spread.low, first.spread.middle, first.spread.high)
            what = f"{store}: {first.what}" if store else first.what
            self.rows.append(Row(what, first.unit, values, first.bar, first.at_least))


class Part(msgspec.Struct, frozen=True):
    """One part as the record keeps it and the page shows it: figures, and when, how and on what they were measured."""

    measured: str
    """When it began: `2026-11-22 01:15 UTC`."""
    effort: str
    how: str
    took_s: float
    load_before: float
    """The load average before the first part that was measured with it."""
    machine: Machine
    rows: list[Row] = []
    details: list[Detail] = []
    at_rates: list[AtRate] = []
    commands: list[str] = []
    plots: list[str] = []
    """Files beside the record."""
    failure: str = ""
    """Why it could not be measured, the last time that was tried; what else stands here is older."""
    instead_of: str = ""
    """The longer measurement whose place a quick look has taken."""
    postgres: str = ""
    """The version of PostgreSQL's programs there; empty when they were not noted, or there were none."""

    @property
    def has_figures(self) -> bool:
        """Whether it was ever measured."""
        return self.has_numbers or bool(self.plots)

    @property
    def has_numbers(self) -> bool:
        """Whether there is more than plots."""
        return bool(self.rows or self.at_rates)
