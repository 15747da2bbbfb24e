"""Throughput while the coordinator removes old history.

It stands beside the throughput with nothing to remove. There are two parts: the pace of a cleaning that ends within its
interval, and that of a cleaning that is behind, which lasts longer and then takes a larger share of the time. The
history is older than the retention, and there is enough of it for all runs.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final

import msgspec

from benchmarks.compare import Comparison, Spread, measure
from benchmarks.failure import BenchmarkFailed
from benchmarks.load.workload import Workload
from benchmarks.scenarios.figure import Figure, Stage
from benchmarks.scenarios.metrics import said
from benchmarks.scenarios.seeds import fresh_stores, seed
from benchmarks.servers.setups import Store
from benchmarks.servers.started import Started

ROWS: Final = 1_000_000
SECONDS: Final = 5.0
_AGE_MS: Final = 36 * 24 * 3600 * 1000
"""One day more than the default retention of history."""
_BAR: Final = 0.85
_REMOVED: Final = 'twophase_rows_removed_total{table="history"}'
_POLL_S: Final = 0.05
_SLACK_S: Final = 5.0
_TIMES_LONGER: Final = 2.0
"""The interval of a cleaning at its ordinary pace, in multiples of a run."""
_BEHIND_MS: Final = 100


class _Pace(msgspec.Struct, frozen=True):
    """The pace of removal.

    It depends on whether a cleaning lasts longer than this interval.
    """

    name: str
    interval_ms: int


class _Removal(msgspec.Struct):
    """The rows removed in all, and those removed while a run was measured.

    `seconds` is the time of the measured runs.
    """

    rows: float = 0.0
    meanwhile: float = 0.0
    seconds: float = 0.0


def play_cleaning(stage: Stage) -> list[Figure]:
    """See the module; `size` is the number of old history rows."""
    rows = stage.size or ROWS
    workload = Workload(seconds=stage.seconds or SECONDS, warmup_s=stage.warmup_s)
    within = _Pace("beside a cleaning", int(_TIMES_LONGER * (workload.warmup_s + workload.seconds) * 1000))
    behind = _Pace("beside a cleaning that is behind", _BEHIND_MS)
    with contextlib.ExitStack() as running:
        clean, old = fresh_stores(stage, running)
        with old.served():
            pass  # the start makes the tables
        stage.tell(f"{rows:,} rows of history that are too old are put into a store")
        seed(old, history=rows, ended_ago_ms=_AGE_MS)
        figures, left = [], float(rows)
        for pace in (within, behind):
            comparison, removal = _compared(stage, pace, (clean, old), workload)
            left -= removal.rows
            figures += _figures(pace, comparison, removal)
    return [*figures, Figure("rows still to be removed at the end", left, "rows", 1, at_least=True)]


def _compared(
    stage: Stage, pace: _Pace, stores: tuple[Store, Store], workload: Workload
) -> tuple[Comparison, _Removal]:
    """Run both in turn.

    Each run has a server started for it: an idle server would remove history, too.
    """
    clean, old = stores
    settings = (f"retention_interval_ms={pace.interval_ms}",)
    comparison, removal = Comparison(pace.name, [], [], "nothing to remove"), _Removal()
    stage.tell(f"{pace.name}: {stage.rounds} × {workload.seconds:g} s, each beside a server with nothing to remove")
    for _ in range(stage.rounds):
        with clean.served(settings) as server:
            comparison.ceilings.append(measure(server.url, workload, server.processes))
        with old.served(settings) as server:
            before, started_s = _begun(server, pace), time.monotonic()
            comparison.runs.append(measure(server.url, workload, server.processes))
            removal.seconds += time.monotonic() - started_s
            after = said(server.url)[_REMOVED]
            removal.rows += after
            removal.meanwhile += after - before
    return comparison, removal


def _begun(server: Started, pace: _Pace) -> float:
    """Wait for the first cleaning; return the rows removed by then.

    It begins some time in the first interval.
    """
    ends_s = time.monotonic() + pace.interval_ms / 1000 + _SLACK_S
    while not (removed := said(server.url)[_REMOVED]):
        if time.monotonic() > ends_s:
            raise BenchmarkFailed("nothing is removed: there are too few rows for so long a run", remedy="")
        time.sleep(_POLL_S)
    return removed


def _figures(pace: _Pace, comparison: Comparison, removal: _Removal) -> list[Figure]:
    ratio = comparison.ratio
    assert ratio is not None, "each run has one beside it"
    runs, ceilings = (Spread.of([run.per_second for run in one]) for one in (comparison.runs, comparison.ceilings))
    ended = sum(run.findings.delivered for run in comparison.runs)
    lost = sum(run.findings.lost for run in comparison.runs)
    what = f"throughput {pace.name}"
    return [
        Figure(
            f"{what}: part of that with nothing to remove", ratio.middle, "of it", _BAR, at_least=True, spread=ratio
        ),
        Figure(what, runs.middle, "msg/s", spread=runs),
        Figure(f"{what}: with nothing to remove", ceilings.middle, "msg/s", spread=ceilings),
        Figure(f"{what}: removed", removal.meanwhile / removal.seconds, "rows/s"),
        Figure(f"{what}: removed for each message that ended", removal.meanwhile / max(1, ended), "rows"),
        Figure(f"{what}: lost", lost, "messages", 0),
    ]
