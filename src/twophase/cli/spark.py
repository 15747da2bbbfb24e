"""`twophase spark …`: the audit, and a doctor for what it needs.

Exit codes are for machines: 0 clean, 1 a promise is broken, 2 could not check. Whatever goes wrong here ends in 2,
never in 1: a crash must not look like a violation, nor like a clean run.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from twophase.core.errors import ConfigurationError, TwophaseError
from twophase.spark.locations import Location, Role, parse_coordinator, parse_named, require_distinct

if TYPE_CHECKING:
    from twophase.spark.report import Report

app = typer.Typer(
    name="spark",
    help="Spark jobs: does every promise hold?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

EXIT_VIOLATIONS = 1
EXIT_NOT_CHECKED = 2
EXIT_INTERRUPTED = 130
_COLOURS = {"bad": "bold red", "wait": "yellow", "good": "green"}


_EXAMPLES: Final = """\b
Examples:
  twophase spark audit --coordinator sqlite:///twophase.db \\
      --producer bank_a=sqlite:///a.db --consumer bank_b=sqlite:///b.db
  twophase spark audit --coordinator sqlite:////var/lib/twophase/twophase.db \\
      --producer bank_a=postgresql://audit:password@db-a/bank_a#pay.barrier \\
      --html report.html

\b
Locations:
  --coordinator  URL of its store
  --producer     NAME=URL[#TABLE]                TABLE is barrier by default
  --consumer     NAME=URL[#TABLE?urls=PREFIX]    only branches that begin so
  --ledger       NAME=URL#TABLE?gid=COLUMN&branch=COLUMN
                 NAME is a consumer's; its rows are the real effects
  URL is sqlite:///file.db, postgresql://user:password@host/name or
  mysql://user:password@host/name. Quote what contains ? or &."""


@app.command(epilog=_EXAMPLES)
def audit(
    coordinator: Annotated[
        list[str], typer.Option(metavar="LOCATION", help="A coordinator's store; give all that call these consumers.")
    ],
    producer: Annotated[
        list[str] | None, typer.Option(metavar="LOCATION", help="A producer's barrier; may be repeated.")
    ] = None,
    consumer: Annotated[
        list[str] | None, typer.Option(metavar="LOCATION", help="A consumer's barrier; may be repeated.")
    ] = None,
    ledger: Annotated[
        list[str] | None, typer.Option(metavar="LOCATION", help="A consumer's business table; may be repeated.")
    ] = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds before suspects are read again.")] = 5.0,
    late: Annotated[float, typer.Option(min=0, help="Seconds after which an unfinished message is late.")] = 3600.0,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page to this file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON to this file.")] = None,
    memory: Annotated[int, typer.Option(min=512, help="Memory for Spark in MiB.")] = 2048,
    cores: Annotated[int, typer.Option(min=1, help="Cores for Spark.")] = min(os.cpu_count() or 1, 8),
) -> None:
    """Compare coordinators, producers, consumers and ledgers.

    Finds lost, ghost, duplicate, missing, contrary and late messages. Reads only.

    Exit code 0: clean; 1: a promise is broken; 2: could not check.
    """
    with _exit_codes():
        started = time.monotonic()
        locations = [parse_coordinator(text) for text in coordinator]
        for role, texts in ((Role.PRODUCER, producer), (Role.CONSUMER, consumer), (Role.LEDGER, ledger)):
            locations += [parse_named(role, text) for text in texts or ()]
        _require_sound(locations, [path for path in (html, json) if path is not None])
        report = _run(locations, grace_s=grace, late_s=late, memory_mb=memory, cores=cores, started=started)
        _write(report, html, json)
        _show(report, html)
    if report.result.violations:
        raise typer.Exit(EXIT_VIOLATIONS)


@app.command()
def doctor() -> None:
    """Look for everything Spark needs here, and run a tiny job.

    Exit code 0 when it works, else 2.
    """
    with _exit_codes():
        from twophase.spark.doctor import examine  # noqa: PLC0415 -- costs nothing when another command runs

        console, good = Console(), True
        _say("looking; the small job takes some seconds")
        for finding in examine():
            good = good and finding.good
            mark = "[green]good[/]" if finding.good else "[bold red]bad[/] "
            console.print(f"{mark}  {finding.what:<12} {finding.found}", highlight=False, soft_wrap=True)
            if not finding.good:
                console.print(f"      → {finding.remedy}", highlight=False, markup=False, soft_wrap=True)
    if not good:
        raise typer.Exit(EXIT_NOT_CHECKED)


def _require_sound(locations: list[Location], outputs: list[Path]) -> None:
    require_distinct(locations)
    consumers = {location.name for location in locations if location.role is Role.CONSUMER}
    for location in locations:
        if location.role is Role.LEDGER and location.name not in consumers:
            raise ConfigurationError(
                f"--ledger {location.name}: there is no --consumer {location.name}; names must match."
            )
    for path in outputs:
        if not path.absolute().parent.is_dir():
            raise ConfigurationError(f"{path}: there is no folder {path.absolute().parent}; make it first.")


def _run(
    locations: list[Location], *, grace_s: float, late_s: float, memory_mb: int, cores: int, started: float
) -> Report:
    from twophase.spark.audit import audit as compare  # noqa: PLC0415 -- PySpark is slow to import: arguments first
    from twophase.spark.readers.probe import is_small, probe  # noqa: PLC0415 -- the same
    from twophase.spark.report import make_report  # noqa: PLC0415 -- the same
    from twophase.spark.session import SessionSettings, open_session  # noqa: PLC0415 -- the same
    from twophase.spark.source import read_all, rereading, scope_of  # noqa: PLC0415 -- the same

    as_of_ms = time.time_ns() // 1_000_000
    sources = [probe(location, slices_max=cores * 2) for location in locations]
    scope = scope_of(sources, as_of_ms, int(late_s * 1000))

    def wait() -> None:
        _say(f"waiting {grace_s:g} s, because messages are in flight, then reading the suspects again")
        time.sleep(grace_s)

    _say("starting Spark")
    settings = SessionSettings(
        cores=cores, memory_mb=memory_mb, name="twophase audit", short=all(map(is_small, sources))
    )
    with open_session(settings) as spark:
        _say(f"comparing {len(sources)} sources")
        result = compare(read_all(spark, sources), scope, rereading(spark, sources, scope), wait)
    return make_report(result, sources, grace_s=grace_s, late_s=late_s, duration_s=time.monotonic() - started)


def _write(report: Report, html: Path | None, json: Path | None) -> None:
    from twophase.spark.report import to_html, to_json  # noqa: PLC0415 -- PySpark is slow to import

    if html is not None:
        html.write_text(to_html(report), "utf-8")
    if json is not None:
        json.write_bytes(to_json(report))


def _show(report: Report, html: Path | None) -> None:
    from twophase.spark.report import rank  # noqa: PLC0415 -- PySpark is slow to import
    from twophase.spark.taxonomy import MEANINGS  # noqa: PLC0415 -- the same

    console, result = Console(), report.result
    verdict = "[bold red]VIOLATIONS[/]" if result.violations else "[bold green]CLEAN[/]"
    console.print(f"{verdict}  {report.sentence}", highlight=False)
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("class")
    table.add_column("messages", justify="right")
    table.add_column("meaning")
    for meaning in MEANINGS:
        count = result.counts[meaning.flag.value]
        table.add_row(meaning.title, f"[{_COLOURS[rank(meaning, count)]}]{count}[/]", meaning.what)
    table.add_row("without any remark", str(result.clean), f"of {result.messages} messages")
    console.print(table)
    for line in report.coverage:
        if not line.checked:
            console.print(f"not checked: {line.what}: {line.note}", highlight=False, markup=False, soft_wrap=True)
    for one in result.samples[:5]:
        console.print(f"{', '.join(one.flags)}: {one.gid}", highlight=False, markup=False, soft_wrap=True)
    if html is not None:
        console.print(f"report: {html}", highlight=False, markup=False, soft_wrap=True)


def _say(text: str) -> None:
    typer.echo(f"twophase: {text} …", err=True)


@contextlib.contextmanager
def _exit_codes() -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        typer.echo(
            f"Could not check. {error.code}: {error.message} `twophase spark audit --help` explains it.", err=True
        )
        raise typer.Exit(EXIT_NOT_CHECKED) from None
    except TwophaseError as error:
        typer.echo(f"Could not check. {error.code}: {error.message} {error.remedy}", err=True)
        raise typer.Exit(EXIT_NOT_CHECKED) from None
    except KeyboardInterrupt:
        typer.echo("Stopped; nothing can be said.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except typer.Exit:
        raise
    except Exception as error:  # noqa: BLE001 -- a crash must end in 2, not in 1
        typer.echo(f"Could not check. {_last_line(error)}", err=True)
        typer.echo("`twophase spark doctor` says whether Spark itself works here.", err=True)
        raise typer.Exit(EXIT_NOT_CHECKED) from None


def _last_line(error: Exception) -> str:
    """What went wrong: of an error in a Spark worker, the line that names it, not the whole trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if "TP-" in line]
    chosen = ours[-1].partition("TP-") if ours else None
    if chosen is not None:
        return chosen[1] + chosen[2]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"
