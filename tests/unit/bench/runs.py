"""Measurements as a run would leave them."""

from __future__ import annotations

from benchmarks.load.histogram import Histogram
from benchmarks.load.ledger import Ledger
from benchmarks.load.measurement import Measurement, Point, Usage
from benchmarks.load.workload import Workload
from benchmarks.results.plots import BRANCH


def run(per_second: float, rate: float = 0.0, cpu_us: float = 100.0, slow: int = 1) -> Measurement:
    """Return two seconds at a steady rate, with latencies from 1 µs to 2 ms.

    The latencies are `slow` times as long.
    """
    histogram = Histogram()
    for micros in range(1, 2000):
        histogram.add(micros * slow / 1e6)
    series = [Point(second / 10, per_second) for second in range(1, 30)]
    usage = [Usage("generator + sink", 50.0, 0.5, 30.0), Usage("server", cpu_us, 0.9, 45.0)]
    return Measurement(
        Workload(rate=rate),
        2.0,
        int(per_second * 2),
        {BRANCH: histogram},
        series,
        usage,
        0.0,
        Ledger().findings(),
        foreign_cores=0.25,
    )
