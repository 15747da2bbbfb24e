"""Transactional messages of RocketMQ's clients, beside two echoes of this machine.

An echo is a server that answers with the request's bytes. One is made of grpcio, Python's gRPC library; the other of
this project's own HTTP/2 code, and is the most transactions that any server behind this code could take here. Both are
measured directly before each run. The second run has a push consumer beside the producers, and counts what arrives.
Then producers are asked about orphans. Start, memory and idle consumers come first, on a server that has done nothing
yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from benchmarks.compare import Spread
from benchmarks.load.histogram import Histogram
from benchmarks.load.measurement import Measurement
from benchmarks.load.rocketmq_idle import idle_consumers
from benchmarks.load.rocketmq_orphans import Orphans
from benchmarks.load.rocketmq_run import GENERATOR, Subject, Transactions
from benchmarks.load.workload import Workload
from benchmarks.scenarios.figure import Figure, Stage, play
from benchmarks.servers.processes import SERVER_NAME, Process, cpu_s, memory_bytes
from benchmarks.servers.setups import Store, store
from benchmarks.servers.started import Started, echo_server
from twophase.http_client.address import Address, parse_address

SECONDS: Final = 5.0
IN_FLIGHT: Final = 32
ORPHANS: Final = 2_000
IDLE_CONSUMERS: Final = 100
DUE_MS: Final = 6_000
"""The delay of the broker's measurement."""
_BRIEF_DUE_MS: Final = 1_000
_IDLE_S: Final = 22.0
"""Every long poll of 20 s ends once in it."""
_SETTLED_S: Final = 2.0
_PATIENCE_S: Final = 60.0
SETTINGS: Final = ("rocketmq_port=0",)
_SCHEME: Final = "rocketmq"

BROKER_PER_SECOND: Final = 1_518
"""Transactions a second of RocketMQ 5.5.0 with a synchronous flush.

docs/benchmarks.md names its machine."""
_TRANSACTIONS_BAR: Final = 2.0 * BROKER_PER_SECOND
_ECHO_BAR: Final = 0.45
_DELIVERED_BAR: Final = 1_860.0
_ORPHANS_BAR_S: Final = 3.0
_MEMORY_BAR_MB: Final = 120.0
_START_BAR_S: Final = 1.5
_IDLE_BAR_CORES: Final = 0.01


class _Runs(msgspec.Struct):
    """The runs of each kind; those of one place followed each other."""

    echoes: list[Measurement] = []
    library_echoes: list[Measurement] = []
    """The echoes of grpcio."""
    committed: list[Measurement] = []
    delivered: list[Measurement] = []
    orphans: list[Orphans] = []


class _Rest(msgspec.Struct):
    """A server without work, several times."""

    started_s: list[float] = []
    memory_mb: list[float] = []
    alone_cores: list[float] = []
    cores: list[float] = []
    with_consumers_mb: list[float] = []


def play_rocketmq(stage: Stage) -> list[Figure]:
    """Play the scenario of the module.

    `size` is the number of orphans, and the greatest number of idle consumers.
    """
    messages = stage.size or ORPHANS
    consumers = min(IDLE_CONSUMERS, messages)
    runs = _Runs()
    with store(stage.kind, stage.directory) as made:
        with made.served(SETTINGS):
            stage.tell("the first start makes the tables")
        rest = _rested(stage, made, consumers)
        with made.served(SETTINGS) as server, echo_server() as echo, echo_server("grpcio_echo") as library_echo:
            for number in range(stage.rounds):
                stage.tell(f"round {number + 1} of {stage.rounds}: echoes, half + commit, with a consumer, orphans")
                _round(stage, server, (echo, library_echo), runs, messages)
    return [
        *_transactions(runs),
        *_deliveries(runs),
        *_orphans(runs.orphans, messages),
        *_idle(rest, consumers),
        *_promises(runs, messages),
    ]


def _rested(stage: Stage, made: Store, consumers: int) -> _Rest:
    """Start the server several times, and look at it while it has nothing to do."""
    found = _Rest()
    for number in range(stage.rounds):
        with made.served(SETTINGS) as server:
            stage.tell(f"round {number + 1} of {stage.rounds}: a server without work")
            found.started_s.append(server.ready_s)
            time.sleep(_SETTLED_S)
            found.memory_mb.append(memory_bytes(server.processes[0].pid) / 1e6)
            if number == stage.rounds - 1:
                play(_watch(stage, server, consumers, found))
    return found


