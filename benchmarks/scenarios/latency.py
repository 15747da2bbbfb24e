"""Latency at a rate far below saturation: 500 messages a second, open loop.

There it is the time that a user waits. Beside it stand its parts: the same exchanges with a server that keeps nothing,
the time of one flush, the share of the time in which a flush is under way (others wait for its end), and the disk's
time for the smallest sync. The last figure is the latency with `durability = "check-back"`, whose branches wait for no
flush.

The bars are relative, so that they hold on any machine: a message cannot be faster than the same exchanges with nothing
kept and one sync of the disk. p50 may be twice as much, p99 six times.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from benchmarks.compare import measure
from benchmarks.load.measurement import Latency, Measurement
from benchmarks.load.workload import Workload
from benchmarks.scenarios.figure import Figure, Stage, lost_or_early
from benchmarks.scenarios.flushes import flushes
from benchmarks.servers.disk import sync_ms
from benchmarks.servers.setups import store
from benchmarks.servers.started import directory_on_disk, null_server

RATE: Final = 500.0
SECONDS: Final = 10.0
_BARS: Final = (2.0, 6.0)
_CHECK_BACK: Final = "check-back"
_BRANCH: Final = "submit → branch"
_NAMES: Final = ("prepare", "submit", _BRANCH)


def play_latency(stage: Stage) -> list[Figure]:
    """Play the scenario of the module; `size` is the rate."""
    rate, seconds = stage.size or RATE, stage.seconds or SECONDS
    stage.tell(f"{rate:g} msg/s for {seconds:g} s")
    workload = Workload(connections=32, rate=rate, seconds=seconds, warmup_s=stage.warmup_s)
    relaxed_workload = msgspec.structs.replace(workload, durability=_CHECK_BACK)
    with directory_on_disk(stage.directory) as directory, null_server() as null:
        disk_ms = sync_ms(directory)
        floor = measure(null.url, workload, null.processes)
    with store(stage.kind, stage.directory) as made, made.served() as server:
        before, started_s = flushes(server.url), time.monotonic()
        run = measure(server.url, workload, server.processes)
        flushed, taken_s = flushes(server.url) - before, time.monotonic() - started_s
        relaxed = measure(server.url, relaxed_workload, server.processes)
    figures = [figure for name in _NAMES for figure in _percentiles(f"{rate:g} msg/s: {name}", _latency(run, name))]
    least_ms = _latency(floor, _BRANCH).p50_ms + disk_ms
    found = _latency(run, _BRANCH)
    bars: tuple[float | None, ...] = _BARS if rate == RATE else (None, None)
    return [
        *figures,
        *(
            Figure(
                f"{rate:g} msg/s: {_BRANCH}, {name}, beside p50 with nothing kept and one sync",
                value / least_ms,
                "times",
                bar,
            )
            for name, value, bar in zip(("p50", "p99"), (found.p50_ms, found.p99_ms), bars, strict=True)
        ),
        *_percentiles(f"{rate:g} msg/s: {_BRANCH}, check-back durability", _latency(relaxed, _BRANCH)),
        *_percentiles(f"{rate:g} msg/s: {_BRANCH}, of a server that keeps nothing", _latency(floor, _BRANCH)),
        Figure(f"{rate:g} msg/s: one flush, on average", flushed.mean_ms, "ms"),
        Figure(f"{rate:g} msg/s: a flush is under way", flushed.seconds / taken_s, "of the time"),
        Figure("4 KiB appended and on disk", disk_ms, "ms"),
        lost_or_early([run, relaxed]),
    ]


def _latency(run: Measurement, name: str) -> Latency:
    return run.latency(name) or Latency(0, 0.0, 0.0, 0.0, 0.0)


def _percentiles(what: str, found: Latency) -> list[Figure]:
    return [Figure(f"{what}, p50", found.p50_ms, "ms"), Figure(f"{what}, p99", found.p99_ms, "ms")]
