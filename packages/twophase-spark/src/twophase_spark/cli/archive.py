"""`twophase spark archive`: history into a lake of Delta tables.

Then the coordinator may remove it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from twophase.cli.console import echo, plain_console
from twophase.core.errors import ConfigurationError
from twophase.core.hooks import WallClock
from twophase_spark.cli.ending import exit_codes, say
from twophase_spark.source.options.address import ENVIRONMENT, require_no_secret

if TYPE_CHECKING:
    from twophase_spark.lake.checking import Fault, Verified
    from twophase_spark.lake.purging import Purged
    from twophase_spark.lake.run import Archived, Workers

EXIT_DAMAGED = 1
STORE_VARIABLE: Final = "TWOPHASE_SPARK_STORE"
_FAULTS_SHOWN = 50
_DAY_MS = 86_400_000
OLDER_THAN_DAYS: Final = 35.0
"""The coordinator's own default for keeping history."""

ARCHIVE_EXAMPLES: Final = """\b
Examples:
  twophase spark archive --store sqlite:////var/lib/twophase/twophase.db \\
      --lake /data/lake
  twophase spark archive --store file:/run/secrets/store --lake /data/lake
  twophase spark archive --store file:/run/secrets/store --lake /data/lake \\
      --purge --older-than 35 --dry-run
  twophase spark archive --lake /data/lake --verify
  twophase spark archive --store env:STORE_URL --lake s3://bucket/lake
  twophase spark archive --store env:STORE_URL --detach

\b
  --store  sqlite:///file.db, postgresql://user:password@host/name, or where
           such a URL stands: env:NAME, file:PATH"""


def archive(
    store: Annotated[str | None, typer.Option(metavar="URL", help="The coordinator's store.")] = None,
    lake: Annotated[
        str | None, typer.Option(metavar="PLACE", help="The lake: a folder, or a URL as s3://bucket/path.")
    ] = None,
    verify: Annotated[
        bool | None, typer.Option("--verify", help="Read the whole lake and compare it with its logs.")
    ] = None,
    detach: Annotated[
        bool | None,
        typer.Option("--detach", help="Stop archiving this store: it removes old history without an archive again."),
    ] = None,
    accept_gaps: Annotated[
        bool | None,
        typer.Option("--accept-gaps", help="Continue although some rows were removed before they were archived."),
    ] = None,
    purge: Annotated[
        bool | None, typer.Option("--purge", help="Then remove from the store what verified files of the lake contain.")
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS", help="With --purge: messages that ended this long ago.", show_default=f"{OLDER_THAN_DAYS:g}"
        ),
    ] = None,
    dry_run: Annotated[
        bool | None, typer.Option("--dry-run", help="With --purge: only say what would be removed; change nothing.")
    ] = None,
    memory: Annotated[int, typer.Option(min=512, help="Memory for Spark in MiB.")] = 2048,
    cores: Annotated[int, typer.Option(min=1, help="Cores for Spark.")] = min(os.cpu_count() or 1, 8),
) -> None:
    """Copy history, attempts and the audit log into Delta tables.

    Reads again what it wrote, compares, and only then lets the coordinator forget it. May be stopped and repeated at
    any time.

    Exit code 0: done; 1: --verify or --purge found damage; 2: could not.
    """
    with exit_codes(command="archive", failed="Not archived."):
        if detach:
            if purge or verify or dry_run:
                raise ConfigurationError(
                    "--detach goes with --store alone: what is given up is not verified or purged."
                )
            _detach(store)
            return
        if lake is None:
            raise ConfigurationError("--lake is missing: the place of the lake.")
        if not purge and (dry_run or older_than is not None):
            raise ConfigurationError("--older-than and --dry-run are options of --purge.")
        workers = _workers(memory, cores)
        faulty = False
        if verify:
            faulty = _verify(lake, workers)
        elif not dry_run:
            _archive(store, lake, workers, accept_gaps=bool(accept_gaps))
        if purge:
            days = OLDER_THAN_DAYS if older_than is None else older_than
            faulty |= _purge(store, lake, days, dry_run=bool(dry_run))
    if faulty:
        raise typer.Exit(EXIT_DAMAGED)