async def _watch(stage: Stage, server: Started, consumers: int, found: _Rest) -> None:
    process = server.processes[0]
    idle_s = min(stage.seconds, _IDLE_S) if stage.rounds == 1 else _IDLE_S
    found.alone_cores.append(await _cores(process, min(idle_s, _SETTLED_S)))
    async with idle_consumers(_address(server), "idle", consumers):
        await asyncio.sleep(min(idle_s, _SETTLED_S))
        found.cores.append(await _cores(process, idle_s))
        found.with_consumers_mb.append(memory_bytes(process.pid) / 1e6)


async def _cores(process: Process, seconds: float) -> float:
    """Return the processors that a process keeps busy."""
    before_s, began_s = cpu_s(process.pid), time.perf_counter()
    await asyncio.sleep(seconds)
    return (cpu_s(process.pid) - before_s) / (time.perf_counter() - began_s)


def _round(stage: Stage, server: Started, echoes: tuple[Started, Started], runs: _Runs, messages: int) -> None:
    seconds = stage.seconds or SECONDS
    workload = Workload(connections=IN_FLIGHT, seconds=seconds, warmup_s=stage.warmup_s)
    address, number = _address(server), len(runs.echoes)
    for echo, measured in zip(echoes, (runs.echoes, runs.library_echoes), strict=True):
        subject = Subject(parse_address(f"http://{echo.address_of('grpc')}"), echo.name, echoes=True)
        measured.append(_measured(stage, subject, workload, echo.processes))
    runs.committed.append(_measured(stage, Subject(address, f"commit-{number}"), workload, server.processes))
    subject = Subject(address, f"deliver-{number}", consumes=True)
    runs.delivered.append(_measured(stage, subject, workload, server.processes))
    due_ms = _BRIEF_DUE_MS if stage.rounds == 1 and seconds < 1 else DUE_MS
    orphans = play(_orphaned(address, f"orphans-{number}", messages, due_ms))
    _tell_errors(stage, orphans.ledger.errors)
    runs.orphans.append(orphans)


async def _orphaned(address: Address, topic: str, messages: int, due_ms: int) -> Orphans:
    orphans = Orphans(address, topic, messages, due_ms)
    await orphans.play(_PATIENCE_S)
    return orphans


def _measured(stage: Stage, subject: Subject, workload: Workload, processes: Sequence[Process]) -> Measurement:
    run = play(Transactions(subject, workload).measure(processes))
    found = run.findings
    stage.tell(f"{subject.topic}: {run.per_second:,.0f} a second, drained in {run.drained_s:.1f} s")
    _tell_errors(stage, found.errors)
    return run


def _tell_errors(stage: Stage, errors: dict[str, int]) -> None:
    for what, number in errors.items():
        stage.tell(f"{number} × {what}")


def _address(server: Started) -> Address:
    return parse_address(f"http://{server.address_of(_SCHEME)}")


def _transactions(runs: _Runs) -> Iterator[Figure]:
    what = "half + commit"
    for name, echoes in (("grpcio's echo", runs.library_echoes), ("our code's echo", runs.echoes)):
        pairs = list(zip(runs.committed, echoes, strict=True))
        ratios = [one.per_second / echo.per_second for one, echo in pairs if echo.messages]
        yield _figure(f"{what}: part of {name}", ratios, "of echo", _ECHO_BAR, at_least=True)
        cheaper = [echo.cpu_us_per_message / one.cpu_us_per_message for one, echo in pairs if one.cpu_us_per_message]
        yield _figure(f"{what}: part of {name}, by CPU of all processes", cheaper, "of echo")
    rates = [run.per_second for run in runs.committed]
    yield _figure(f"{what}, {IN_FLIGHT} in flight, synced", rates, "tx/s", _TRANSACTIONS_BAR, at_least=True)
    yield _figure("grpcio's echo beside it", [run.per_second for run in runs.library_echoes], "tx/s")
    yield _figure("our code's echo beside it", [run.per_second for run in runs.echoes], "tx/s")
    yield from _latencies(f"{what}: SendMessage", runs.committed, "prepare")
    yield from _latencies(f"{what}: EndTransaction", runs.committed, "submit")
    yield _figure(f"{what}: CPU of the server", _cpu_us(runs.committed, SERVER_NAME), "µs a transaction")
    yield _figure(f"{what}: CPU of the generator", _cpu_us(runs.committed, GENERATOR), "µs a transaction")
    for name, echoes in (("grpcio's echo", runs.library_echoes), ("our code's echo", runs.echoes)):
        yield _figure(f"{name}: CPU of the server", _cpu_us(echoes, SERVER_NAME), "µs a transaction")
        yield _figure(f"{name}: CPU of the generator", _cpu_us(echoes, GENERATOR), "µs a transaction")


