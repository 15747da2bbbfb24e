"""The results of a run as plain values, for the report, the plots and JSON."""

from __future__ import annotations

import msgspec

from benchmarks.load.histogram import PERCENTILES, Histogram
from benchmarks.load.ledger import Findings
from benchmarks.load.workload import Workload
from benchmarks.servers.processes import Reading


class Point(msgspec.Struct, frozen=True):
    """Messages a second around one moment of the window."""

    at_s: float
    per_second: float


class Usage(msgspec.Struct, frozen=True):
    """The CPU and memory that one process tree used in the window."""

    name: str
    cpu_us_per_message: float
    cpu_cores: float
    memory_mb: float
    kernel_us_per_message: float = 0.0
    """The part of the CPU that the kernel spent."""

    @classmethod
    def between(cls, before: Reading, after: Reading, messages: int) -> Usage:
        """Return the use between two readings of one process tree."""
        cpu_s = after.cpu_s - before.cpu_s
        return cls(
            after.name,
            cpu_s / messages * 1e6 if messages else 0.0,
            cpu_s / (after.at_s - before.at_s),
            after.memory_bytes / 1e6,
            (after.kernel_s - before.kernel_s) / messages * 1e6 if messages else 0.0,
        )


class Latency(msgspec.Struct, frozen=True):
    """One kind of latency: its count, and its percentiles in milliseconds."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float

    @classmethod
    def of(cls, histogram: Histogram) -> Latency:
        """Return the percentiles of the samples."""
        return cls(histogram.count, *(histogram.percentile_ms(percent) for percent in PERCENTILES))


class Measurement(msgspec.Struct, frozen=True):
    """One run."""

    workload: Workload
    measured_s: float
    messages: int
    histograms: dict[str, Histogram]
    series: list[Point]
    usage: list[Usage]
    drained_s: float
    findings: Findings
    foreign_cores: float = 0.0
    """Processors that other programs kept busy; with many, the run shows little."""

    @property
    def per_second(self) -> float:
        """Return the messages a second at the sink."""
        return self.messages / self.measured_s

    @property
    def cpu_us_per_message(self) -> float:
        """Return the CPU of all accounted processes, with generator and sink."""
        return sum(usage.cpu_us_per_message for usage in self.usage)

    def latency(self, name: str) -> Latency | None:
        """Return one kind of latency; None without samples."""
        histogram = self.histograms.get(name)
        return None if histogram is None else Latency.of(histogram)
