"""`twophase bench`: measure a server of the dtm wire, beside what this machine can do at most."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from twophase.bench import plots, report, started
from twophase.bench.compare import Comparison, alternate
from twophase.bench.machine import this_machine
from twophase.bench.processes import Process, listening
from twophase.bench.progress import shown
from twophase.bench.workload import Mode, Workload
from twophase.core.errors import ConfigurationError, TwophaseError
from twophase.http.address import parse_address
from twophase.http.outcome import HttpError

app = typer.Typer(rich_markup_mode=None, add_completion=False)
EXIT_FAILED: Final = 1
EXIT_BROKEN_PROMISE: Final = 4

_EXAMPLES: Final = """\b
Examples:
  twophase bench --setup sqlite                     starts a server, measures it, removes it
  twophase bench --server http://127.0.0.1:36789    measures a server that runs
  twophase bench --setup sqlite --rate 500          latency at 500 messages a second
  twophase bench --setup sqlite --rate 250 --rate 1000 --rate 4000 --plots .
  twophase bench --null                             the ceiling of this machine alone
  twophase bench --setup postgres --durability check-back --rounds 3 --json result.json

Exit codes: 0 measured, 1 nothing could be measured, 4 a message was lost or
called too early."""


@app.command(epilog=_EXAMPLES)
def bench(
    server: Annotated[str | None, typer.Option(help="A running server of the dtm HTTP API.")] = None,
    setup: Annotated[str | None, typer.Option(help="Start a server for this: sqlite.")] = None,
    mode: Annotated[Mode, typer.Option(help="What a message is.")] = Mode.PAIR,
    connections: Annotated[int, typer.Option(help="Connections that produce.")] = 128,
    rate: Annotated[
        list[float] | None, typer.Option(help="Messages a second, open loop; several are run in turn.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds measured, after the warm-up.")] = 5,
    warmup: Annotated[float, typer.Option(help="Seconds before that.")] = 1,
    payload: Annotated[int, typer.Option(help="Bytes of each branch's payload.")] = 28,
    branches: Annotated[int, typer.Option(help="Branches of each message.")] = 1,
    durability: Annotated[str, typer.Option(help="submit or check-back; the server's default when empty.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 1,
    directory: Annotated[Path | None, typer.Option(help="Where --setup keeps its data, for the time it runs.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write everything that was found to this file.")] = None,
    plots_to: Annotated[Path | None, typer.Option("--plots", help="Write plots (SVG) into this directory.")] = None,
    *,
    null: Annotated[bool, typer.Option("--null", help="Measure only the server that keeps nothing.")] = False,
    beside_null: Annotated[bool, typer.Option("--ratio/--no-ratio", help="Run against null beside each run.")] = True,
) -> None:
    """Measure a server of the dtm HTTP API: throughput at the branch, latencies, CPU, memory, lost messages.

    Every run stands beside the same run against a server that keeps nothing: the ceiling of this machine.
    """
    console = Console()
    workloads = [
        Workload(mode, connections, one, seconds, warmup, payload, branches, durability) for one in rate or [0.0]
    ]
    try:
        comparisons = _measured(console, workloads, server, setup, rounds, directory, null, beside_null)
    except TwophaseError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_FAILED) from None
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


def _measured(
    console: Console,
    workloads: Sequence[Workload],
    server: str | None,
    setup: str | None,
    rounds: int,
    directory: Path | None,
    null: bool,  # noqa: FBT001 -- the command's own options
    beside_null: bool,  # noqa: FBT001
) -> list[Comparison]:
    if [bool(server), bool(setup), null].count(True) != 1:
        remedy = "Give one of --server URL, --setup sqlite, --null."
        raise ConfigurationError("bench: what is to be measured?", remedy=remedy)
    for workload in workloads:
        workload.check()
    with contextlib.ExitStack() as running:
        ceiling = running.enter_context(started.null_server()) if null or beside_null else None
        if server:
            target = _running(server)
        elif setup:
            target = running.enter_context(started.set_up(setup, directory))
        else:
            assert ceiling is not None, "--null was given"
            target, ceiling = ceiling, None
        steps = rounds * (2 if ceiling else 1) * len(workloads)
        with shown(console, steps, workloads[0].warmup_s + workloads[0].seconds) as on_step:
            return [
                comparison
                for workload in workloads
                for comparison in alternate([target], ceiling, workload, rounds, on_step)
            ]


def _running(url: str) -> started.Started:
    """A server somebody else runs; its process when it is on this machine."""
    try:
        address = parse_address(url)
    except HttpError as error:
        raise ConfigurationError(f"--server {url}: {error}.", remedy="Write http://host:port.") from error
    pid = listening(address.port) if address.host in {"127.0.0.1", "localhost", "::1"} else None
    return started.Started("server", url, () if pid is None else (Process("server", pid),))
