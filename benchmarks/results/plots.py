"""The three plots of a benchmark.

They show throughput over time, the distribution of latency, and latency against rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.compare import Comparison
from benchmarks.load.histogram import Histogram
from benchmarks.load.measurement import Measurement
from benchmarks.results.chart import Axis, Line, chart

_SECOND: Final = Axis("seconds")
_RATE: Final = Axis("messages a second")
_MILLISECONDS: Final = Axis("milliseconds", logarithmic=True)
_SHARES: Final = Axis(
    "percentile",
    logarithmic=True,
    marks=((1, "0"), (2, "50"), (10, "90"), (100, "99"), (1000, "99.9"), (10_000, "99.99")),
)
_POINTS_MAX: Final = 240
_POINT_GAP: Final = 1.02
_SLOWEST_PART: Final = 1e-4
BRANCH: Final = "submit → branch"


def throughput(title: str, runs: Sequence[tuple[str, Measurement]]) -> str:
    """Plot messages a second over the time of each run."""
    return chart(title, _SECOND, _RATE, [Line(name, _series(run)) for name, run in runs])


def distribution(title: str, histograms: Sequence[tuple[str, Histogram]]) -> str:
    """Plot latency by percentile; each further nine takes the same width of the axis."""
    return chart(title, _SHARES, _MILLISECONDS, [Line(name, _percentiles(one)) for name, one in histograms])


def against_rate(title: str, runs: Sequence[tuple[str, Sequence[Measurement]]], latency: str = BRANCH) -> str:
    """Plot p50 and p99 of one latency by the requested rate."""
    lines = []
    for name, measured in runs:
        ordered = sorted(measured, key=lambda run: run.workload.rate)
        found = [(run.workload.rate, run.latency(latency)) for run in ordered]
        lines.append(Line(f"{name} p50", tuple((rate, it.p50_ms) for rate, it in found if it is not None)))
        lines.append(Line(f"{name} p99", tuple((rate, it.p99_ms) for rate, it in found if it is not None)))
    return chart(title, _RATE, _MILLISECONDS, lines)


def write(directory: Path, comparisons: Sequence[Comparison]) -> list[Path]:
    """Write every plot that these comparisons give; return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    runs = [
        *((comparison.name, comparison.runs[-1]) for comparison in comparisons),
        *((comparison.ceiling_name, comparison.ceilings[-1]) for comparison in comparisons[:1] if comparison.ceilings),
    ]
    drawn = {"throughput.svg": throughput("Throughput at the branch", runs)}
    name, last = runs[0]
    drawn["latency.svg"] = distribution(f"Latency, {name}", list(last.histograms.items()))
    rates = {run.workload.rate for comparison in comparisons for run in comparison.runs} - {0}
    if len(rates) > 1:
        by_name: dict[str, list[Measurement]] = {}
        for comparison in comparisons:
            by_name.setdefault(comparison.name, []).extend(comparison.runs)
            if comparison.ceilings:
                by_name.setdefault(comparison.ceiling_name, []).extend(comparison.ceilings)
        drawn["latency-against-rate.svg"] = against_rate("Submit → branch, by rate", list(by_name.items()))
    written = []
    for file, svg in drawn.items():
        path = directory / file
        path.write_text(svg)
        written.append(path)
    return written


def _series(run: Measurement) -> tuple[tuple[float, float], ...]:
    every = max(1, len(run.series) // _POINTS_MAX)
    return tuple((point.at_s, point.per_second) for point in run.series[::every])


def _percentiles(histogram: Histogram) -> tuple[tuple[float, float], ...]:
    """Return points (1 / share of samples that were slower, milliseconds)."""
    points: list[tuple[float, float]] = []
    seen = 0
    for micros, number in histogram.buckets():
        seen += number
        slower = max(1 - seen / histogram.count, 1 / histogram.count, _SLOWEST_PART)
        if not points or 1 / slower > points[-1][0] * _POINT_GAP or seen == histogram.count:
            points.append((1 / slower, micros / 1000))
    return tuple(points)
