"""The audit behind its command.

The order is checked before Spark starts, and done once or until it is stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from twophase.core.errors import ConfigurationError, SparkUnavailable
from twophase_spark.cli.ending import EXIT_NOT_CHECKED, last_line, warn
from twophase_spark.fleet import Options, reports_named
from twophase_spark.inputs.plan import Plan, merged, plan_of
from twophase_spark.locations import Role
from twophase_spark.reports.unmade import ReportFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twophase_spark.lineage.sending import Lineage
    from twophase_spark.reports.report import Report
    from twophase_spark.session import SessionSettings

Say = Callable[[str], None]
Show = Callable[["Report", Path | None], None]


class Order(msgspec.Struct, frozen=True):
    """A plan, and the size of its Spark.

    `every_s`: again and again, None for once.
    """

    plan: Plan
    memory_mb: int
    cores: int
    every_s: float | None


def read_order(asked: Options, texts: Mapping[Role, Sequence[str]], config: Path | None) -> Order:
    """Merge options and file: an option wins over the file, and locations add up.

    Raises:
        ConfigurationError: something is missing, contradictory, or not to be understood.
    """
    options, locations = merged(asked, texts, config)
    _require_sound(options)
    cores = options.cores or min(os.cpu_count() or 1, 8)
    return Order(plan_of(options, locations, cores), options.memory or 2048, cores, options.every)


def files_of(asked: ReportFiles, config: Path | None) -> ReportFiles:
    """Return the paths of the reports, before anything else of the file is known.

    An error in the file must be reported there, too.
    """
    named = {} if config is None else reports_named(config)
    return ReportFiles(
        asked.html or named.get("html"), asked.json or named.get("json"), asked.junit or named.get("junit")
    )


def perform(order: Order, files: ReportFiles, say: Say, show: Show) -> int:
    """Audit, once or until stopped; return the exit code of the last complete round.

    A round that was given up does not count. `files`, those of the plan, know from then on whether they hold what was
    found.

    Raises:
        TwophaseError: it could not be made; of many rounds, only the first one's failure.
    """
    from twophase_spark.auditing.run import look_into, rows_to_read  # noqa: PLC0415 -- PySpark is slow: arguments first
    from twophase_spark.lineage.sending import lineage_sent  # noqa: PLC0415 -- the same
    from twophase_spark.session import open_session  # noqa: PLC0415 -- the same

    with lineage_sent(warn) as lineage:
        if order.every_s is None:
            return _once(order, files, say, show, lineage)
        rows = rows_to_read(order.plan, look_into(order.plan))  # later rounds read less
        say("starting Spark")
        with open_session(_settings(order, rows)) as spark:
            return _rounds(spark, order, files, say, show, lineage)


def _settings(order: Order, rows: int) -> SessionSettings:
    from twophase_spark.session import SessionSettings  # noqa: PLC0415 -- PySpark is slow to import

    return SessionSettings(cores=order.cores, memory_mb=order.memory_mb, name="twophase audit", rows=rows)


def _once(order: Order, files: ReportFiles, say: Say, show: Show, lineage: Lineage) -> int:
    from twophase_spark.auditing.run import look_into, rows_to_read, run  # noqa: PLC0415 -- PySpark is slow to import
    from twophase_spark.progress import progress_shown  # noqa: PLC0415 -- the same
    from twophase_spark.session import open_session  # noqa: PLC0415 -- the same

    plan = order.plan
    with lineage.run(plan) as told:
        sources = look_into(plan)
        rows = rows_to_read(plan, sources)
        say("starting Spark")
        with open_session(_settings(order, rows)) as spark:
            with progress_shown(spark, say):
                report = run(spark, plan, sources, say, run_id=told.run_id)
            files.made = True
            told.checked(report)
            show(report, plan.html)
            return report.verdict.exit_code


def _not_checked(files: ReportFiles, error: Exception, say: Say) -> None:
    """Report the error that ended a round, for people and for machines."""
    say(f"could not check in this round: {last_line(error)}")
    files.say_not_made(f"Could not check. {last_line(error)}")


class _Given(BaseException):
    """A round that was given up, because its grace time would have been cut short.

    It is no failure, so no `Exception`.
    """


def _rounds(spark: SparkSession, order: Order, files: ReportFiles, say: Say, show: Show, lineage: Lineage) -> int:
    """Audit until SIGINT or SIGTERM, which end a wait at once, and a round at its end.

    A round that waits for the grace time is given up: what it would call a violation may only be late to arrive.
    """
    from twophase_spark.auditing.run import look_into, rows_to_read, run  # noqa: PLC0415 -- the same
    from twophase_spark.progress import progress_shown  # noqa: PLC0415 -- PySpark is slow to import
    from twophase_spark.session import fitted  # noqa: PLC0415 -- the same

    assert order.every_s is not None, "called for many rounds only"
    code = EXIT_NOT_CHECKED
    with _stop_requested() as stop:

        def wait(seconds: float) -> None:
            if stop.wait(seconds):
                raise _Given

        while True:
            started = time.monotonic()
            files.made = False
            try:
                with lineage.run(order.plan) as told:
                    sources = look_into(order.plan)
                    rows = rows_to_read(order.plan, sources)
                    with progress_shown(spark, say), fitted(spark, rows, order.cores):
                        report = run(spark, order.plan, sources, say, pause=wait, run_id=told.run_id)
                    files.made = True
                    told.checked(report)
                    show(report, order.plan.html)
                    code = report.verdict.exit_code
            except _Given:
                pass
            except (ConfigurationError, SparkUnavailable):
                raise
            except Exception as error:  # noqa: BLE001 -- a database that is away now may be back in the next round
                code = EXIT_NOT_CHECKED
                _not_checked(files, error, say)
            if stop.wait(max(0.0, order.every_s - (time.monotonic() - started))):
                say("stopped")
                return code


@contextlib.contextmanager
def _stop_requested() -> Iterator[threading.Event]:
    stop = threading.Event()

    def handle(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _require_sound(options: Options) -> None:
    for path in (
        options.html,
        options.json,
        options.junit,
        options.state,
        options.findings,
        options.write_baseline,
    ):
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise ConfigurationError(f"{path}: there is no folder {Path(path).absolute().parent}; make it first.")
    if options.every is not None and options.state is None:
        raise ConfigurationError("--every needs --state: without it every round would read everything again.")
