"""`python -m benchmarks.load`: measure a server of the dtm wire.

Promise: only arrivals at the branch are counted. Every message is accounted for (lost, duplicate, called too early).
Latency counts from the intended moment of the request. The same work against a server that keeps nothing shows the
ceiling of this machine.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, NoReturn

import msgspec
import typer
from rich.console import Console

from benchmarks.compare import Comparison, alternate, alternate_transfers
from benchmarks.load.workload import Mode, Workload
from benchmarks.results import plots, report
from benchmarks.results.machine import this_machine
from benchmarks.results.progress import shown
from benchmarks.scenarios.catalogue import SCENARIOS
from benchmarks.scenarios.figure import Stage
from benchmarks.servers import started
from benchmarks.servers.postgres import postgres
from benchmarks.servers.processes import Process, connected_to, listening
from benchmarks.servers.setups import BUSINESS_DATABASE, SETUPS, set_up
from twophase.cli.console import plain_console
from twophase.cli.error_text import error_text
from twophase.core.errors import ConfigurationError, TwophaseError
from twophase.http_client.address import parse_address
from twophase.http_client.outcome import HttpError

app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
EXIT_FAILED: Final = 1
EXIT_BROKEN_PROMISE: Final = 4
_CONNECTIONS: Final = 128
_TRANSFERS: Final = 32

_EXAMPLES: Final = """\b
Examples:
  python -m benchmarks.load --setup sqlite                     starts a server, measures it, removes it
  python -m benchmarks.load --server http://127.0.0.1:36789    measures a server that runs
  python -m benchmarks.load --null                             the ceiling of this machine alone
  python -m benchmarks.load --setup sqlite --protocol grpc     prepare and submit over gRPC
  python -m benchmarks.load --setup sqlite --rate 500          latency at 500 messages a second
  python -m benchmarks.load --setup sqlite --rate 250 --rate 1000 --rate 4000 --plots .
  python -m benchmarks.load --setup postgres --durability check-back --rounds 3 --json result.json
  python -m benchmarks.load --setup postgres --mode app        whole transfers by the SDK
  python -m benchmarks.load --scenario list
  python -m benchmarks.load --scenario filled --setup postgres --size 100000

Exit codes: 0 measured, 1 nothing could be measured, 4 a message was lost or
called too early, or a scenario's figure with the bar 0 was not 0."""

_LIST: Final = "list"
_OF_EVERY_SCENARIO: Final = frozenset({"scenario", "json"})
_OF_SCENARIOS_ALONE: Final = frozenset({"size"})
_OF_APP_ALONE: Final = frozenset({"database"})
_NOT_OF_APP: Final = frozenset({"rate", "payload", "branches", "beside_null"})
"""The options that a transfer refuses.

It has one branch with the least payload. As many as possible run at a time, beside the transaction alone."""


class _Subject(msgspec.Struct, frozen=True):
    """The subject of the measurement, as the command line names it."""

    server: str | None
    setup: str | None
    null: bool
    beside_null: bool
    directory: Path | None
    database: str | None
    protocol: started.Scheme

    @property
    def scheme(self) -> started.Scheme:
        """Return its protocol: that of the URL, if there is one."""
        if not self.server:
            return self.protocol
        over_grpc = self.server.startswith(f"{started.Scheme.GRPC}://")
        return started.Scheme.GRPC if over_grpc else started.Scheme.HTTP

    def check(self, mode: Mode) -> None:
        """Raise ConfigurationError unless exactly one is named and can be measured so."""
        if [bool(self.server), bool(self.setup), self.null].count(True) != 1:
            remedy = f"Give one of --server URL, --setup {'|'.join(SETUPS)}, --null."
            raise ConfigurationError("bench: what is to be measured?", remedy=remedy)
        if self.protocol is started.Scheme.GRPC and self.server and self.scheme is not self.protocol:
            raise ConfigurationError(f"--server {self.server}: no gRPC port.", remedy="Write grpc://host:port.")
        if mode is Mode.APP and self.scheme is started.Scheme.GRPC:
            raise ConfigurationError("--mode app: over HTTP only.", remedy="Leave --protocol away.")


