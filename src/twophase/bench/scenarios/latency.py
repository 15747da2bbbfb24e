"""Latency at a rate far below saturation, where it is what a user waits for: 500 messages a second, open loop."""

from __future__ import annotations

from typing import Final

from twophase.bench.compare import measure
from twophase.bench.measurement import Latency
from twophase.bench.scenarios.figure import Figure, Stage
from twophase.bench.setups import store
from twophase.bench.workload import Workload

RATE: Final = 500.0
SECONDS: Final = 10.0
_BARS_MS: Final = {"sqlite": (0.6, 2.0), "postgres": (1.0, 4.0)}
_NAMES: Final = ("prepare", "submit", "submit → branch")


def play_latency(stage: Stage) -> list[Figure]:
    """See the module; `size` is the rate."""
    rate, seconds = stage.size or RATE, stage.seconds or SECONDS
    stage.tell(f"{rate:g} msg/s for {seconds:g} s")
    with store(stage.kind, stage.directory) as made, made.served() as server:
        run = measure(server.url, Workload(connections=32, rate=rate, seconds=seconds), server.processes)
    figures = []
    for name in _NAMES:
        found = run.latency(name) or Latency(0, 0.0, 0.0, 0.0, 0.0)
        p50, p99 = _BARS_MS[stage.kind] if name == _NAMES[-1] and rate == RATE else (None, None)
        figures += [
            Figure(f"{rate:g} msg/s: {name}, p50", found.p50_ms, "ms", p50),
            Figure(f"{rate:g} msg/s: {name}, p99", found.p99_ms, "ms", p99),
        ]
    return figures
