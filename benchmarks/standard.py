"""The standard set: every figure that has a bar, measured the same way each time.

Servers to be compared run at the same time and are measured in turn, each directly after the one that keeps nothing,
so that a machine that is now faster, now slower, treats all alike.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from benchmarks.results import Results, Row
from twophase.bench.compare import Comparison, alternate_transfers, measure
from twophase.bench.machine import this_machine
from twophase.bench.measurement import Measurement
from twophase.bench.scenarios.catalogue import SCENARIOS
from twophase.bench.scenarios.figure import Stage
from twophase.bench.setups import set_up
from twophase.bench.started import Started, null_server
from twophase.bench.workload import Mode, Workload
from twophase.core.errors import TwophaseError

BENCH: Final = "twophase bench"
THROUGHPUT_BARS: Final = {"sqlite": 0.45, "postgres": 0.40, "postgres, check-back": 0.50}
TRANSFERS_BAR: Final = 0.60


class Effort(msgspec.Struct, frozen=True):
    """How long and how often. Sizes of 0 and seconds of 0.0 are the scenarios' own."""

    name: str
    rounds: int
    seconds: float
    rates: tuple[float, ...]
    live_rows: int
    messages: int
    memory_s: float
    stalled_s: float
    start_rows: int


QUICK: Final = Effort("quick", 1, 2.0, (250.0, 1000.0), 20_000, 1_000, 10.0, 10.0, 10_000)
FULL: Final = Effort("full", 3, 5.0, (250.0, 500.0, 1000.0, 2000.0), 0, 0, 60.0, 60.0, 0)
LONG: Final = Effort("long", 3, 10.0, (250.0, 500.0, 1000.0, 2000.0, 4000.0), 0, 0, 1800.0, 300.0, 0)


def tell(text: str) -> None:
    """Say how far it is."""
    print(text, file=sys.stderr, flush=True)


def throughput(effort: Effort, results: Results) -> None:
    """Saturated: SQLite, PostgreSQL, PostgreSQL with check-back durability, each after null."""
    plain = Workload(seconds=effort.seconds)
    with contextlib.ExitStack() as running:
        null = running.enter_context(null_server())
        sqlite = running.enter_context(set_up("sqlite"))
        postgres = running.enter_context(set_up("postgres"))
        subjects = {
            "sqlite": (sqlite, plain),
            "postgres": (postgres, plain),
            "postgres, check-back": (postgres, msgspec.structs.replace(plain, durability="check-back")),
        }
        comparisons = {name: Comparison(name, [], []) for name in subjects}
        for _ in range(effort.rounds):
            for name, (server, workload) in subjects.items():
                comparisons[name].ceilings.append(_told(null, plain, "null"))
                comparisons[name].runs.append(_told(server, workload, name))
    for name, comparison in comparisons.items():
        results.rows += throughput_rows(comparison, THROUGHPUT_BARS[name])
    results.rows.append(
        _foreign("throughput", [run for one in comparisons.values() for run in one.runs + one.ceilings])
    )
    results.comparisons += comparisons.values()
    base = f"--rounds {effort.rounds} --seconds {effort.seconds:g}"
    results.commands["throughput"] = [
        f"{BENCH} --setup sqlite {base}",
        f"{BENCH} --setup postgres {base}",
        f"{BENCH} --setup postgres --durability check-back {base}",
    ]


def throughput_rows(comparison: Comparison, bar: float) -> list[Row]:
    """The figures of one server beside null."""
    ratios = [
        one.per_second / other.per_second for one, other in zip(comparison.runs, comparison.ceilings, strict=True)
    ]
    name = comparison.name
    return [
        Row("throughput", f"{name}: part of null's", "of null", tuple(ratios), bar, at_least=True),
        Row("throughput", f"{name}: the same, by CPU of all processes", "of null", _cpu_ratios(comparison)),
        Row("throughput", f"{name}: messages", "msg/s", tuple(run.per_second for run in comparison.runs)),
        Row("throughput", f"{name}: null beside it", "msg/s", tuple(run.per_second for run in comparison.ceilings)),
        Row("throughput", f"{name}: lost or too early", "messages", tuple(map(_broken, comparison.runs)), 0),
    ]


def _cpu_ratios(comparison: Comparison) -> tuple[float, ...]:
    """What the ratio would be if CPU alone were scarce."""
    pairs = zip(comparison.runs, comparison.ceilings, strict=True)
    return tuple(other.cpu_us_per_message / one.cpu_us_per_message for one, other in pairs)


def _foreign(part: str, runs: Sequence[Measurement]) -> Row:
    """How busy other programs kept the machine."""
    return Row(part, "other programs meanwhile", "processors", tuple(run.foreign_cores for run in runs))


def _broken(run: Measurement) -> float:
    return run.findings.lost + run.findings.early


