"""`twophase spark …`: the audit, and a doctor for what it needs.

Exit codes are for machines: 0 clean, 1 a promise is broken, 2 could not check. Every failure here ends in 2, never in
1: a crash must not look like a violation, nor like a clean run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from twophase.cli.console import echo, plain_console
from twophase.cli.findings import Finding, Level, show
from twophase.core.errors import ConfigurationError
from twophase.core.printable import printable
from twophase_spark.cli.archive import ARCHIVE_EXAMPLES, archive, reference_of
from twophase_spark.cli.audit import files_of, perform, read_plan
from twophase_spark.cli.audit_options import AUDIT_EXAMPLES, with_options
from twophase_spark.cli.bundle import BUNDLE_EXAMPLES, bundle
from twophase_spark.cli.ending import EXIT_NOT_CHECKED, exit_codes, say
from twophase_spark.cli.query import QUERY_EXAMPLES, query
from twophase_spark.cli.sink import ABANDON_EXAMPLES, CHECKBACK_EXAMPLES, abandon, checkback
from twophase_spark.cli.slo import SLO_EXAMPLES, slo
from twophase_spark.locations import Role
from twophase_spark.reports.unmade import ReportFiles

if TYPE_CHECKING:
    from twophase_spark.reports.report import Report

app = typer.Typer(
    name="spark",
    help="Audit, archive, query and publish with Spark.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_SAMPLES_SHOWN = 5
_COLOURS = {"bad": "bold red", "wait": "yellow", "good": "green"}


@app.command(epilog=AUDIT_EXAMPLES)
@with_options
def audit(**given: Any) -> None:
    """Compare coordinators, producers, consumers and ledgers.

    Finds lost, ghost, duplicate, missing, contrary and late messages. Reads only.

    Exit code 0: clean; 1: a promise is broken; 2: could not check; 130: stopped by Ctrl-C.
    """
    texts = {role: given.pop(role.value) or [] for role in Role}
    config = given.pop("config")
    asked = {name: value for name, value in given.items() if value is not None}
    files = ReportFiles(given["html"], given["json"], given["junit"])
    with exit_codes(files):
        files = files_of(files, config)
    with exit_codes(files):
        code = perform(read_plan(asked, texts, config), files, say, _show)
    if code:
        raise typer.Exit(code)


app.command(epilog=SLO_EXAMPLES)(slo)
app.command(epilog=CHECKBACK_EXAMPLES)(checkback)
app.command(epilog=ABANDON_EXAMPLES)(abandon)
app.command(epilog=ARCHIVE_EXAMPLES)(archive)
app.command(epilog=QUERY_EXAMPLES)(query)
app.command(epilog=BUNDLE_EXAMPLES)(bundle)


@app.command()
def doctor(
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Also check that this store can be reached, from executors too.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="A cluster such as spark://host:7077; default: this machine.")
    ] = None,
) -> None:
    """Look for everything Spark needs here, and run a tiny job.

    Exit code 0 when it works, else 2.
    """
    with exit_codes(command="doctor"):
        from twophase_spark.doctor import examine  # noqa: PLC0415 -- costs nothing when another command runs

        console, good = plain_console(), True
        say("looking; the small job takes some seconds")
        reference = None if store is None else reference_of(store)
        if master is not None and reference not in {None, store}:
            raise ConfigurationError("A URL with a password does not travel to a cluster; use env:NAME or file:PATH.")
        for finding in examine(reference, master):
            good = good and finding.good
            level = Level.OK if finding.good else Level.BAD
            show(console, Finding(level, finding.what, finding.found, finding.remedy))
    if not good:
        raise typer.Exit(EXIT_NOT_CHECKED)


def _show(report: Report, html: Path | None) -> None:
    from twophase_spark.reports.page import rank  # noqa: PLC0415 -- PySpark is slow to import
    from twophase_spark.rules.taxonomy import MEANINGS  # noqa: PLC0415 -- the same

    console, result = plain_console(), report.result
    colour = {0: "bold green", 1: "bold red"}.get(report.verdict.exit_code, "bold yellow")
    console.print(Text.assemble((report.verdict.value.upper(), colour), f"  {printable(report.sentence)}"))
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("class")
    table.add_column("messages", justify="right")
    table.add_column("meaning")
    for meaning in MEANINGS:
        count = result.counts[meaning.flag.value]
        table.add_row(meaning.title, Text(str(count), _COLOURS[rank(meaning, count)]), meaning.what)
    table.add_row("without any remark", str(result.clean), f"of {result.messages} messages")
    console.print(table)
    for queue in report.queues.shown:
        echo(printable(f"queue {queue.topic} {queue.queue}: {', '.join(queue.faults)}"))
    for line in report.coverage:
        if not line.checked:
            echo(f"not checked: {line.what}: {line.note}")
    for sample in result.samples[:_SAMPLES_SHOWN]:
        echo(f"{', '.join(sample.flags)}: {sample.gid}")
        for step in sample.repairs:
            echo(f"    {step.why}: {step.command}")
    if html is not None:
        echo(f"report: {html}")