def reference_of(store: str | None) -> str:
    """Return the reference that stands for a store's URL from here on.

    One with a password travels to Spark's workers in their environment.

    Raises:
        ConfigurationError: none was given.
    """
    if not store:
        raise ConfigurationError("--store is missing: the URL of the coordinator's store.")
    try:
        return require_no_secret(store)
    except ConfigurationError:
        os.environ[STORE_VARIABLE] = store
        return ENVIRONMENT + STORE_VARIABLE


def _workers(memory_mb: int, cores: int) -> Workers:
    from twophase_spark.lake.workers import fitting  # noqa: PLC0415 -- PySpark is slow to import
    from twophase_spark.session import SessionSettings  # noqa: PLC0415 -- the same

    return fitting(SessionSettings(cores=cores, memory_mb=memory_mb, name="twophase archive", rows=0), say)


def _archive(store: str | None, lake: str, workers: Workers, *, accept_gaps: bool) -> None:
    from twophase_spark.lake import run  # noqa: PLC0415 -- PySpark is slow to import

    settings = run.Settings(clock=WallClock(), workers=workers, say=say, accept_gaps=accept_gaps)
    _show_archived(run.archive(reference_of(store), lake, settings), lake)


def _purge(store: str | None, lake: str, days: float, *, dry_run: bool) -> bool:
    from twophase_spark.lake import purging  # noqa: PLC0415 -- PySpark is slow to import

    settings = purging.PurgeSettings(WallClock(), int(days * _DAY_MS), dry_run=dry_run, say=say)
    done = purging.purge(reference_of(store), lake, settings)
    _show_purged(done, dry_run=dry_run)
    return bool(done.faults)


def _verify(lake: str, workers: Workers) -> bool:
    from twophase_spark.lake.checking import verify  # noqa: PLC0415 -- PySpark is slow to import

    found = verify(lake, workers, say)
    _show_verified(found, lake)
    return bool(found.faults)


def _detach(store: str | None) -> None:
    from twophase_spark.lake import marks  # noqa: PLC0415 -- PySpark is slow to import

    marks.detach(marks.store_at(reference_of(store)))
    echo("the coordinator removes history by its retention again, without an archive")


def _show_archived(done: Archived, lake: str) -> None:
    rows = f"{done.history} rows of history, {done.attempts} attempts, {done.entries} entries of queues and "
    rows += f"{done.audit_rows} rows of the audit log"
    echo(f"archived {rows} in {done.files} files into {lake}")
    if done.missing:
        echo(f"{done.missing} rows were gone from the store before they could be archived")
    if done.through:
        positions = ", ".join(f"seq {seq} of node {node}" for node, seq in sorted(done.through.items()))
        echo(f"the lake has history up to {positions}")
    echo(f"the coordinator may forget what was finished before {_when(done.until_ms)}, when its retention says so")


def _show_purged(done: Purged, *, dry_run: bool) -> None:
    verb = "would be removed" if dry_run else "removed"
    echo(f"{done.history} rows of history and {done.attempts} attempts {verb}, which {done.files} files have")
    if done.history:
        unknown = "would be refused" if dry_run else "is refused"
        echo(f"a gid that was made before {_when(done.before_ms)} and is not known any more {unknown} from now on")
    if done.early:
        echo(f"{done.early} rows stay: their gids say that they were made later than they ended")
    _show_faults(done.faults)


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def _show_verified(found: Verified, lake: str) -> None:
    counted = f"{found.files} files, {found.history} rows of history, {found.attempts} attempts, "
    counted += f"{found.entries} entries of queues, "
    counted += f"{found.audit_rows} rows of the audit log"
    verdict = Text("DAMAGED", "bold red") if found.faults else Text("WHOLE", "bold green")
    plain_console().print(verdict, end="  ")
    echo(f"{lake}: {counted}")
    _show_faults(found.faults)


def _show_faults(faults: Sequence[Fault]) -> None:
    for fault in faults[:_FAULTS_SHOWN]:
        echo(f"{fault.path}: {fault.why}")
    if len(faults) > _FAULTS_SHOWN:
        echo(f"and {len(faults) - _FAULTS_SHOWN} more")
