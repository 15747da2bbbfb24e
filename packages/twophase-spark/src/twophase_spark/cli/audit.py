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

from twophase.core.errors import ConfigurationError, SparkUnavailable
from twophase_spark.cli.ending import EXIT_NOT_CHECKED, warn
from twophase_spark.fleet import reports_named
from twophase_spark.inputs.plan import Plan, plan_of, require_folders
from twophase_spark.locations import Role
from twophase_spark.reports.unmade import ReportFiles, last_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twophase_spark.lineage.sending import Lineage
    from twophase_spark.reports.report import Report
    from twophase_spark.session import SessionSettings

Say = Callable[[str], None]
Show = Callable[["Report", Path | None], None]


def read_plan(asked: Mapping[str, object], texts: Mapping[Role, Sequence[str]], config: Path | None) -> Plan:
    """Return the plan of options and file, checked.

    Raises:
        ConfigurationError: something is missing, contradictory, or not to be understood.
    """
    plan = plan_of(asked, texts, config, cores=min(os.cpu_count() or 1, 8))
    require_folders(plan)
    if plan.every_s is not None and plan.state is None:
        raise ConfigurationError("--every needs --state: without it every round would read everything again.")
    return plan


def files_of(asked: ReportFiles, config: Path | None) -> ReportFiles:
    """Return the paths of the reports, before anything else of the file is known.

    An error in the file must be reported there, too.
    """
    named = {} if config is None else reports_named(config)
    return ReportFiles(
        asked.html or named.get("html"), asked.json or named.get("json"), asked.junit or named.get("junit")
    )


def perform(plan: Plan, files: ReportFiles, say: Say, show: Show) -> int:
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
        if plan.every_s is None:
            return _once(plan, files, say, show, lineage)
        rows = rows_to_read(plan, look_into(plan))  # later rounds read less
        say("starting Spark")
        with open_session(_settings(plan, rows)) as spark:
            return _rounds(spark, plan, files, say, show, lineage)


def _settings(plan: Plan, rows: int) -> SessionSettings:
    from twophase_spark.session import SessionSettings  # noqa: PLC0415 -- PySpark is slow to import

    return SessionSettings(cores=plan.cores, memory_mb=plan.memory_mb, name="twophase audit", rows=rows)


def _once(plan: Plan, files: ReportFiles, say: Say, show: Show, lineage: Lineage) -> int:
    from twophase_spark.auditing.run import begin, look_into, rows_to_read, run  # noqa: PLC0415 -- PySpark is slow
    from twophase_spark.progress import progress_shown  # noqa: PLC0415 -- the same
    from twophase_spark.session import open_session  # noqa: PLC0415 -- the same

    with lineage.run(plan) as told:
        sources = look_into(plan)
        rows = rows_to_read(plan, sources)
        say("starting Spark")
        ahead = begin(plan, sources)
        with open_session(_settings(plan, rows)) as spark:
            with progress_shown(spark, say):
                report = run(spark, plan, sources, say, run_id=told.run_id, ahead=ahead)
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


def _rounds(spark: SparkSession, plan: Plan, files: ReportFiles, say: Say, show: Show, lineage: Lineage) -> int:
    """Audit until SIGINT or SIGTERM, which end a wait at once, and a round at its end.

    A round that waits for the grace time is given up: what it would call a violation may only be late to arrive.
    """
    from twophase_spark.auditing.run import look_into, rows_to_read, run  # noqa: PLC0415 -- the same
    from twophase_spark.progress import progress_shown  # noqa: PLC0415 -- PySpark is slow to import
    from twophase_spark.session import fitted, watched  # noqa: PLC0415 -- the same

    assert plan.every_s is not None, "called for many rounds only"
    code = EXIT_NOT_CHECKED
    with _stop_requested() as stop:

        def wait(seconds: float) -> None:
            if stop.wait(seconds):
                raise _Given

        while True:
            started = time.monotonic()
            files.made = False
            try:
                with lineage.run(plan) as told, watched():
                    sources = look_into(plan)
                    rows = rows_to_read(plan, sources)
                    with progress_shown(spark, say), fitted(spark, rows, plan.cores):
                        report = run(spark, plan, sources, say, pause=wait, run_id=told.run_id)
                    files.made = True
                    told.checked(report)
                    show(report, plan.html)
                    code = report.verdict.exit_code
            except _Given:
                pass
            except (ConfigurationError, SparkUnavailable):
                raise
            except Exception as error:  # noqa: BLE001 -- a database that is away now may be back in the next round
                code = EXIT_NOT_CHECKED
                _not_checked(files, error, say)
            if stop.wait(max(0.0, plan.every_s - (time.monotonic() - started))):
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
