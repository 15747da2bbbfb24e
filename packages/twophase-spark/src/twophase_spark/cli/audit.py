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
from twophase_spark.cli.ending import EXIT_NOT_CHECKED, last_line
from twophase_spark.fleet import Options, read_fleet, reports_named
from twophase_spark.inputs.plan import Plan
from twophase_spark.locations import Location, Role, parse_coordinator, parse_named, require_comparable
from twophase_spark.reports.unmade import ReportFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twophase_spark.reports.report import Report
    from twophase_spark.session import SessionSettings

Say = Callable[[str], None]
Show = Callable[["Report", Path | None], None]


class Order(msgspec.Struct, frozen=True):
    """A plan, and the size of its Spark.

    `every_s`: again and again, None for once; `follow`: driven by history's stream.
    """

    plan: Plan
    memory_mb: int
    cores: int
    every_s: float | None
    follow: bool = False


def read_order(asked: Options, texts: Mapping[Role, Sequence[str]], config: Path | None) -> Order:
    """Merge options and file: an option wins over the file, and locations add up.

    Raises:
        ConfigurationError: something is missing, contradictory, or not to be understood.
    """
    locations: list[Location] = []
    options = Options()
    if config is not None:
        fleet = read_fleet(config)
        locations += fleet.locations
        options = fleet.options
    for role, given in texts.items():
        parse = parse_coordinator if role is Role.COORDINATOR else _parser(role)
        locations += [parse(text) for text in given]
    named = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
    options = msgspec.structs.replace(options, **named)
    _require_sound(locations, options)
    cores = options.cores or min(os.cpu_count() or 1, 8)
    plan = _plan(options, locations, cores)
    return Order(plan, options.memory or 2048, cores, options.every, follow=bool(options.follow))


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
    from twophase_spark.auditing.run import look_into, run  # noqa: PLC0415 -- the same
    from twophase_spark.progress import progress_shown  # noqa: PLC0415 -- PySpark is slow to import: arguments first
    from twophase_spark.readers.probe import is_small  # noqa: PLC0415 -- the same
    from twophase_spark.session import SessionSettings, open_session  # noqa: PLC0415 -- the same

    plan = order.plan
    sources = look_into(plan)
    small = all(map(is_small, sources))
    settings = SessionSettings(cores=order.cores, memory_mb=order.memory_mb, name="twophase audit", short=small)
    if order.follow:
        return _follow(order, files, settings, say, show)
    say("starting Spark")
    with open_session(settings) as spark:
        if order.every_s is None:
            with progress_shown(spark, say):
                report = run(spark, plan, sources, say)
            files.made = True
            show(report, plan.html)
            return report.verdict.exit_code
        return _rounds(spark, order, files, say, show)


def _follow(order: Order, files: ReportFiles, settings: SessionSettings, say: Say, show: Show) -> int:
    """Audit what history's stream brings, until SIGINT or SIGTERM."""
    from twophase_spark.auditing import following  # noqa: PLC0415 -- PySpark is slow to import
    from twophase_spark.session import open_session  # noqa: PLC0415 -- the same

    def shown(report: Report) -> None:
        files.made = True
        show(report, order.plan.html)
        files.made = False

    def failed(error: Exception) -> None:
        _not_checked(files, error, say)
        files.made = False

    references = following.references_of(order.plan.locations)
    say("starting Spark")
    with open_session(settings) as spark, _stop_requested() as stop:
        terms = following.Following(
            references=references,
            stop=stop,
            say=say,
            show=shown,
            failed=failed,
            every_s=following.EVERY_SECONDS if order.every_s is None else order.every_s,
        )
        return following.Follower(spark, order.plan, terms).run()


def _not_checked(files: ReportFiles, error: Exception, say: Say) -> None:
    """Report the error that ended a round, for people and for machines."""
    say(f"could not check in this round: {last_line(error)}")
    files.say_not_made(f"Could not check. {last_line(error)}")


class _Given(Exception):
    """A round that was given up, because its grace time would have been cut short."""


def _rounds(spark: SparkSession, order: Order, files: ReportFiles, say: Say, show: Show) -> int:
    """Audit until SIGINT or SIGTERM, which end a wait at once, and a round at its end.

    A round that waits for the grace time is given up: what it would call a violation may only be late to arrive.
    """
    from twophase_spark.auditing.run import look_into, run  # noqa: PLC0415 -- the same
    from twophase_spark.progress import progress_shown  # noqa: PLC0415 -- PySpark is slow to import

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
                with progress_shown(spark, say):
                    report = run(spark, order.plan, look_into(order.plan), say, pause=wait)
                files.made = True
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


def _parser(role: Role) -> Callable[[str], Location]:
    return lambda text: parse_named(role, text)


def _plan(options: Options, locations: list[Location], cores: int) -> Plan:
    defaults = Plan(())
    return Plan(
        locations=tuple(locations),
        grace_s=defaults.grace_s if options.grace is None else options.grace,
        late_s=defaults.late_s if options.late is None else options.late,
        overlap_s=defaults.overlap_s if options.overlap is None else options.overlap,
        complete=bool(options.complete),
        allow_empty=bool(options.allow_empty),
        cores=cores,
        html=_path(options.html),
        json=_path(options.json),
        junit=_path(options.junit),
        findings=_path(options.findings),
        state=_path(options.state),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _require_sound(locations: list[Location], options: Options) -> None:
    require_comparable(locations)
    for path in (options.html, options.json, options.junit, options.state, options.findings):
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise ConfigurationError(f"{path}: there is no folder {Path(path).absolute().parent}; make it first.")
    if options.every is not None and options.state is None:
        raise ConfigurationError("--every needs --state: without it every round would read everything again.")
    if options.follow and options.state is None:
        raise ConfigurationError("--follow needs --state: the point that history's stream extends.")
    if options.follow and options.every == 0:
        raise ConfigurationError("--every must be above 0 with --follow.")
    for name in ("grace", "late", "overlap", "every"):
        value = getattr(options, name)
        if value is not None and value < 0:
            raise ConfigurationError(f"{name} is {value}; seconds are not negative.")
