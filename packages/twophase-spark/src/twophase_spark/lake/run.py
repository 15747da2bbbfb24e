"""`twophase spark archive`: copy, read again, compare, commit, and release.

Only a release lets the store remove rows. Each round is one commit: it is whole or has not happened (see `lake`). After
a crash the next run continues behind the marks of the last commits. Attempts are committed last, with the time up to
which everything is there; the store is notified of it then, and again by the next run, because its mark never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from twophase.core.hooks import Clock
from twophase_spark.lake import marks
from twophase_spark.lake.copying import Task, check, copy
from twophase_spark.lake.planning import ROWS_PER_TASK, Plan, plan
from twophase_spark.lake.spans import Span
from twophase_spark.lake.tables import AUDIT_THROUGH, ENTRIES_UNTIL, NODES, UNTIL, Lake, Snapshot, node_mark, writing
from twophase_spark.source.options.looking import looked_into
from twophase_spark.source.options.read_options import ReadOptions, parse
from twophase_spark.source.partitions.parts import Stretch
from twophase_spark.source.schema.tables import Kind

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
    entries: int
    missing: int
    files: int
    through: dict[int, int]
    until_ms: int


def archive(url: str, place: str | Path, settings: Settings) -> Archived:
    """Copy the new rows of the store at `url` into the lake, and release them.

    The store may remove released rows.

    Arguments:
        url: as option `url` of the source: env:NAME, file:PATH or a URL without password.
        place: a folder, or the URL of a place in an object store.

    Raises:
        ArchiveRefused: another archive is at work there, store and lake do not belong together, or the lake's place
            refuses.
        HistoryGap: rows are gone that were never archived.
        LakeDamaged: what was written differs from the store, or a log of the lake cannot be read.
        CannotRead: the store cannot be reached.
    """
    options = parse({"url": url, "table": Kind.HISTORY, "name": "store"})
    location = marks.store_at(url)
    with looked_into(options):
        lake = Lake(place)  # of a store that can be read: an empty lake that a wrong URL leaves would verify as whole
    with writing(lake):
        lake.create()
        snapshot = lake.snapshot()
        before = snapshot.extent()
        marks.claim(location, snapshot.identity, before)
        todo = plan(options, snapshot, settings.clock, settings.rows_per_task)
        lake.settle()
        marks.release(location, snapshot.identity, before)  # not before the plan, which refuses a restored store
        settings.reached("claimed")
        settings.say(
            f"{todo.rows} rows of history, {todo.attempt_rows} attempts, {todo.entry_rows} entries of queues and "
            f"{todo.audit_rows} rows of the audit log to copy"
        )
        with settings.workers(todo.rows + todo.attempt_rows + todo.entry_rows + todo.audit_rows) as spread:
            run = _Run(snapshot, options, todo, settings, spread)
            for one in run.rounds():
                run.make(one)
        lake.settle()
        marks.release(location, snapshot.identity, snapshot.extent())
        settings.reached("released")
        lake.clean()
    return run.archived()


class _Round(msgspec.Struct, frozen=True):
    """The tasks of one commit, and the marks that it raises.

    `expected`: the number of rows, None where no number tells.
    """

    kind: Kind
    tasks: Sequence[Task]
    marks: Mapping[str, int]
    expected: int | None = None


class _Run:
    """The rounds of one run, one after the other."""

    def __init__(
        self, snapshot: Snapshot, options: ReadOptions, todo: Plan, settings: Settings, spread: Spread
    ) -> None:
        self._snapshot = snapshot
        self._options = options
        self._todo = todo
        self._settings = settings
        self._spread = spread
        self._rows = dict.fromkeys(Kind, 0)
        self._missing = 0
        self._files = 0

    def rounds(self) -> Iterator[_Round]:
        """Yield history, the audit log, entries of queues, and the attempts.

        The last one raises the time up to which everything is there.
        """
        for stretches in self._todo.rounds:
            tasks = [self._task(Kind.HISTORY, one, f"n{one.node}") for one in stretches]
            through = {one.node: one.last for one in stretches}
            yield _Round(Kind.HISTORY, tasks, self._through(through), sum(one.rows for one in stretches))
        known = self._snapshot.extent().through
        gone = {node: top for node, top in self._todo.tops.items() if top and node not in known}
        if gone:  # all their rows were removed before there was an archive
            yield _Round(Kind.HISTORY, (), self._through(gone), 0)
        audit_log = self._todo.audit_log
        if audit_log:
            tasks = [self._task(Kind.AUDIT_LOG, one, "a") for one in audit_log]
            yield _Round(Kind.AUDIT_LOG, tasks, {AUDIT_THROUGH: audit_log[-1].last}, self._todo.audit_rows)
        if self._todo.entries:
            yield self._by_time(Kind.QUEUE_ENTRY, "q", self._todo.entries, ENTRIES_UNTIL)
        yield self._by_time(Kind.ATTEMPT, "r", self._todo.attempts, UNTIL)

    def _by_time(self, kind: Kind, letter: str, spans: Sequence[Span], mark: str) -> _Round:
        options = msgspec.structs.replace(self._options, kind=kind)
        place = self._snapshot.lake.place
        tasks: list[Task] = []
        for span in spans:
            name = f"{letter}{span.first_ms:015}-{span.until_ms:015}"
            tasks.append(Task(options, place, 0, span.first_ms, span.until_ms, name, whole=False, ids=span.ids))
        return _Round(kind, tasks, {mark: self._todo.until_ms})

    def make(self, one: _Round) -> None:
        """Copy, read again, compare, and commit."""
        copied = self._spread(copy, one.tasks)
        self._settings.reached("copied")
        files = [file for of_task in self._spread(check, copied) for file in of_task]
        self._settings.reached("checked")
        rows = sum(file.rows for file in files)
        missing = 0 if one.expected is None else one.expected - rows
        notes = {"twophase.missing": str(missing)}
        self._snapshot.commit(one.kind, files, one.marks, self._settings.clock.now_ms(), notes)
        self._settings.reached("committed")
        self._rows[one.kind] += rows
        self._missing += missing
        self._files += len(files)
        if one.kind is Kind.HISTORY:
            self._settings.say(f"{self._rows[one.kind]} of {self._todo.rows} rows copied and compared")

    def archived(self) -> Archived:
        """Return the sum of all rounds."""
        extent = self._snapshot.extent()
        return Archived(
            history=self._rows[Kind.HISTORY],
            attempts=self._rows[Kind.ATTEMPT],
            audit_rows=self._rows[Kind.AUDIT_LOG],
            entries=self._rows[Kind.QUEUE_ENTRY],
            missing=self._missing,
            files=self._files,
            through=extent.through,
            until_ms=extent.until_ms,
        )

    def _through(self, through: Mapping[int, int]) -> dict[str, int]:
        return {NODES: max(self._todo.tops), **{node_mark(node): last for node, last in through.items()}}

    def _task(self, kind: Kind, one: Stretch, name: str) -> Task:
        whole = not (self._todo.first_time or self._settings.accept_gaps)
        options = msgspec.structs.replace(self._options, kind=kind)
        name = f"{name}-{one.first:012}-{one.last:012}"
        return Task(options, self._snapshot.lake.place, one.node, one.first, one.last, name, whole=whole)
