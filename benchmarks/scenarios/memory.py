"""Memory of the server: idle, and for a while under saturating load.

Under load it must stay flat.
"""

from __future__ import annotations

import asyncio
import statistics
from typing import Final

from benchmarks.load.run import Run
from benchmarks.load.workload import Workload
from benchmarks.scenarios.figure import Figure, Stage, api, lost_or_early, play
from benchmarks.servers.processes import Process, memory_bytes
from benchmarks.servers.setups import store
from benchmarks.servers.started import Started

SECONDS: Final = 60.0
_IDLE_S: Final = 2.0
_SAMPLE_S: Final = 0.5
_IDLE_BAR_MB: Final = 90.0
_SATURATED_BAR_MB: Final = 300.0
_GROWTH_BAR: Final = 1.1


def play_memory(stage: Stage) -> list[Figure]:
    """Play the scenario of the module."""
    with store(stage.kind, stage.directory) as made, made.served() as server:
        return play(_used(stage, server, stage.seconds or SECONDS))


async def _used(stage: Stage, server: Started, seconds: float) -> list[Figure]:
    process = server.processes[0]
    stage.tell("idle")
    await asyncio.sleep(min(_IDLE_S, seconds))
    idle_mb = memory_bytes(process.pid) / 1e6
    stage.tell(f"saturated for {seconds:g} s")
    samples: list[float] = []
    watching = asyncio.ensure_future(_sample(process, samples))
    run = await Run(api(server.url), Workload(seconds=seconds, warmup_s=stage.warmup_s)).measure(server.processes)
    watching.cancel()
    quarter = max(1, len(samples) // 4)
    earlier, later = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    growth = statistics.mean(later) / statistics.mean(earlier)
    return [
        Figure("memory, idle", idle_mb, "MB", _IDLE_BAR_MB),
        Figure(f"memory, saturated, highest in {seconds:g} s", max(samples), "MB", _SATURATED_BAR_MB),
        Figure("memory, last quarter of that time to the second", growth, "times", _GROWTH_BAR),
        Figure("throughput meanwhile", run.per_second, "msg/s"),
        lost_or_early([run]),
    ]


async def _sample(process: Process, samples: list[float]) -> None:
    while True:
        samples.append(memory_bytes(process.pid) / 1e6)
        await asyncio.sleep(_SAMPLE_S)
