"""Messages over gRPC, compared with two other servers.

One is a coordinator that commits once a call, the other a gRPC server that keeps nothing. The first two keep their
messages in a store of the same kind on the same disk. All three speak the same gRPC, by the same library, and are
measured in turn, one directly after the other. The server that keeps nothing shows the limit of the library: its ratio
is the highest that any coordinator behind it could reach here.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from benchmarks.compare import Spread, measure
from benchmarks.load.measurement import Measurement
from benchmarks.load.workload import Workload
from benchmarks.scenarios.figure import Figure, Stage
from benchmarks.servers.disk import sync_ms
from benchmarks.servers.processes import OWN_NAME
from benchmarks.servers.setups import store
from benchmarks.servers.started import REPOSITORY, Scheme, Started, directory_on_disk, null_server, server

SECONDS: Final = 5.0
_BAR: Final = 4.0
_IMPATIENT_S: Final = 30.0
"""Time after which a message counts as never arriving, where nothing is retried."""
_PLAIN: Final = "one commit a call"
_OURS: Final = "over gRPC"
_NULL: Final = "nothing kept"


def play_plain(stage: Stage) -> list[Figure]:
    """Play the scenario of the module; `size` is the number of concurrent requests."""
    seconds = stage.seconds or SECONDS
    connections = stage.size or Workload().connections
    workload = Workload(connections=connections, seconds=seconds, warmup_s=min(1.0, seconds))
    impatient = msgspec.structs.replace(workload, drain_s=_IMPATIENT_S)
    runs: dict[str, list[Measurement]] = {_PLAIN: [], _OURS: [], _NULL: []}
    disk_ms: list[float] = []
    with store(stage.kind, stage.directory) as made, store(stage.kind, stage.directory) as other:
        command = [sys.executable, "-m", "benchmarks.servers.plain", "--store", other.url]
        with (
            made.served(scheme=Scheme.GRPC) as ours,
            server("plain", command, REPOSITORY, Scheme.GRPC) as alone,
            null_server(Scheme.GRPC) as null,
            directory_on_disk(stage.directory) as directory,
        ):
            theirs = msgspec.structs.replace(alone, processes=(*alone.processes, *other.processes))
            for number in range(stage.rounds):
                stage.tell(f"round {number + 1} of {stage.rounds}: {_PLAIN}, then ours, then nothing kept")
                disk_ms.append(sync_ms(directory))
                runs[_PLAIN].append(_measured(theirs, impatient, stage, _PLAIN))
                runs[_OURS].append(_measured(ours, workload, stage, "ours"))
                runs[_NULL].append(_measured(null, impatient, stage, _NULL))
    return [
        _times(_OURS, runs, _BAR),
        _cheaper(_OURS, runs),
        _times(_NULL, runs),
        _cheaper(_NULL, runs),
        *(_figure(f"{name}: messages", [one.per_second for one in ran], "msg/s") for name, ran in runs.items()),
        *(
            _figure(f"{name}: CPU of all processes", [one.cpu_us_per_message for one in ran], "µs a message")
            for name, ran in runs.items()
        ),
        _figure(
            f"{_OURS}: CPU of {OWN_NAME}", [run.usage[0].cpu_us_per_message for run in runs[_OURS]], "µs a message"
        ),
        _figure("4 KiB written and on disk", disk_ms, "ms"),
        Figure(f"{_OURS}: lost or too early", _broken(runs[_OURS]), "messages", 0),
        # No bar: it has no retry, so a call that is not answered in time is a lost message.
        Figure(f"{_PLAIN}: lost or too early", _broken(runs[_PLAIN]), "messages"),
    ]


def _measured(started: Started, workload: Workload, stage: Stage, name: str) -> Measurement:
    """Run once; report failures at once, with the name of the server."""
    run = measure(started.url, workload, started.processes)
    found = run.findings
    if not found.kept or found.unanswered or found.errors:
        stage.tell(
            f"{name}: {found.lost} lost, {found.early} too early, {found.duplicates} duplicates, "
            f"{found.unanswered} unanswered after {run.drained_s:.1f} s, errors {found.errors}"
        )
    return run


def _broken(runs: list[Measurement]) -> int:
    return sum(run.findings.lost + run.findings.early for run in runs)


def _times(name: str, runs: dict[str, list[Measurement]], bar: float | None = None) -> Figure:
    """Return the ratio of its messages to those with one commit a call."""
    pairs = zip(runs[name], runs[_PLAIN], strict=True)
    ratios = [one.per_second / beside.per_second for one, beside in pairs if beside.messages]
    return _figure(f"{name}: times as many messages as with {_PLAIN}", ratios, "times", bar)


def _cheaper(name: str, runs: dict[str, list[Measurement]]) -> Figure:
    """Return the same ratio as if only CPU were scarce.

    Neither the disk's time nor other programs matter much to it.
    """
    pairs = zip(runs[name], runs[_PLAIN], strict=True)
    ratios = [beside.cpu_us_per_message / one.cpu_us_per_message for one, beside in pairs if one.cpu_us_per_message]
    return _figure(f"{name}: the same, by CPU of all processes", ratios, "times")


def _figure(what: str, values: list[float], unit: str, bar: float | None = None) -> Figure:
    spread = Spread.of(values or [0.0])
    return Figure(what, spread.middle, unit, bar, at_least=True, spread=spread)
