"""A receiver that takes calls and does not answer for minutes.

The server must stay within its memory, other receivers must not notice, and everything must be delivered when the
receiver answers again. The other receiver refuses one message in twenty once: their retries must not starve, either.
It is measured alone, beside as many messages that are answered (the effect of the load), and beside those that are not
(the effect of hanging).
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from benchmarks.load.histogram import Histogram
from benchmarks.load.measurement import Measurement
from benchmarks.load.run import Run
from benchmarks.load.workload import Mode, Workload
from benchmarks.scenarios.figure import Figure, Stage, api, play
from benchmarks.scenarios.retried import EVERY, RetriedRun
from benchmarks.servers.processes import highest_memory_mb
from benchmarks.servers.setups import store
from benchmarks.servers.started import Started
from twophase.core.schedule import Schedule

SECONDS: Final = 300.0
RATE: Final = 2000.0
_OTHERS_RATE: Final = 200.0
_OTHERS_CONNECTIONS: Final = 64
_ALONE_S: Final = 5.0
_AFTER_S: Final = 300.0
_MEMORY_MB: Final = 300.0
_TIMES_SLOWER: Final = 3.0
_OTHERS_BAR_MS: Final = 4.0
_BRANCH: Final = "submit → branch"
_CALL_S: Final = 3.0
_PAUSE_S: Final = Schedule().first_ms / 1000
_RETRIED_LATE_S: Final = 1.0
"""The bar for a retry beyond its pause, which jitter only shortens."""


class _Length(msgspec.Struct, frozen=True):
    """The durations of the scenario.

    A run shorter than a call or a pause of the server's shortens these, too.
    """

    seconds: float

    @property
    def warmup_s(self) -> float:
        return min(0.5, self.seconds)

    @property
    def pause_s(self) -> float:
        return min(_PAUSE_S, self.seconds)

    def settings(self) -> tuple[str, ...]:
        """Return the server's settings; empty for a run of ordinary length."""
        if self.seconds >= _CALL_S:
            return ()
        return (f"request_timeout_ms={int(self.seconds * 1000)}", f"retry_first_ms={int(self.pause_s * 1000)}")


def play_stalled(stage: Stage) -> list[Figure]:
    """Play the scenario of the module; `size` is the rate."""
    length = _Length(stage.seconds or SECONDS)
    with store(stage.kind, stage.directory) as made, made.served(length.settings()) as server:
        return play(_stalled(stage, server, stage.size or RATE, length))


async def _stalled(stage: Stage, server: Started, rate: float, length: _Length) -> list[Figure]:
    address, seconds, warmup_s = api(server.url), length.seconds, length.warmup_s
    others = Workload(Mode.PAIR, _OTHERS_CONNECTIONS, _OTHERS_RATE, min(_ALONE_S, seconds), 2 * warmup_s)
    stage.tell(f"{_OTHERS_RATE:g} msg/s to a receiver that answers, alone")
    alone = RetriedRun(address, others)
    before = await alone.measure(server.processes)
    load = Workload(Mode.SUBMIT, rate=rate, seconds=others.seconds, warmup_s=warmup_s, drain_s=_AFTER_S)
    stage.tell(f"beside it {rate:g} msg/s to one that answers, too")
    busy = RetriedRun(address, others)
    _, loaded = await asyncio.gather(Run(address, load).measure(), busy.measure())
    stage.tell(f"beside it {rate:g} msg/s to one that never answers, for {seconds:g} s")
    hanging = Run(address, msgspec.structs.replace(load, seconds=seconds))
    hanging.sink.holding = True
    memory = asyncio.ensure_future(highest_memory_mb(server.processes[0]))
    beside = RetriedRun(address, msgspec.structs.replace(others, seconds=seconds, warmup_s=warmup_s))
    release = asyncio.ensure_future(_release_after(hanging, seconds + 2 * warmup_s))
    stalled, during = await asyncio.gather(hanging.measure(), beside.measure())
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
        Figure("others beside as many that are answered, p99 submit → branch", _p99_ms(loaded), "ms"),
        *_retries(length, during=beside.retried.retries, before=alone.retried.retries),
        Figure("others lost or refused", during.findings.lost + sum(during.findings.errors.values()), "messages", 0),
        Figure("delivered after it answers again", stalled.findings.delivered, "messages"),
        Figure("until all were", stalled.drained_s, "s"),
        Figure("lost", stalled.findings.lost, "messages", 0),
    ]


def _retries(length: _Length, *, during: Histogram, before: Histogram) -> list[Figure]:
    """Return the figures of retries, from the first call to the second.

    They are of the messages that the other receiver refused once.
    """
    what = f"the other receiver's retries (one message in {EVERY}): p99 after the first call"
    return [
        Figure(what, during.percentile_ms(99) / 1000, "s", length.pause_s + _RETRIED_LATE_S),
        Figure("the same before", before.percentile_ms(99) / 1000, "s"),
        Figure("the other receiver's retries", during.count, "calls", 1, at_least=True),
    ]


def _p99_ms(run: Measurement) -> float:
    return run.histograms.get(_BRANCH, Histogram()).percentile_ms(99)


async def _release_after(run: Run, seconds: float) -> None:
    await asyncio.sleep(seconds)
    # The calls that hang in its connections by now are never answered: the caller must give them up itself.
    run.sink.holding = False
