"""Throughput on a full database, beside that on an empty one: nothing may scan."""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from benchmarks.compare import Comparison, Spread, alternate
from benchmarks.load.workload import Workload
from benchmarks.scenarios.figure import Figure, Stage, lost_or_early
from benchmarks.scenarios.seeds import fresh_stores, seed
from benchmarks.servers.setups import Store
from benchmarks.servers.started import Started

LIVE: Final = 1_000_000
HISTORY_FOR_EACH: Final = 5
SECONDS: Final = 5.0
_BAR: Final = 0.85


def play_filled(stage: Stage) -> list[Figure]:
    """Play the scenario of the module.

    `size` is the number of live messages; history has five times as many.
    """
    live = stage.size or LIVE
    with contextlib.ExitStack() as running:
        empty, full = fresh_stores(stage, running)
        stage.tell(f"{live:,} live messages and {live * HISTORY_FOR_EACH:,} in history are put into a store")
        return _figures(live, _compared(stage, running.enter_context(empty.served()), _seeded(full, live, running)))


def _seeded(store: Store, live: int, running: contextlib.ExitStack) -> Started:
    """Yield a server on a full store.

    PostgreSQL is filled while the server runs: the rows belong to its epoch, so that there is nothing to adopt.
    """
    history = live * HISTORY_FOR_EACH
    if store.kind == "postgres":
        server = running.enter_context(store.served())
        seed(store, live, history)
        return server
    with store.served():
        pass  # the start makes the tables
    seed(store, live, history)
    return running.enter_context(store.served())


def _compared(stage: Stage, empty: Started, full: Started) -> Comparison:
    workload = Workload(seconds=stage.seconds or SECONDS, warmup_s=stage.warmup_s)
    tell = stage.tell
    tell(f"{stage.rounds} × {workload.seconds:g} s on each in turn")
    comparison = alternate([full], empty, workload, stage.rounds)[0]
    return msgspec.structs.replace(comparison, name="full", ceiling_name="empty")


def _figures(live: int, comparison: Comparison) -> list[Figure]:
    ratio = comparison.ratio
    assert ratio is not None, "each run has one beside it"
    full, empty = (Spread.of([run.per_second for run in runs]) for runs in (comparison.runs, comparison.ceilings))
    what = f"{live:,} live and {live * HISTORY_FOR_EACH:,} finished messages"
    return [
        Figure("throughput, empty database", empty.middle, "msg/s", spread=empty),
        Figure(f"throughput, {what}", full.middle, "msg/s", spread=full),
        Figure(
            f"throughput, {what}: part of the empty database's",
            ratio.middle,
            "of it",
            _BAR,
            at_least=True,
            spread=ratio,
        ),
        lost_or_early(comparison.runs),
    ]
