"""The watcher of a run reports its progress up to the end of the window."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from benchmarks.load import window
from benchmarks.load.ledger import Ledger
from benchmarks.load.workload import Workload
from benchmarks.servers.processes import Meter


async def test_the_last_report_covers_the_whole_time_although_the_last_sleep_ended_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look at the clock takes 110 ms, so the end lies behind the last report."""
    looks = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: next(looks) * 0.11)
    yielding = asyncio.sleep

    async def sleep(_seconds: float) -> Any:
        await yielding(0)

    monkeypatch.setattr("asyncio.sleep", sleep)
    reports: list[float] = []
    workload = Workload(seconds=0.5, warmup_s=0.2)
    watch = window.Watch(workload, Ledger(1), lambda: 0, Meter([]), lambda passed_s, _done: reports.append(passed_s))
    await watch.measure()
    assert max(reports[:-1]) < workload.warmup_s + workload.seconds
    assert reports[-1] == workload.warmup_s + workload.seconds
