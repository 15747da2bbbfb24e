"""Messages that two nodes share: prepared at one, submitted at the other.

With two workers on one port this is so for half of the messages of a client that sends each request on any of its
connections. Beside it the same two nodes, where each message stays at the node of its prepare.
"""

from __future__ import annotations

import contextlib
from typing import Final

from benchmarks.compare import Comparison, Spread
from benchmarks.load.crossing_run import CrossingRun
from benchmarks.load.measurement import Measurement
from benchmarks.load.workload import Workload
from benchmarks.scenarios.figure import Figure, Stage, api, lost_or_early, play
from benchmarks.servers.processes import SERVER_NAME
from benchmarks.servers.setups import store
from twophase.core.errors import ConfigurationError

SECONDS: Final = 5.0
_BAR: Final = 1.1
"""The servers' CPU of a message that crosses, in that of one that stays."""


def play_crossing(stage: Stage) -> list[Figure]:
    """Play the scenario of the module.

    Raises:
        ConfigurationError: the store is one that nodes cannot share.
    """
    if stage.kind != "postgres":
        raise ConfigurationError("--scenario crossing: nodes share a store.", remedy="Choose --setup postgres.")
    workload = Workload(seconds=stage.seconds or SECONDS, warmup_s=stage.warmup_s)
    compared = Comparison("crossing", [], [], "staying")
    with contextlib.ExitStack() as running:
        made = running.enter_context(store(stage.kind, stage.directory))
        one, other = (running.enter_context(made.served()) for _ in range(2))
        nodes = (api(one.url), api(other.url))
        processes = [*one.processes, *(process for process in other.processes if process.name == SERVER_NAME)]
        stage.tell(f"{stage.rounds} × {workload.seconds:g} s, submitted at the other node and at the same")
        for _ in range(stage.rounds):
            for runs, crossing in ((compared.ceilings, False), (compared.runs, True)):
                runs.append(play(CrossingRun(nodes, workload, crossing=crossing).measure(processes)))
    spent = [list(map(_servers_us, runs)) for runs in (compared.runs, compared.ceilings)]
    ratio = Spread.of([more / less for more, less in zip(*spent, strict=True)])
    figures = [
        Figure("CPU of the servers, submitted at the other node", ratio.middle, "of the same's", _BAR, spread=ratio)
    ]
    for name, runs, micros in zip(("the other", "the same"), (compared.runs, compared.ceilings), spent, strict=True):
        each, rates = Spread.of(micros), Spread.of([run.per_second for run in runs])
        figures.append(Figure(f"{name} node: CPU of the servers", each.middle, "µs a message", spread=each))
        figures.append(Figure(f"{name} node: messages", rates.middle, "msg/s", spread=rates))
    return [*figures, lost_or_early([*compared.runs, *compared.ceilings])]


def _servers_us(run: Measurement) -> float:
    return sum(usage.cpu_us_per_message for usage in run.usage if usage.name == SERVER_NAME)
