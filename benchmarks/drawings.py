"""The plots of a part, by the names of their files."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.load.measurement import Measurement
from benchmarks.parts import Found
from benchmarks.results import plots
from benchmarks.results.report import middle


def drawn(found: Found) -> dict[str, str]:
    """Return SVG by file name; nothing for parts without plots."""
    return {**_saturated(found), **_by_rate(found)}


def _saturated(found: Found) -> dict[str, str]:
    comparisons = [comparison for comparison in found.comparisons if comparison.ceiling_name == "null"]
    if not comparisons:
        return {}
    runs = [(comparison.name, middle(comparison.runs)) for comparison in comparisons] + [
        ("null", middle(comparisons[0].ceilings))
    ]
    latencies = [(name, run.histograms[plots.BRANCH]) for name, run in runs if plots.BRANCH in run.histograms]
    return {
        "throughput-over-time.svg": plots.throughput("Throughput at the branch", runs),
        "throughput-latency.svg": plots.distribution("Submit → branch, saturated", latencies),
    }


def _middle_ones(runs: Sequence[Measurement]) -> list[Measurement]:
    """Return the run with the middle p50 of each rate, in the order of the rates."""
    by_rate: dict[float, list[Measurement]] = {}
    for run in runs:
        by_rate.setdefault(run.workload.rate, []).append(run)
    ordered = (sorted(same, key=_p50_ms) for _, same in sorted(by_rate.items()))
    return [same[len(same) // 2] for same in ordered]


def _p50_ms(run: Measurement) -> float:
    latency = run.latency(plots.BRANCH)
    return math.inf if latency is None else latency.p50_ms


def _by_rate(found: Found) -> dict[str, str]:
    if not found.by_rate:
        return {}
    runs_by_rate = [(name, _middle_ones(runs)) for name, runs in found.by_rate.items()]
    rate = runs_by_rate[0][1][0].workload.rate
    slowest = [(name, runs[0].histograms) for name, runs in runs_by_rate]
    lines = [(name, histograms[plots.BRANCH]) for name, histograms in slowest if plots.BRANCH in histograms]
    return {
        "rates-latency.svg": plots.against_rate("Submit → branch, by rate", runs_by_rate),
        "rates-distribution.svg": plots.distribution(f"Submit → branch at {rate:g} messages a second", lines),
    }