def _told(server: Started, workload: Workload, name: str) -> Measurement:
    run = measure(server.url, workload, server.processes)
    load = f" at {workload.rate:g} msg/s" if workload.rate else ""
    tell(f"   {name}{load}: {run.per_second:,.0f} msg/s")
    return run


def transfers(effort: Effort, results: Results) -> None:
    """Whole transfers by the SDK, coordinator and business on one PostgreSQL."""
    workload = Workload(Mode.APP, 32, seconds=effort.seconds)
    with set_up("postgres") as server:
        comparison = alternate_transfers(server, server.business_url, workload, effort.rounds)
    pairs = list(zip(comparison.runs, comparison.ceilings, strict=True))
    what = "whole transfers: part of the business transaction alone"
    ratios = tuple(one.per_second / other.per_second for one, other in pairs)
    results.rows += [
        Row("transfers", what, "of it", ratios, TRANSFERS_BAR, at_least=True),
        Row("transfers", "whole transfers", "a second", tuple(one.per_second for one, _ in pairs)),
        Row("transfers", "business transaction alone", "a second", tuple(other.per_second for _, other in pairs)),
        Row("transfers", "lost or too early", "messages", tuple(_broken(one) for one, _ in pairs), 0),
        _foreign("transfers", comparison.runs + comparison.ceilings),
    ]
    results.comparisons.append(comparison)
    results.commands["transfers"] = [
        f"{BENCH} --setup postgres --mode app --rounds {effort.rounds} --seconds {effort.seconds:g}"
    ]


def rates(effort: Effort, results: Results) -> None:
    """Latency against rate, for the plot."""
    with contextlib.ExitStack() as running:
        servers = [null_server(), set_up("sqlite"), set_up("postgres")]
        for server in [running.enter_context(one) for one in servers]:
            results.by_rate[server.name] = [
                _told(server, Workload(connections=64, rate=rate, seconds=effort.seconds), server.name)
                for rate in effort.rates
            ]
    asked = " ".join(f"--rate {rate:g}" for rate in effort.rates)
    results.commands["rates"] = [
        f"{BENCH} --setup {store} --connections 64 {asked} --seconds {effort.seconds:g} --plots ."
        for store in ("sqlite", "postgres")
    ]


def _scenario(
    name: str,
    stores: Sequence[str],
    *,
    size: Callable[[Effort], int] = lambda _effort: 0,
    seconds: Callable[[Effort], float] = lambda _effort: 0.0,
    often: bool = True,
) -> Callable[[Effort, Results], None]:
    """A part that plays a scenario on each store, `often`: as many rounds as there are."""

    def part(effort: Effort, results: Results) -> None:
        entry = SCENARIOS[name]
        commands = []
        for store in stores if entry.stores else ("",):
            stage = Stage(store, lambda text: tell(f"   {text}"), size(effort), seconds(effort))
            plays = [entry.play(stage) for _ in range(effort.rounds if often else 1)]
            results.add(name, store, plays)
            options = [f"--setup {store}"] if store else []
            options += [f"--size {stage.size}"] if stage.size else []
            options += [f"--seconds {stage.seconds:g}"] if stage.seconds else []
            commands.append(" ".join([f"{BENCH} --scenario {name}", *options]))
        results.commands[name] = commands

    return part


BOTH: Final = ("sqlite", "postgres")
PARTS: Final[dict[str, Callable[[Effort, Results], None]]] = {
    "throughput": throughput,
    "latency": _scenario("latency", BOTH, seconds=lambda effort: effort.seconds),
    "rates": rates,
    "transfers": transfers,
    "grpc": _scenario("grpc", BOTH, seconds=lambda effort: effort.seconds, often=False),
    "sdk": _scenario("sdk", ()),
    "start": _scenario("start", BOTH, size=lambda effort: effort.start_rows),
    "abandoned": _scenario("abandoned", ("postgres",), size=lambda effort: effort.messages),
    "receiver-down": _scenario("receiver-down", ("postgres",), size=lambda effort: effort.messages),
    "filled": _scenario("filled", ("postgres",), size=lambda effort: effort.live_rows, often=False),
    "memory": _scenario("memory", BOTH, seconds=lambda effort: effort.memory_s, often=False),
    "stalled": _scenario("stalled", ("postgres",), seconds=lambda effort: effort.stalled_s, often=False),
}


def measure_parts(effort: Effort, names: Sequence[str]) -> Results:
    """Measure the named parts, all by default."""
    results = Results(this_machine(), effort.name, os.getloadavg()[0])
    for name in names or PARTS:
        tell(f"== {name}")
        try:
            PARTS[name](effort, results)
        except TwophaseError as error:
            # What takes a quarter of an hour does not go away because one part of it failed.
            tell(f"   not measured: {error.message}")
            results.failures[name] = error.message
    return results
