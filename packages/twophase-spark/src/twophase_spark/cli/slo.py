"""`twophase spark slo`: latencies of decisions and deliveries, and their bounds."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from twophase.cli.console import cell, echo, plain_console
from twophase.core.errors import ConfigurationError
from twophase_spark.cli.ending import exit_codes, say
from twophase_spark.locations import Location, parse_coordinator, require_distinct
from twophase_spark.reports.unmade import SLO_FORMAT, ReportFiles

if TYPE_CHECKING:
    from twophase_spark.reports.slo_page import SloReport
    from twophase_spark.slo import Latency, Measured

SLO_EXAMPLES: Final = """\b
Examples:
  twophase spark slo --coordinator sqlite:///twophase.db --html slo.html
  twophase spark slo --coordinator env:STORE_URL \\
      --hours 24 --delivery-p99 10 --check-back-rate 0.01 --json slo.json"""


_WORDS: Final = {
    "kept": "WITHIN BOUNDS",
    "exceeded": "BOUNDS EXCEEDED",
    "incomplete": "NOT EVERYTHING MEASURED (raise --at-least, or look at fewer --hours)",
}


def slo(
    coordinator: Annotated[list[str], typer.Option(metavar="LOCATION", help="A coordinator's store; may be repeated.")],
    hours: Annotated[float | None, typer.Option(min=0, help="Only messages of the last so many hours.")] = None,
    decision_p99: Annotated[
        float | None, typer.Option(min=0, help="Bound for the 99th percentile of decision latency, in seconds.")
    ] = None,
    delivery_p99: Annotated[
        float | None, typer.Option(min=0, help="Bound for the 99th percentile of delivery latency, in seconds.")
    ] = None,
    attempts: Annotated[float | None, typer.Option(min=0, help="Bound for the mean number of failed attempts.")] = None,
    check_back_rate: Annotated[
        float | None, typer.Option(min=0, max=1, help="Bound for the share decided by check-back.")
    ] = None,
    failed_rate: Annotated[float | None, typer.Option(min=0, max=1, help="Bound for the share that failed.")] = None,
    oldest: Annotated[
        float | None, typer.Option(min=0, help="Bound for the age of the oldest unfinished message, in seconds.")
    ] = None,
    at_least: Annotated[int, typer.Option(min=1, help="Groups with fewer messages raise no alert.")] = 20,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page to this file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON to this file.")] = None,
    memory: Annotated[int, typer.Option(min=512, help="Memory for Spark in MiB.")] = 2048,
    cores: Annotated[int, typer.Option(min=1, help="Cores for Spark.")] = min(os.cpu_count() or 1, 8),
) -> None:
    """Measure decision and delivery latency, attempts and check-backs.

    By producer, destination and hour, from the coordinators' history.

    Exit code 0: within every bound; 1: a bound is exceeded; 2: could not measure, or not everything; 130: stopped.
    """
    files = ReportFiles(html, json, title="twophase slo", format=SLO_FORMAT)
    with exit_codes(files, command="slo"):
        from twophase_spark.reports.slo_page import make_slo_report, to_slo_html, to_slo_json  # noqa: PLC0415 -- the same
        from twophase_spark.slo import Thresholds, alerts_of  # noqa: PLC0415 -- PySpark is slow to import

        locations = [parse_coordinator(text) for text in coordinator]
        require_distinct(locations)
        for path in (html, json):
            if path is not None and not path.absolute().parent.is_dir():
                raise ConfigurationError(f"{path}: there is no folder {path.absolute().parent}; make it first.")
        bounds = Thresholds(decision_p99, delivery_p99, attempts, check_back_rate, failed_rate, oldest, at_least)
        measured = _measured(locations, hours, memory, cores)
        report = make_slo_report(measured, bounds, alerts_of(measured, bounds))
        if html is not None:
            html.write_text(to_slo_html(report), "utf-8")
        if json is not None:
            json.write_bytes(to_slo_json(report))
        files.made = True
        _show(report)
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _measured(locations: list[Location], hours: float | None, memory_mb: int, cores: int) -> Measured:
    from twophase_spark.inputs.source import read_all, reference_skew_ms  # noqa: PLC0415 -- the same
    from twophase_spark.progress import progress_shown  # noqa: PLC0415 -- PySpark is slow to import
    from twophase_spark.readers.probe import probe, rows_in  # noqa: PLC0415 -- the same
    from twophase_spark.session import SessionSettings, open_session  # noqa: PLC0415 -- the same
    from twophase_spark.slo import measure  # noqa: PLC0415 -- the same

    sources = [probe(location, slices_max=cores * 2) for location in locations]
    as_of_ms = time.time_ns() // 1_000_000 + reference_skew_ms(sources)
    since_ms = 0 if hours is None else as_of_ms - int(hours * 3_600_000)
    say("starting Spark")
    settings = SessionSettings(cores=cores, memory_mb=memory_mb, name="twophase slo", rows=rows_in(sources))
    with open_session(settings) as spark:
        say(f"measuring {len(sources)} coordinators")
        with progress_shown(spark, say):
            return measure(read_all(spark, sources).journal.where("state > 0"), as_of_ms, since_ms)


def _show(report: SloReport) -> None:
    from twophase_spark.reports.slo_page import said_left_out  # noqa: PLC0415 -- PySpark is slow to import

    console, measured = plain_console(), report.measured
    colour = {0: "bold green", 1: "bold red"}.get(report.exit_code, "bold yellow")
    words = _WORDS.get(report.verdict, "NOTHING TO MEASURE")
    console.print(Text(words, colour))
    table = Table(show_edge=False, pad_edge=False)
    for title in ("of", "messages", "decision 50 %", "99 %", "delivery 50 %", "99 %", "attempts", "by check-back"):
        table.add_column(title, justify="left" if title == "of" else "right")
    for group in measured.groups:
        if group.dimension != "hour":
            table.add_row(
                cell(f"{group.dimension} {group.key}".strip()),
                str(group.messages),
                *_shown(group.decision),
                *_shown(group.delivery),
                f"{group.attempts_mean:.3g}",
                f"{100 * group.check_back_rate:.3g} %",
            )
    console.print(table)
    backlog = measured.backlog
    console.print(
        f"not final: {backlog.prepared} prepared, {backlog.submitted} submitted, {backlog.parked} parked; "
        f"the oldest for {backlog.oldest_s:.1f} s"
    )
    for one in measured.left_out:
        echo(said_left_out(one))
    for alert in report.alerts:
        echo(f"exceeded: {alert.measure} of {alert.dimension} {alert.key}: {alert.value:.4g}, bound {alert.bound:g}")


def _shown(latency: Latency) -> tuple[str, str]:
    def seconds(value: float | None) -> str:
        return "" if value is None else f"{value:.3g} s"

    return seconds(latency.p50_s), seconds(latency.p99_s)