@app.command(epilog=_EXAMPLES)
def bench(
    context: typer.Context,
    server: Annotated[str | None, typer.Option(help="A running server that speaks dtm's HTTP or gRPC API.")] = None,
    setup: Annotated[str | None, typer.Option(help=f"Start a server on {' or '.join(SETUPS)} to measure.")] = None,
    mode: Annotated[Mode, typer.Option(help="What is sent for each message.")] = Mode.PAIR,
    connections: Annotated[
        int | None,
        typer.Option(help=f"Connections that produce ({_CONNECTIONS}), or transfers at a time ({_TRANSFERS})."),
    ] = None,
    rate: Annotated[
        list[float] | None, typer.Option(help="Messages a second, open loop; if repeated, one run for each.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds measured, after the warm-up.")] = 5,
    warmup: Annotated[float, typer.Option(help="Seconds of warm-up.")] = 1,
    payload: Annotated[int, typer.Option(help="Bytes of each branch's payload.")] = 28,
    branches: Annotated[int, typer.Option(help="Branches of each message.")] = 1,
    durability: Annotated[str, typer.Option(help="submit or check-back; the server's default when empty.")] = "",
    scenario: Annotated[str | None, typer.Option(help="Play a scenario instead; `list` names them.")] = None,
    size: Annotated[int, typer.Option(help="Messages or rows of a scenario; 0: its default.")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 1,
    protocol: Annotated[
        started.Scheme, typer.Option(help="How prepare and submit are sent; branches are called over HTTP.")
    ] = started.Scheme.HTTP,
    database: Annotated[
        str | None, typer.Option(help="--mode app: PostgreSQL URL; without it, one is started.")
    ] = None,
    directory: Annotated[Path | None, typer.Option(help="Where --setup keeps its data while it runs.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all results to this file.")] = None,
    plots_to: Annotated[Path | None, typer.Option("--plots", help="Write plots (SVG) into this directory.")] = None,
    *,
    null: Annotated[bool, typer.Option("--null", help="Measure only the server that keeps nothing.")] = False,
    beside_null: Annotated[
        bool, typer.Option("--ratio/--no-ratio", help="Repeat each run against the server that keeps nothing.")
    ] = True,
) -> None:
    """Measure a server of dtm's HTTP or gRPC API.

    The figures are throughput at the branch, latencies, CPU, memory and lost messages. Every run stands beside the same
    run against a server that keeps nothing: the ceiling of this machine. With --mode app it stands beside the business
    transaction alone.
    """
    console = plain_console()
    signal.signal(signal.SIGTERM, _end)
    with _exit_on_error():
        _check_given(context, mode, scenario)
    if scenario is not None:
        given = seconds if _was_given(context, "seconds") else 0.0
        _play(console, scenario, Stage(setup or "sqlite", _teller(console), size, given, directory), json)
        return
    producers = connections or (_TRANSFERS if mode is Mode.APP else _CONNECTIONS)
    workloads = [
        Workload(mode, producers, one, seconds, warmup, payload, branches, durability) for one in rate or [0.0]
    ]
    subject = _Subject(server, setup, null, beside_null, directory, database, protocol)
    with _exit_on_error():
        subject.check(mode)
        for workload in workloads:
            workload.check()
        comparisons = _measured(console, workloads, subject, rounds)
    _report(console, comparisons, json, plots_to)


@contextlib.contextmanager
def _exit_on_error() -> Iterator[None]:
    """Report a failed measurement in one clear line."""
    try:
        yield
    except TwophaseError as error:
        typer.echo(error_text(error), err=True)
        raise typer.Exit(EXIT_FAILED) from None


def _check_given(context: typer.Context, mode: Mode, scenario: str | None) -> None:
    """Raise ConfigurationError for an option that would change nothing."""
    given = [option for option in context.command.params if option.name and _was_given(context, option.name)]
    if scenario is not None:
        what, heeded = f"--scenario {scenario}", _heeded(scenario)
        idle = [option for option in given if option.name not in heeded]
    elif mode is Mode.APP:
        what = "--mode app"
        idle = [option for option in given if option.name in _NOT_OF_APP | _OF_SCENARIOS_ALONE]
    else:
        what = f"--mode {mode.value}"
        idle = [option for option in given if option.name in _OF_APP_ALONE | _OF_SCENARIOS_ALONE]
    if idle:
        names = ", ".join("/".join(option.opts + option.secondary_opts) for option in idle)
        raise ConfigurationError(f"{what}: {names} would change nothing.", remedy=f"Leave {names} away.")


def _heeded(scenario: str) -> frozenset[str]:
    """Return the options that change a scenario.

    It raises ConfigurationError for an unknown name.
    """
    if scenario == _LIST:
        return frozenset({"scenario"})
    if scenario not in SCENARIOS:
        remedy = f"Choose one that `--scenario {_LIST}` names."
        raise ConfigurationError(f"--scenario {scenario}: there is no such scenario.", remedy=remedy)
    return _OF_EVERY_SCENARIO | SCENARIOS[scenario].heeds


def _play(console: Console, name: str, stage: Stage, json: Path | None) -> None:
    """Play one scenario, or list them."""
    if name == _LIST:
        for known, one in SCENARIOS.items():
            console.print(f"{known:<14} {one.summary}")
        return
    entry = SCENARIOS[name]
    with _exit_on_error():
        figures = entry.play(stage)
    machine = this_machine()
    report.show_figures(console, machine, f"{name}, {stage.kind}" if entry.stores else name, figures)
    if json is not None:
        document = {
            "machine": machine,
            "scenario": name,
            "store": stage.kind if entry.stores else None,
            "figures": figures,
        }
        json.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
        console.print(f"Written: {json}")
    if broken := [figure.what for figure in figures if figure.broken]:
        console.print(f"A promise was not kept: {'; '.join(broken)}", style="bold red")
        raise typer.Exit(EXIT_BROKEN_PROMISE)


def _teller(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(f"… {text}", style="dim")


def _was_given(context: typer.Context, parameter: str) -> bool:
    source = context.get_parameter_source(parameter)
    return source is not None and source.name != "DEFAULT"


def _end(_number: int, _frame: object) -> NoReturn:
    """Exit at a signal, so that the started servers end, too."""
    raise SystemExit(EXIT_FAILED)


def _measured(console: Console, workloads: Sequence[Workload], subject: _Subject, rounds: int) -> list[Comparison]:
    is_app = workloads[0].mode is Mode.APP
    with contextlib.ExitStack() as running:
        ceiling = None
        if subject.null or (subject.beside_null and not is_app):
            ceiling = running.enter_context(started.null_server(subject.scheme))
        if subject.server:
            target = _running(subject.server)
        elif subject.setup:
            target = running.enter_context(set_up(subject.setup, subject.directory, subject.scheme))
        else:
            assert ceiling is not None, "--null was given"
            target, ceiling = ceiling, None
        steps = rounds * len(workloads) * (2 if ceiling or is_app else 1)
        if is_app:
            business_url, target = _business(target, subject, running)
            with shown(console, steps, workloads[0].warmup_s + workloads[0].seconds) as on_step:
                return [alternate_transfers(target, business_url, workload, rounds, on_step) for workload in workloads]
        with shown(console, steps, workloads[0].warmup_s + workloads[0].seconds) as on_step:
            found = (alternate([target], ceiling, workload, rounds, on_step) for workload in workloads)
            return [comparison for comparisons in found for comparison in comparisons]


def _business(target: started.Started, subject: _Subject, running: contextlib.ExitStack) -> tuple[str, started.Started]:
    """Return the business database of transfers, and the server.

    The server has every process that is accounted.
    """
    if subject.database or target.business_url:
        return subject.database or target.business_url, target
    own = running.enter_context(postgres(subject.directory))
    accounted = msgspec.structs.replace(target, processes=(*target.processes, own.process))
    return own.create(BUSINESS_DATABASE), accounted


def _running(url: str) -> started.Started:
    """Return a server that was started elsewhere.

    When it is on this machine, its processes and those to which it is connected are included.
    """
    is_grpc = url.startswith(f"{started.Scheme.GRPC}://")
    try:
        address = parse_address(f"http{url.removeprefix(started.Scheme.GRPC)}" if is_grpc else url)
    except HttpError as error:
        remedy = "Write http://host:port, or grpc://host:port."
        raise ConfigurationError(f"--server {url}: {error}.", remedy=remedy) from error
    pid = listening(address.port) if address.host in {"127.0.0.1", "localhost", "::1"} else None
    if pid is None:
        return started.Started("server", url, ())
    beside = [Process("database", other) for other in connected_to(pid)]
    return started.Started("server", url, (Process("server", pid), *beside))


def _report(console: Console, comparisons: Sequence[Comparison], json: Path | None, plots_to: Path | None) -> None:
    machine = this_machine()
    report.show(console, machine, comparisons)
    if json is not None:
        json.write_bytes(report.as_json(machine, comparisons))
        console.print(f"Written: {json}")
    if plots_to is not None:
        for written in plots.write(plots_to, comparisons):
            console.print(f"Written: {written}")
    if not all(comparison.kept for comparison in comparisons):
        console.print("A message was lost or called too early.", style="bold red")
        raise typer.Exit(EXIT_BROKEN_PROMISE)
