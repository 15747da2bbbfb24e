"""`twophase spark archive`: copy, read again, compare, commit, and release.

Only a release lets the store remove rows. Each round is whole or has not happened (see `lake`). After a crash the next
run moves the files of the last round to their final paths, removes files that no manifest names, and continues behind
the last manifest. The store is notified last, and again by the next run, because its mark never falls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from twophase.core.errors import ArchiveRefused
from twophase.core.hooks import Clock
from twophase_spark.archive import marks
from twophase_spark.archive.copying import Task, check, copy
from twophase_spark.archive.lake import FORMAT, Lake, Manifest
from twophase_spark.archive.planning import ROWS_PER_TASK, Plan, plan
from twophase_spark.datasource.options.read_options import ReadOptions, parse
from twophase_spark.datasource.partitions.parts import Stretch
from twophase_spark.datasource.schema.tables import Kind

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


class Spread(Protocol):
    """Runs a function on each item, somewhere; the results in the order of the items."""

    def __call__(self, function: Callable[[_Item], _Made], items: Sequence[_Item], /) -> list[_Made]:
        """Run the function on each item."""
        ...


Workers = Callable[[int], AbstractContextManager[Spread]]
"""Opens a spread for a number of rows."""


def _pass(_: str) -> None:
    pass


class Settings(msgspec.Struct, frozen=True):
    """The options of an archive's run.

    `say` prints its progress for a person; `reached` is for tests that end it at a point.
    """

    clock: Clock
    workers: Workers
    say: Callable[[str], None] = _pass
    reached: Callable[[str], None] = _pass
    accept_gaps: bool = False
    rows_per_task: int = ROWS_PER_TASK


class Archived(msgspec.Struct, frozen=True):
    """The rows that a run has added, and the extent of the lake."""

    history: int
    attempts: int
    audit_rows: int
    missing: int
    files: int
    through: dict[int, int]
    until_ms: int


def archive(url: str, folder: Path, settings: Settings) -> Archived:
    """Copy the new rows of the store at `url` into the lake, and release them.

    The store may remove released rows.

    Arguments:
        url: as option `url` of the source: env:NAME, file:PATH or a URL without password.

    Raises:
        ArchiveRefused: another archive is at work there, store and lake do not belong together, or the lake's file
            system refuses.
        HistoryGap: rows are gone that were never archived.
        LakeDamaged: what was written differs from the store, or the lake's manifests are broken.
        CannotRead: the store cannot be reached.
    """
    options = parse({"url": url, "table": Kind.HISTORY, "name": "store"})
    location = marks.store_at(url)
    lake = Lake(folder)
    with _writing(lake), lake.locked():
        identity = lake.create()
        manifests = lake.manifests()
        last = manifests[-1] if manifests else None
        marks.claim(location, identity, fresh=last is None)
        if last is not None:
            lake.publish(last)
            marks.release(location, identity, last)
        lake.clear_staging()
        settings.reached("claimed")
        todo = plan(options, last, settings.clock, settings.rows_per_task)
        settings.say(
            f"{todo.rows} rows of history, {todo.attempt_rows} attempts and {todo.audit_rows} rows of the audit log to "
            "copy"
        )
        with settings.workers(todo.rows + todo.attempt_rows + todo.audit_rows) as spread:
            added = _Rounds(lake, identity, options, todo, settings, spread).run(last)
        marks.release(location, identity, added[-1])
        settings.reached("released")
        lake.clear_staging()
    return _summed(added)


@contextlib.contextmanager
def _writing(lake: Lake) -> Iterator[None]:
    """Turn errors of the lake's file system into ArchiveRefused."""
    try:
        yield
    except OSError as error:
        raise ArchiveRefused(
            f"{lake.folder} cannot be written: {error.strerror or error}.",
            remedy="See that the folder may be written and has room, and run it again: it goes on where it was.",
        ) from error


