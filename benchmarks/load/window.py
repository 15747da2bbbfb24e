"""The measured window: after the warm-up, before the drain, sampled meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from benchmarks.failure import BenchmarkFailed
from benchmarks.load.ledger import Ledger
from benchmarks.load.measurement import Measurement, Point, Usage
from benchmarks.load.workload import Workload
from benchmarks.servers.processes import Meter, machine_cpu_s

_SAMPLE_S: Final = 0.1
_POLL_S: Final = 0.005
_DUPLICATES_S: Final = 0.1
_FAILURES_MAX: Final = 3
"""Failures for each connection, without one success, after which a run is ended."""

OnProgress = Callable[[float, int], None]
"""Called with the passed seconds and the messages done.

The seconds are those of warm-up and window together."""


def silent(_passed_s: float, _done: int) -> None:
    """Ignore the progress."""


@contextlib.contextmanager
def steady() -> Iterator[None]:
    """Run the block without the garbage collector.

    A collection would be counted as the server's latency.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Window(msgspec.Struct, frozen=True):
    """The readings of the window."""

    measured_s: float
    messages: int
    series: list[Point]
    usage: list[Usage]
    foreign_cores: float

    def measurement(self, workload: Workload, ledger: Ledger, drained_s: float) -> Measurement:
        """Return the whole run, with the current account and latencies.

        Call it after the drain; earlier, the slowest messages are missing.
        """
        return Measurement(
            workload,
            self.measured_s,
            self.messages,
            ledger.latencies(),
            self.series,
            self.usage,
            drained_s,
            ledger.findings(),
            self.foreign_cores,
        )


class Watch:
    """The watcher of one run.

    Arguments:
        workload: the durations of warm-up and measurement.
        ledger: counts latencies and failures.
        done: returns the number of messages whose measured work is complete.
        meter: reads CPU and memory.
        on_progress: called about ten times a second, and with the whole time at the end.
        waiting: returns the number of messages that are due and not begun.
    """

    def __init__(
        self,
        workload: Workload,
        ledger: Ledger,
        done: Callable[[], int],
        meter: Meter,
        on_progress: OnProgress = silent,
        waiting: Callable[[], int] = lambda: 0,
    ) -> None:
        self._workload = workload
        self._ledger = ledger
        self._done = done
        self._meter = meter
        self._on_progress = on_progress
        self._waiting = waiting

    async def measure(self) -> Window:
        """Let the warm-up pass, then measure.

        Raises:
            BenchmarkFailed: every request fails.
        """
        workload = self._workload
        await self._pass(0.0, workload.warmup_s)
        self._ledger.warmed_up(self._waiting())
        machine_s = machine_cpu_s()
        before, done, started_s = self._meter.read(), self._done(), time.perf_counter()
        series = await self._pass(workload.warmup_s, workload.seconds)
        # A sleep may end a moment early, so the last report of `_pass` may lie before the end.
        self._on_progress(workload.warmup_s + workload.seconds, self._done())
        messages, measured_s = self._done() - done, time.perf_counter() - started_s
        after = self._meter.read()
        usage = [Usage.between(one, other, messages) for one, other in zip(before, after, strict=True)]
        foreign_cores = (machine_cpu_s() - machine_s) / measured_s - sum(one.cpu_cores for one in usage)
        return Window(measured_s, messages, series, usage, max(0.0, foreign_cores))

    async def _pass(self, passed_s: float, seconds: float) -> list[Point]:
        """Let `seconds` pass; return the throughput of each sample."""
        started_s = last_s = time.perf_counter()
        done = self._done()
        series: list[Point] = []
        while (left_s := started_s + seconds - time.perf_counter()) > 0:
            await asyncio.sleep(min(_SAMPLE_S, left_s))
            now_s = time.perf_counter()
            if now_s - last_s >= _SAMPLE_S / 2:
                series.append(Point(now_s - started_s, (self._done() - done) / (now_s - last_s)))
                last_s, done = now_s, self._done()
            self._on_progress(passed_s + now_s - started_s, self._done())
            errors = self._ledger.errors
            if not self._ledger.succeeded and errors.total() > _FAILURES_MAX * self._workload.connections:
                raise BenchmarkFailed(f"every request fails: {errors.most_common(1)[0][0]}")
        return series


async def drained(
    ledger: Ledger, under_way: Callable[[], int], within_s: float, due: deque[float] | None = None
) -> float:
    """Wait until every request is answered, then until all messages have arrived.

    The second wait is for acknowledged messages. It returns the seconds that both waits took. Each may take `within_s`:
    the message that was acknowledged last has as long to arrive as any other. A message that has not arrived when the
    time is up is lost. The wait is a little longer, for duplicates.

    Arguments:
        ledger: the account.
        under_way: returns the number of requests under way.
        within_s: seconds.
        due: of an open loop, the messages that wait for a connection: a producer that is answered begins one of these.
            Those that are left when the time is up are removed, and accounted as not begun.
    """
    started_s = time.perf_counter()
    ends_s = started_s + within_s
    while (under_way() or due) and time.perf_counter() < ends_s:
        await asyncio.sleep(_POLL_S)
    ledger.unanswered = under_way()
    if due:
        ledger.not_begun = len(due)
        due.clear()
    ends_s = time.perf_counter() + within_s
    while ledger.owed and time.perf_counter() < ends_s:
        await asyncio.sleep(_POLL_S)
    drained_s = time.perf_counter() - started_s
    await asyncio.sleep(_DUPLICATES_S)
    return drained_s