def _deliveries(runs: _Runs) -> Iterator[Figure]:
    what = "with a push consumer"
    rates = [run.per_second for run in runs.delivered]
    yield _figure(f"{what}: end to end", rates, "tx/s", _DELIVERED_BAR, at_least=True)
    yield from _latencies(f"{what}: EndTransaction → consumer", runs.delivered, "submit → branch")
    yield _figure(f"{what}: CPU of the server", _cpu_us(runs.delivered, SERVER_NAME), "µs a transaction")


def _orphans(played: Sequence[Orphans], messages: int) -> Iterator[Figure]:
    what = f"{messages:,} orphans"
    asked = [_seconds(orphans.asked, 100) for orphans in played]
    yield _figure(f"{what}: asked after due, the last", asked, "s", _ORPHANS_BAR_S)
    half = [_seconds(orphans.ledger.branch, 50) for orphans in played]
    yield _figure(f"{what}: delivered after due, p50", half, "s")
    last = [_seconds(orphans.ledger.branch, 100) for orphans in played]
    yield _figure(f"{what}: delivered after due, the last", last, "s", _ORPHANS_BAR_S)
    yield Figure(f"{what}: asked about more than once", sum(one.repeated for one in played), "questions")


def _idle(rest: _Rest, consumers: int) -> Iterator[Figure]:
    yield _figure("start to ready", rest.started_s, "s", _START_BAR_S)
    yield _figure("memory, idle", rest.memory_mb, "MB", _MEMORY_BAR_MB)
    yield _figure("CPU of the server, idle", rest.alone_cores, "processors")
    what = f"{consumers} idle push consumers"
    yield _figure(f"{what}: CPU of the server", rest.cores, "processors", _IDLE_BAR_CORES)
    yield _figure(f"{what}: memory of the server", rest.with_consumers_mb, "MB")


def _promises(runs: _Runs, messages: int) -> Iterator[Figure]:
    measured = [run.findings for run in (*runs.committed, *runs.delivered)]
    ledgers = [orphans.ledger for orphans in runs.orphans]
    found = [*measured, *(ledger.findings() for ledger in ledgers)]
    yield Figure("committed and not received", sum(one.lost for one in found), "messages", 0)
    yield Figure("received more than once", sum(one.duplicates for one in found), "messages", 0)
    yield Figure("received before the commit", sum(one.early for one in found), "messages", 0)
    yield Figure("received and never sent", sum(one.foreign for one in found), "messages", 0)
    undelivered = sum(messages - ledger.delivered for ledger in ledgers)
    yield Figure(f"orphans not delivered within {_PATIENCE_S:g} s", undelivered, "messages", 0)
    refused = sum(sum(one.errors.values()) + one.unanswered for one in found)
    yield Figure("calls refused or unanswered", refused, "calls", 0)


def _latencies(what: str, runs: Sequence[Measurement], name: str) -> Iterator[Figure]:
    found = [run.histograms[name] for run in runs if name in run.histograms]
    for percent in (50, 99):
        yield _figure(f"{what}, p{percent}", [one.percentile_ms(percent) for one in found], "ms")


def _cpu_us(runs: Sequence[Measurement], name: str) -> list[float]:
    return [sum(used.cpu_us_per_message for used in run.usage if used.name == name) for run in runs]


def _seconds(histogram: Histogram, percent: float) -> float:
    return histogram.percentile_ms(percent) / 1000


def _figure(
    what: str, values: Sequence[float], unit: str, bar: float | None = None, *, at_least: bool = False
) -> Figure:
    spread = Spread.of(values or [0.0])
    return Figure(what, spread.middle, unit, bar, at_least=at_least, spread=spread)