class _Rounds:
    """The rounds of one run, one after the other."""

    def __init__(
        self, lake: Lake, identity: int, options: ReadOptions, todo: Plan, settings: Settings, spread: Spread
    ) -> None:
        self._lake = lake
        self._identity = identity
        self._options = options
        self._todo = todo
        self._settings = settings
        self._spread = spread

    def run(self, last: Manifest | None) -> list[Manifest]:
        """Make the rounds and return their manifests.

        The last one has the attempts, the audit log, and the time up to which the store may remove rows.
        """
        made: list[Manifest] = []
        before, rows = last, 0
        for stretches in self._todo.rounds[:-1]:
            before = self._round(before, stretches, final=False)
            made.append(before)
            rows += sum(stretch.rows for stretch in stretches)
            self._settings.say(f"{rows} of {self._todo.rows} rows copied and compared")
        made.append(self._round(before, self._todo.rounds[-1] if self._todo.rounds else (), final=True))
        return made

    def _round(self, before: Manifest | None, stretches: Sequence[Stretch], *, final: bool) -> Manifest:
        reached = self._settings.reached
        number = 1 if before is None else before.number + 1
        staging = self._lake.new_staging(number)
        tasks = self._tasks(number, staging, stretches, final=final)
        copied = self._spread(copy, tasks)
        for task in copied:
            self._lake.take(staging, Path(task.attempt), task.paths)
        reached("copied")
        checked = self._spread(check, copied)
        reached("checked")
        files = tuple(file for task_files in checked for file in task_files)
        through = dict({} if before is None else before.through)
        through |= {stretch.node: stretch.last for stretch in stretches}
        expected = sum(stretch.rows for stretch in stretches) + (self._todo.audit_rows if final else 0)
        manifest = Manifest(
            format=FORMAT,
            number=number,
            lake=self._identity,
            made_ms=self._settings.clock.now_ms(),
            through=through,
            attempts_until_ms=self._todo.until_ms if final else _attempts_until(before),
            until_ms=self._todo.until_ms if final else (0 if before is None else before.until_ms),
            missing=expected - sum(file.facts.rows for file in files if file.table != Kind.ATTEMPT),
            files=files,
            staging=staging.name,
            audit_through=self._audit_through(before, final=final),
        )
        self._lake.commit(manifest)
        reached("committed")
        self._lake.publish(manifest)
        reached("published")
        return manifest

    def _audit_through(self, before: Manifest | None, *, final: bool) -> int:
        if final and self._todo.audit_log:
            return self._todo.audit_log[-1].last
        return 0 if before is None else before.audit_through

    def _tasks(self, number: int, staging: Path, stretches: Sequence[Stretch], *, final: bool) -> list[Task]:
        whole = not (self._todo.first_time or self._settings.accept_gaps)
        tasks = [
            Task(self._options, str(staging), stretch.node, stretch.first, stretch.last, _name(stretch), whole=whole)
            for stretch in stretches
        ]
        if not final:
            return tasks
        audit_log = msgspec.structs.replace(self._options, kind=Kind.AUDIT_LOG)
        tasks += [
            Task(audit_log, str(staging), 0, one.first, one.last, f"a{one.first:012}-{one.last:012}", whole=whole)
            for one in self._todo.audit_log
        ]
        attempts = msgspec.structs.replace(self._options, kind=Kind.ATTEMPT)
        return tasks + [
            Task(
                attempts,
                str(staging),
                0,
                span.first_ms,
                span.until_ms,
                f"r{number:08}-{index:04}",
                whole=False,
                ids=span.ids,
            )
            for index, span in enumerate(self._todo.attempts, 1)
        ]


def _name(stretch: Stretch) -> str:
    return f"n{stretch.node}-{stretch.first:012}-{stretch.last:012}"


def _attempts_until(manifest: Manifest | None) -> int:
    return 0 if manifest is None else manifest.attempts_until_ms


def _summed(added: list[Manifest]) -> Archived:
    files = [file for manifest in added for file in manifest.files]
    rows = {kind: sum(file.facts.rows for file in files if file.table == kind) for kind in Kind}
    return Archived(
        history=rows[Kind.HISTORY],
        attempts=rows[Kind.ATTEMPT],
        audit_rows=rows[Kind.AUDIT_LOG],
        missing=sum(manifest.missing for manifest in added),
        files=len(files),
        through=added[-1].through,
        until_ms=added[-1].until_ms,
    )
