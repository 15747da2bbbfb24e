"""The standard set: every figure that has a bar, measured the same way each time.

Servers to be compared run at the same time and are measured in turn, each directly before the one that keeps nothing.
The varying speed of a machine thus affects all alike.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from benchmarks import inproc
from benchmarks.compare import Comparison, alternate_transfers, measure
from benchmarks.drawings import drawn
from benchmarks.load.measurement import Measurement
from benchmarks.load.workload import Mode, Workload
from benchmarks.measure import ROUNDS
from benchmarks.parts import AtRate, Detail, Found, Part, Row
from benchmarks.record import QUICK as QUICK_NAME
from benchmarks.results.machine import this_machine
from benchmarks.results.plots import BRANCH
from benchmarks.scenarios.catalogue import SCENARIOS
from benchmarks.scenarios.figure import Stage
from benchmarks.servers.postgres import postgres_version
from benchmarks.servers.processes import OWN_NAME, SERVER_NAME
from benchmarks.servers.setups import set_up
from benchmarks.servers.started import Started, bare_server, null_server
from benchmarks.store import results as store_results
from twophase.core.errors import ConfigurationError, TwophaseError

COMMAND: Final = "python -m benchmarks"
BENCH: Final = f"{COMMAND}.load"
THROUGHPUT_BARS: Final = {
    "sqlite": 0.60,
    "postgres": 0.55,
    "postgres, check-back": 0.65,
    "postgres, 2 workers": 0.75,
}
WORKERS_BAR: Final = 1.4
"""The messages of two workers on two processors, in those of one process."""
CPU_BAR: Final = 1.9
"""The server's CPU a message, in null's."""
NULL_BAR: Final = 0.8
"""Null's messages, in those of the bare server: within 1.25 times."""
TRANSFERS_BAR: Final = 0.55
PYTHON_BAR_US: Final = 20.0
A_FLUSH: Final = (10, 100)
"""Messages a flush, with few and with many connections."""
BOTH: Final = ("sqlite", "postgres")


class Effort(msgspec.Struct, frozen=True):
    """The durations and the number of rounds.

    Sizes of 0 and seconds of 0.0 are the scenarios' own. `pairs` is the number of rounds where bars are ratios.
    """

    name: str
    rounds: int
    pairs: int
    seconds: float
    rates: tuple[float, ...]
    live_rows: int
    messages: int
    memory_s: float
    stalled_s: float
    start_rows: int


MEMORY_BAR_S: Final = 1800.0
STALLED_BAR_S: Final = 300.0
QUICK: Final = Effort(QUICK_NAME, 1, 1, 2.0, (250.0, 1000.0), 20_000, 1_000, 10.0, 10.0, 10_000)
FULL: Final = Effort("full", 2, 5, 2.0, (250.0, 500.0, 1000.0, 2000.0), 0, 0, 30.0, 30.0, 0)
"""All parts take less than 25 minutes: many short pairs, not few long ones."""
LONG: Final = Effort("long", 3, 7, 10.0, (250.0, 500.0, 1000.0, 2000.0, 4000.0), 0, 0, MEMORY_BAR_S, STALLED_BAR_S, 0)


def tell(text: str) -> None:
    """Print the progress."""
    print(text, file=sys.stderr, flush=True)


def throughput(effort: Effort) -> Found:
    """Measure saturated throughput, each server before null.

    They are SQLite, PostgreSQL, PostgreSQL with check-back durability, and PostgreSQL with two workers. Null itself is
    measured after the bare server.
    """
    plain = Workload(seconds=effort.seconds)
    with contextlib.ExitStack() as running:
        null = running.enter_context(null_server())
        bare = running.enter_context(bare_server())
        sqlite = running.enter_context(set_up("sqlite"))
        postgres = running.enter_context(set_up("postgres"))
        workers = running.enter_context(set_up("postgres", settings=["workers=2"]))
        subjects = {
            "sqlite": (sqlite, plain),
            "postgres": (postgres, plain),
            "postgres, check-back": (postgres, msgspec.structs.replace(plain, durability="check-back")),
            "postgres, 2 workers": (workers, plain),
        }
        comparisons = {name: Comparison(name, [], []) for name in subjects}
        itself = Comparison("null", [], [], "bare")
        for _ in range(effort.pairs):
            itself.ceilings.append(_told(bare, plain, "bare"))
            itself.runs.append(_told(null, plain, "null"))
            for name, (server, workload) in subjects.items():
                comparisons[name].ceilings.append(_told(null, plain, "null"))
                comparisons[name].runs.append(_told(server, workload, name))
    rows = [row for name, one in comparisons.items() for row in throughput_rows(one, THROUGHPUT_BARS[name])]
    one, two = comparisons["postgres"].runs, comparisons["postgres, 2 workers"].runs
    gains = tuple(more.per_second / less.per_second for more, less in zip(two, one, strict=True))
    rows.append(Row("postgres, 2 workers: messages", "of one process's", gains, WORKERS_BAR, at_least=True))
    rows.append(Row("null: part of the bare server's", "of bare", _ratios(itself), NULL_BAR, at_least=True))
    rows.append(Row("null: CPU of the server, a message", "µs", tuple(map(_server_cpu_us, itself.runs))))
    rows.append(Row("null: the kernel's part of it", "µs", tuple(map(_server_kernel_us, itself.runs))))
    rows.append(_foreign([run for comparison in comparisons.values() for run in comparison.runs + comparison.ceilings]))
    base = f"--rounds {effort.pairs} --seconds {effort.seconds:g}"
    commands = [
        f"{BENCH} --setup sqlite {base}",
        f"{BENCH} --setup postgres {base}",
        f"{BENCH} --setup postgres --durability check-back {base}",
    ]
    return Found(_how(effort.pairs, effort.seconds), rows, list(comparisons.values()), commands=commands)


