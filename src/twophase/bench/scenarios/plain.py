"""Messages over gRPC, beside a coordinator that commits once a call: what group commit is worth.

Both keep their messages in a store of the same kind on the same disk, speak the same gRPC and are measured in turn, one
directly after the other.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from twophase.bench.compare import Spread, measure
from twophase.bench.measurement import Measurement
from twophase.bench.scenarios.figure import Figure, Stage
from twophase.bench.setups import store
from twophase.bench.started import Scheme, Started, server
from twophase.bench.workload import Workload

ROUNDS: Final = 3
SECONDS: Final = 5.0
_BAR: Final = 4.0


def play_plain(stage: Stage) -> list[Figure]:
    """See the module; `size` is the number of requests under way at once."""
    workload = Workload(connections=stage.size or Workload().connections, seconds=stage.seconds or SECONDS)
    runs: list[Measurement] = []
    plain: list[Measurement] = []
    with store(stage.kind, stage.directory) as made, store(stage.kind, stage.directory) as other:
        command = [sys.executable, "-m", "twophase.bench.plain", "--store", other.url]
        with made.served(scheme=Scheme.GRPC) as ours, server("plain", command, scheme=Scheme.GRPC) as alone:
            theirs = msgspec.structs.replace(alone, processes=(*alone.processes, *other.processes))
            for number in range(ROUNDS):
                stage.tell(f"round {number + 1} of {ROUNDS}: one commit a call, then ours")
                plain.append(_measured(theirs, workload, stage, "one commit a call"))
                runs.append(_measured(ours, workload, stage, "ours"))
    ratios = [one.per_second / beside.per_second for one, beside in zip(runs, plain, strict=True) if beside.messages]
    return [
        _figure("over gRPC: times as many messages as with one commit a call", ratios, "times", _BAR),
        _figure("over gRPC: messages", [one.per_second for one in runs], "msg/s"),
        _figure("one commit a call: messages", [one.per_second for one in plain], "msg/s"),
        _figure("over gRPC: CPU of all processes", [one.cpu_us_per_message for one in runs], "µs a message"),
        _figure("one commit a call: CPU of all processes", [one.cpu_us_per_message for one in plain], "µs a message"),
        Figure("over gRPC: lost or too early", _broken(runs), "messages", 0),
        # No bar: it has no retry, so one call that is not answered in time is a message that is lost.
        Figure("one commit a call: lost or too early", _broken(plain), "messages"),
    ]


def _measured(started: Started, workload: Workload, stage: Stage, name: str) -> Measurement:
    """One run; what did not go as it should is told at once, and of which server."""
    run = measure(started.url, workload, started.processes)
    found = run.findings
    if not found.kept or found.unanswered or found.errors:
        stage.tell(
            f"{name}: {found.lost} lost, {found.early} too early, {found.duplicates} duplicates, "
            f"{found.unanswered} unanswered after {run.drained_s:.1f} s, errors {found.errors}"
        )
    return run


def _broken(runs: list[Measurement]) -> int:
    return sum(one.findings.lost + one.findings.early for one in runs)


def _figure(what: str, values: list[float], unit: str, bar: float | None = None) -> Figure:
    spread = Spread.of(values or [0.0])
    return Figure(what, spread.middle, unit, bar, at_least=True, spread=spread)
