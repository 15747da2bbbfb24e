"""Latency at a rate far below saturation, where it is what a user waits for: 500 messages a second, open loop.

Beside it what it is made of: the same exchanges with a server that keeps nothing, the time of one flush, the part of
the time a flush is under way (the others wait for its end), and what the disk takes for the least that can be synced.
"""

from __future__ import annotations

import time
from typing import Final

from twophase.bench.compare import measure
from twophase.bench.disk import sync_ms
from twophase.bench.measurement import Latency
from twophase.bench.scenarios.figure import Figure, Stage
from twophase.bench.scenarios.flushes import flushes
from twophase.bench.setups import store
from twophase.bench.started import directory_on_disk, null_server
from twophase.bench.workload import Workload

RATE: Final = 500.0
SECONDS: Final = 10.0
_BARS_MS: Final = {"sqlite": (0.6, 2.0), "postgres": (1.0, 4.0)}
_NAMES: Final = ("prepare", "submit", "submit → branch")


def play_latency(stage: Stage) -> list[Figure]:
    """See the module; `size` is the rate."""
    rate, seconds = stage.size or RATE, stage.seconds or SECONDS
    stage.tell(f"{rate:g} msg/s for {seconds:g} s")
    workload = Workload(connections=32, rate=rate, seconds=seconds, warmup_s=stage.warmup_s)
    with directory_on_disk(stage.directory) as directory, null_server() as null:
        disk_ms = sync_ms(directory)
        floor = measure(null.url, workload, null.processes)
    with store(stage.kind, stage.directory) as made, made.served() as server:
        before, started_s = flushes(server.url), time.monotonic()
        run = measure(server.url, workload, server.processes)
        flushed, taken_s = flushes(server.url) - before, time.monotonic() - started_s
    figures = []
    for name in _NAMES:
        found = run.latency(name) or Latency(0, 0.0, 0.0, 0.0, 0.0)
        p50, p99 = _BARS_MS[stage.kind] if name == _NAMES[-1] and rate == RATE else (None, None)
        figures += [
            Figure(f"{rate:g} msg/s: {name}, p50", found.p50_ms, "ms", p50),
            Figure(f"{rate:g} msg/s: {name}, p99", found.p99_ms, "ms", p99),
        ]
    bare = floor.latency(_NAMES[-1]) or Latency(0, 0.0, 0.0, 0.0, 0.0)
    return [
        *figures,
        Figure(f"{rate:g} msg/s: {_NAMES[-1]}, p50 of a server that keeps nothing", bare.p50_ms, "ms"),
        Figure(f"{rate:g} msg/s: {_NAMES[-1]}, p99 of a server that keeps nothing", bare.p99_ms, "ms"),
        Figure(f"{rate:g} msg/s: one flush, on average", flushed.mean_ms, "ms"),
        Figure(f"{rate:g} msg/s: a flush is under way", flushed.seconds / taken_s, "of the time"),
        Figure("4 KiB appended and on disk", disk_ms, "ms"),
    ]