def throughput_rows(comparison: Comparison, bar: float) -> list[Row]:
    """Return the figures of one server beside null."""
    name = comparison.name
    runs = comparison.runs
    return [
        Row(f"{name}: part of null's", "of null", _ratios(comparison), bar, at_least=True),
        Row(f"{name}: the same, by CPU of all processes", "of null", _cpu_ratios(comparison)),
        Row(f"{name}: CPU of the server", "of null's", _server_cpu_ratios(comparison), CPU_BAR),
        Row(f"{name}: CPU of the server, a message", "µs", tuple(map(_server_cpu_us, runs))),
        Row(f"{name}: the kernel's part of it", "µs", tuple(map(_server_kernel_us, runs))),
        Row(f"{name}: the generator's share of the CPU", "of all", tuple(map(_generators_share, runs))),
        Row(f"{name}: messages", "msg/s", tuple(run.per_second for run in runs)),
        Row(f"{name}: null beside it", "msg/s", tuple(run.per_second for run in comparison.ceilings)),
        Row(f"{name}: lost or too early", "messages", tuple(map(_broken, runs)), 0),
    ]


def _ratios(comparison: Comparison) -> tuple[float, ...]:
    """Return the ratios of messages."""
    pairs = zip(comparison.runs, comparison.ceilings, strict=True)
    return tuple(one.per_second / other.per_second for one, other in pairs)


def _server_cpu_ratios(comparison: Comparison) -> tuple[float, ...]:
    """Return the server's CPU a message in that of the ceiling's server."""
    pairs = zip(comparison.runs, comparison.ceilings, strict=True)
    return tuple(_server_cpu_us(one) / _server_cpu_us(other) for one, other in pairs)


def _server_cpu_us(run: Measurement) -> float:
    """Return the CPU a message of the server's processes, without the database's."""
    return sum(usage.cpu_us_per_message for usage in run.usage if usage.name == SERVER_NAME)


def _server_kernel_us(run: Measurement) -> float:
    """Return the part of the server's CPU a message that the kernel spent."""
    return sum(usage.kernel_us_per_message for usage in run.usage if usage.name == SERVER_NAME)


def _generators_share(run: Measurement) -> float:
    return sum(usage.cpu_us_per_message for usage in run.usage if usage.name == OWN_NAME) / run.cpu_us_per_message


def _cpu_ratios(comparison: Comparison) -> tuple[float, ...]:
    """Return the ratios as if CPU alone were scarce."""
    pairs = zip(comparison.runs, comparison.ceilings, strict=True)
    return tuple(other.cpu_us_per_message / one.cpu_us_per_message for one, other in pairs)


def _foreign(runs: Sequence[Measurement]) -> Row:
    """Return the row of the processors that other programs kept busy."""
    return Row("other programs meanwhile", "processors", tuple(run.foreign_cores for run in runs))


def _broken(run: Measurement) -> float:
    return run.findings.lost + run.findings.early


def _told(server: Started, workload: Workload, name: str) -> Measurement:
    run = measure(server.url, workload, server.processes)
    load = f" at {workload.rate:g} msg/s" if workload.rate else ""
    tell(f"   {name}{load}: {run.per_second:,.0f} msg/s")
    return run


