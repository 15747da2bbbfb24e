"""A receiver that takes calls and never answers, for minutes: does the server stay within its memory, do others
notice, and is everything delivered when it answers again?
"""

from __future__ import annotations

import asyncio
from typing import Final

from twophase.bench.histogram import Histogram
from twophase.bench.measurement import Measurement
from twophase.bench.processes import Process, memory_bytes
from twophase.bench.run import Run
from twophase.bench.scenarios.figure import Figure, Stage, api, play
from twophase.bench.setups import store
from twophase.bench.started import Started
from twophase.bench.workload import Mode, Workload

SECONDS: Final = 300.0
RATE: Final = 2000.0
_OTHERS_RATE: Final = 200.0
_ALONE_S: Final = 5.0
_AFTER_S: Final = 300.0
_MEMORY_MB: Final = 300.0
_TIMES_SLOWER: Final = 3.0
_OTHERS_BAR_MS: Final = 4.0
_BRANCH: Final = "submit → branch"


def play_stalled(stage: Stage) -> list[Figure]:
    """See the module; `size` is the rate."""
    with store(stage.kind, stage.directory) as made, made.served() as server:
        return play(_stalled(stage, server, stage.size or RATE, stage.seconds or SECONDS))


async def _stalled(stage: Stage, server: Started, rate: float, seconds: float) -> list[Figure]:
    address = api(server.url)
    others = Workload(Mode.SUBMIT, connections=16, rate=_OTHERS_RATE, seconds=_ALONE_S, warmup_s=1.0)
    stage.tell(f"{_OTHERS_RATE:g} msg/s to a receiver that answers, alone")
    before = await Run(address, others).measure(server.processes)
    stage.tell(f"beside it {rate:g} msg/s to one that never answers, for {seconds:g} s")
    hanging = Run(address, Workload(Mode.SUBMIT, rate=rate, seconds=seconds, warmup_s=0.5, drain_s=_AFTER_S))
    hanging.sink.holding = True
    memory = asyncio.ensure_future(_highest_memory_mb(server.processes[0]))
    others = Workload(Mode.SUBMIT, connections=16, rate=_OTHERS_RATE, seconds=seconds, warmup_s=0.5)
    release = asyncio.ensure_future(_release_after(hanging, seconds + 1.0))
    stalled, during = await asyncio.gather(hanging.measure(), Run(address, others).measure())
    memory.cancel()
    highest_mb = (await asyncio.gather(memory, return_exceptions=True))[0]
    await release
    assert isinstance(highest_mb, float), "it ends only by being told to"
    what = f"{rate:g} msg/s to a receiver that never answers, {seconds:g} s"
    slowest_ms = max(_OTHERS_BAR_MS, _TIMES_SLOWER * _p99_ms(before))
    return [
        Figure(f"{what}: highest memory", highest_mb, "MB", _MEMORY_MB),
        Figure("refused meanwhile (503)", sum(stalled.findings.errors.values()), "requests"),
        Figure("others meanwhile, p99 submit → branch", _p99_ms(during), "ms", slowest_ms),
        Figure("others before, p99 submit → branch", _p99_ms(before), "ms"),
        Figure("others lost or refused", during.findings.lost + sum(during.findings.errors.values()), "messages", 0),
        Figure("delivered after it answers again", stalled.findings.delivered, "messages"),
        Figure("until all were", stalled.drained_s, "s"),
        Figure("lost", stalled.findings.lost, "messages", 0),
    ]


def _p99_ms(run: Measurement) -> float:
    return run.histograms.get(_BRANCH, Histogram()).percentile_ms(99)


async def _release_after(run: Run, seconds: float) -> None:
    await asyncio.sleep(seconds)
    # What hangs in its connections by now is never answered: the caller must give it up by itself.
    run.sink.holding = False


async def _highest_memory_mb(process: Process) -> float:
    """Watch a process until cancelled; its highest memory."""
    highest = 0
    try:
        while True:
            highest = max(highest, memory_bytes(process.pid))
            await asyncio.sleep(0.2)
    except asyncio.CancelledError:
        return highest / 1e6
