"""`twophase import …`: take over from another coordinator."""

from __future__ import annotations

import time
from typing import Annotated, Final
from zoneinfo import ZoneInfo

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from twophase.cli.console import cell, echo, echo_json, on_terminal, plain_console
from twophase.cli.error_text import error_text
from twophase.cli.operating.http_api import DEFAULT_SERVER, JsonOption, ServerOption
from twophase.core.bearer import authorization_of
from twophase.core.credentials import secret_of, shown
from twophase.core.errors import TwophaseError
from twophase.core.printable import OutputFailed
from twophase.dtm_import.found import Source
from twophase.dtm_import.move import Report, move, moves_on, remedy_of_others
from twophase.dtm_import.source import open_source, unusable
from twophase.dtm_import.target import Target

EXIT_INCOMPLETE: Final = 1
EXIT_UNUSABLE: Final = 2
EXIT_STILL_RUNNING: Final = 3
WATCH_S: Final = 12.0
"""dtm looks at each unfinished row every 10 seconds, its cron wakes every 3."""
_SHOWN_MAX: Final = 40

app = typer.Typer(
    name="import",
    help="Take over from another coordinator.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_EXAMPLES: Final = """\b
Examples:
  twophase import dtm file:dtm-url                 what would be copied
  twophase import dtm file:dtm-url --apply         stop dtm first
  twophase import dtm redis://cache:6379/0 --prefix '{a}' --server http://pay:36789 --apply

\b
Exit codes: 0 everything was (or would be) copied; 1 something was not, and is named; 2 a store or the server cannot be
used; 3 dtm still changes its rows."""


@app.callback()
def _import() -> None:
    """Take over from another coordinator."""


@app.command(epilog=_EXAMPLES)
def dtm(
    url: Annotated[
        str,
        typer.Argument(
            help="dtm's store: mysql://, postgresql:// or redis://; or env:NAME or file:PATH that holds it.",
            envvar="DTM_STORE_URL",
        ),
    ],
    server: ServerOption = DEFAULT_SERVER,
    prefix: Annotated[str, typer.Option(help="Redis only: dtm's setting Store.RedisPrefix.")] = "{a}",
    time_zone: Annotated[
        str,
        typer.Option(help="MySQL, PostgreSQL: time zone of dtm's machine, if not the database's (Asia/Shanghai)."),
    ] = "",
    watch: Annotated[float, typer.Option(help="Seconds to watch whether dtm is still changing its rows.")] = WATCH_S,
    *,
    apply: Annotated[bool, typer.Option("--apply", help="Copy. Without it, only report what would be copied.")] = False,
    never_imported: Annotated[
        bool,
        typer.Option("--never-imported", help="Nothing was ever imported here: also copy what is older than history."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Copy even though dtm is still changing its rows.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy dtm's unfinished messages and its topics to a running twophase server.

    Safe to repeat. dtm's store is only read. Stop dtm before you apply: a message that both hold is delivered by both.
    """
    console = plain_console(stderr=True)
    try:
        zone = _zone(time_zone)
        url = secret_of(url)
        target = Target(server, never_taken=never_imported, authorization=authorization_of())
        target.check()
        source = open_source(url, prefix=prefix, zone=zone)
        console.print(f"From dtm's store at {shown(url)} to {target.shown}.", soft_wrap=True)
        try:
            code = _run(source, target, console, watch_s=watch, apply=apply, force=force, as_json=as_json)
        finally:
            source.close()
    except TwophaseError as error:
        echo(error_text(error), err=True)
        raise typer.Exit(EXIT_UNUSABLE) from None
    except Exception as error:
        if not _is_drivers(error):
            raise
        echo(str(unusable(error, url)), err=True)
        raise typer.Exit(EXIT_UNUSABLE) from None
    raise typer.Exit(code)


def _run(
    source: Source, target: Target, console: Console, *, watch_s: float, apply: bool, force: bool, as_json: bool
) -> int:
    total = source.count()
    still_running = False
    if total and watch_s > 0:
        with console.status(f"Looking for {watch_s:g} s whether dtm is stopped …"):
            still_running = moves_on(source, watch_s)
    if still_running and apply and not force:
        console.print(
            "dtm still changes its rows: nothing is copied, because both would deliver. Stop every dtm server that "
            "uses this store, then run this again. (--force copies anyway.)",
            soft_wrap=True,
        )
        return EXIT_STILL_RUNNING
    columns = (TextColumn("messages"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not on_terminal(stderr=True)) as progress:
        task = progress.add_task("messages", total=total)
        report = move(
            source,
            target,
            apply=apply,
            now_ms=lambda: time.time_ns() // 1_000_000,
            on_progress=lambda more: progress.advance(task, more),
        )
    report.still_running |= still_running
    if source.nothing_here and not (report.counts or report.others or report.topics):
        console.print(source.nothing_here, soft_wrap=True)
    if as_json:
        echo_json(msgspec.json.encode(report).decode())
    else:
        _show(report, plain_console())
    if report.still_running:
        return EXIT_STILL_RUNNING if apply and not force else EXIT_INCOMPLETE if not report.complete else 0
    return 0 if report.complete else EXIT_INCOMPLETE


def _show(report: Report, console: Console) -> None:
    done = "Copied" if report.applied else "Would be copied (dry run)"
    table = Table("", "Messages", "Count", title=f"dtm's unfinished messages: {'' if report.applied else 'dry run'}")
    for what, count in report.counts.items():
        outcome, _, state = what.partition(" ")
        table.add_row(done if outcome == "copied" else outcome, state, str(count))
    if report.counts:
        console.print(table)
    else:
        console.print("There is no unfinished message in dtm's store.")
    if report.topics:
        topics = Table("Topic", "Added" if report.applied else "Would be added", "Here before", "Wrong")
        for topic in report.topics:
            topics.add_row(*map(cell, (topic.name, str(topic.added), str(topic.present), topic.wrong)))
        console.print(topics)
    if report.remarks:
        table = Table("gid", "Kind", "", "Why", "What to do")
        for one in report.remarks[:_SHOWN_MAX]:
            table.add_row(*map(cell, (one.gid, one.kind, one.what, one.reason, one.remedy)))
        console.print(table)
        more = len(report.remarks) - _SHOWN_MAX + report.remarks_more
        if more > 0:
            console.print(f"… and {more} more (--json names up to 10 000).")
    if report.others:
        kinds = ", ".join(f"{other.count} {other.trans_type or 'unknown'} ({other.status})" for other in report.others)
        console.print(f"Not copied, no messages: {kinds}. {remedy_of_others(report.others)}", soft_wrap=True)
    if report.still_running:
        console.print("dtm changed its rows meanwhile: stop it, and run this again.", soft_wrap=True)
    if not report.applied and report.complete:
        console.print("Nothing was changed. Stop dtm, then run this again with --apply.", soft_wrap=True)


def _zone(name: str) -> ZoneInfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise typer.BadParameter(f"{name!r} is not a time zone; write one such as Asia/Shanghai.") from None


def _is_drivers(error: Exception) -> bool:
    """Return True when a database's library raised the error, while it was read."""
    if isinstance(error, OutputFailed | BrokenPipeError):
        return False  # of this command's output; drivers have errors of their own for a lost connection
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in {"sqlalchemy", "redis"}