def transfers(effort: Effort) -> Found:
    """Measure whole transfers by the SDK, both databases on one PostgreSQL."""
    workload = Workload(Mode.APP, 32, seconds=effort.seconds)
    with set_up("postgres") as server:
        comparison = alternate_transfers(server, server.business_url, workload, effort.pairs)
    pairs = list(zip(comparison.runs, comparison.ceilings, strict=True))
    what = "whole transfers: part of the business transaction alone"
    ratios = tuple(one.per_second / other.per_second for one, other in pairs)
    rows = [
        Row(what, "of it", ratios, TRANSFERS_BAR, at_least=True),
        Row("whole transfers", "a second", tuple(one.per_second for one, _ in pairs)),
        Row("business transaction alone", "a second", tuple(other.per_second for _, other in pairs)),
        Row("lost or too early", "messages", tuple(_broken(one) for one, _ in pairs), 0),
        _foreign(comparison.runs + comparison.ceilings),
    ]
    command = f"{BENCH} --setup postgres --mode app --rounds {effort.pairs} --seconds {effort.seconds:g}"
    return Found(_how(effort.pairs, effort.seconds), rows, [comparison], commands=[command])


def python(_effort: Effort) -> Found:
    """Measure the Python of a message, and what a store adds to it."""
    figures = inproc.measure()
    found = Found(f"{inproc.ROUNDS} rounds, and {ROUNDS} of each store")
    whole = tuple(sum(phases) for phases in zip(*figures.micros.values(), strict=True))
    found.rows = [Row(f"Python: {phase}", "µs", tuple(micros)) for phase, micros in figures.micros.items()]
    found.rows.append(Row("Python: whole message", "µs", whole, PYTHON_BAR_US))
    found.rows.append(Row("Python: bytecode instructions", "a message", (sum(figures.instructions.values()),)))
    found.rows.append(Row("Python: calls of functions", "a message", (figures.calls,)))
    found.rows += [Row(result.name, "µs", result.micros) for result in store_results(A_FLUSH)]
    found.commands = [f"{COMMAND} inproc --functions", f"{COMMAND} micro store"]
    return found


def rates(effort: Effort) -> Found:
    """Measure latency against rate.

    The commands measure one store each, beside null; the first draws the plot of the page.
    """
    found = Found(f"{_how(effort.rounds, effort.seconds)} at each rate")
    with contextlib.ExitStack() as running:
        servers = [null_server(), set_up("sqlite"), set_up("postgres")]
        started = [running.enter_context(one) for one in servers]
        for server in started * effort.rounds:
            found.by_rate.setdefault(server.name, []).extend(
                _told(server, Workload(connections=64, rate=rate, seconds=effort.seconds), server.name)
                for rate in effort.rates
            )
    asked = " ".join(f"--rate {rate:g}" for rate in effort.rates)
    briefly = "" if effort is FULL else f" ARGS=--{effort.name}"
    base = f"--rounds {effort.rounds} --seconds {effort.seconds:g}"
    found.commands = [f"make bench PARTS=rates{briefly}"] + [
        f"{BENCH} --setup {store} --connections 64 {asked} {base} --plots rates-{store}" for store in BOTH
    ]
    return found


def _how(rounds: int, seconds: float) -> str:
    """Return the number of rounds and the duration, as text for people."""
    return f"{'one round' if rounds == 1 else f'{rounds} rounds'} of {seconds:g} s"


def _played(times: int, seconds: float, bar_s: float) -> str:
    """Return the same of a scenario; `bar_s` is the duration that its bar demands.

    >>> _played(3, 0.0, 0.0), _played(1, 60.0, 1800.0), _played(1, 300.0, 300.0)
    ('played 3 times', 'played once, for 60 s (the bar asks for 1800 s: --long)', 'played once, for 300 s')
    """
    length = f", for {seconds:g} s" if seconds else ""
    short = f" (the bar asks for {bar_s:g} s: --long)" if seconds < bar_s else ""
    return f"played {'once' if times == 1 else f'{times} times'}{length}{short}"


def _scenario(
    name: str,
    stores: Sequence[str],
    *,
    size: Callable[[Effort], int] = lambda _effort: 0,
    seconds: Callable[[Effort], float] = lambda _effort: 0.0,
    paired: bool = False,
    in_turns: bool = False,
    bar_s: float = 0.0,
) -> Callable[[Effort], Found]:
    """Return a part that plays a scenario on each store.

    Arguments:
        paired: as many times as there are pairs: its bar is a ratio.
        in_turns: the scenario itself has the requested rounds, and figures with their spread.
    """

    def part(effort: Effort) -> Found:
        entry = SCENARIOS[name]
        times = effort.pairs if paired else 1
        found = Found(_played(times, seconds(effort), bar_s))
        if in_turns:
            rounds = Stage("", tell, size(effort), seconds(effort)).rounds
            found.how += f", {'one round' if rounds == 1 else f'{rounds} rounds'} of each in turn"
        for store in stores if entry.stores else ("",):
            stage = Stage(store, lambda text: tell(f"   {text}"), size(effort), seconds(effort))
            found.add(store, [entry.play(stage) for _ in range(times)])
            options = [f"--setup {store}"] if store else []
            options += [f"--size {stage.size}"] if stage.size else []
            options += [f"--seconds {stage.seconds:g}"] if stage.seconds else []
            found.commands.append(" ".join([f"{BENCH} --scenario {name}", *options]))
        return found

    return part


PARTS: Final[dict[str, Callable[[Effort], Found]]] = {
    "python": python,
    "throughput": throughput,
    "latency": _scenario("latency", BOTH, seconds=lambda effort: effort.seconds, paired=True),
    "rates": rates,
    "transfers": transfers,
    "grpc": _scenario("grpc", BOTH, seconds=lambda effort: effort.seconds, in_turns=True),
    "rocketmq": _scenario(
        "rocketmq", BOTH, size=lambda effort: effort.messages, seconds=lambda effort: effort.seconds, in_turns=True
    ),
    "crossing": _scenario("crossing", ("postgres",), seconds=lambda effort: effort.seconds, in_turns=True),
    "sdk": _scenario("sdk", (), paired=True),
    "start": _scenario("start", BOTH, size=lambda effort: effort.start_rows),
    "abandoned": _scenario("abandoned", ("postgres",), size=lambda effort: effort.messages),
    "receiver-down": _scenario("receiver-down", ("postgres",), size=lambda effort: effort.messages),
    "filled": _scenario(
        "filled",
        ("postgres",),
        size=lambda effort: effort.live_rows,
        seconds=lambda effort: effort.seconds,
        in_turns=True,
    ),
    "cleaning": _scenario(
        "cleaning",
        BOTH,
        size=lambda effort: effort.live_rows,
        seconds=lambda effort: effort.seconds,
        in_turns=True,
    ),
    "sizes": _scenario("sizes", BOTH, seconds=lambda effort: effort.seconds),
    "memory": _scenario("memory", BOTH, seconds=lambda effort: effort.memory_s, bar_s=MEMORY_BAR_S),
    "checks": _scenario("checks", BOTH, seconds=lambda effort: effort.seconds, in_turns=True),
    "floods": _scenario("floods", BOTH, seconds=lambda effort: min(effort.seconds, FULL.seconds)),
    "stalled": _scenario("stalled", ("postgres",), seconds=lambda effort: effort.stalled_s, bar_s=STALLED_BAR_S),
}


class Measured(msgspec.Struct, frozen=True):
    """One part that was measured, with the plots that go with it."""

    name: str
    part: Part
    drawn: dict[str, str] = {}


def measure_parts(effort: Effort, names: Sequence[str]) -> Iterator[Measured]:
    """Measure the named parts, all by default.

    Each is yielded as soon as it is measured, so that nothing waits for all.

    Raises:
        ConfigurationError: no such part.
    """
    for name in names:
        if name not in PARTS:
            raise ConfigurationError(f"no part {name}: {', '.join(PARTS)}.")
    machine, version, load_before = this_machine(), postgres_version(), os.getloadavg()[0]
    for name in names or PARTS:
        tell(f"== {name}")
        measured, began_s = datetime.now(UTC), time.monotonic()
        found, failure = Found(), ""
        try:
            found = PARTS[name](effort)
        except TwophaseError as error:
            # The results of a quarter of an hour are not lost because one part failed.
            tell(f"   not measured: {error.message}")
            failure = error.message
        took_s = time.monotonic() - began_s
        part = Part(
            f"{measured:%Y-%m-%d %H:%M} UTC", effort.name, found.how, took_s, load_before, machine,
            found.rows, _details(found.comparisons), _at_rates(found.by_rate), found.commands, failure=failure,
            postgres=version,
        )  # fmt: skip
        yield Measured(name, part, drawn(found))


def _details(comparisons: Sequence[Comparison]) -> list[Detail]:
    if not comparisons:
        return []
    columns = [(comparison.name, comparison.runs) for comparison in comparisons]
    columns.append((comparisons[0].ceiling_name, comparisons[0].ceilings))
    return [Detail.of(name, runs) for name, runs in columns]


def _at_rates(by_rate: dict[str, list[Measurement]]) -> list[AtRate]:
    return [AtRate(server, run.workload.rate, run.latency(BRANCH)) for server, runs in by_rate.items() for run in runs]
