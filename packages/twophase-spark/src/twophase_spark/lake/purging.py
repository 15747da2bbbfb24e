"""`twophase spark archive --purge`: remove from the store the rows of the lake.

It removes nothing else, and leaves the audit log and the entries of queues to the coordinator's own retention: a
message stays as long as its entry. A row is removed when a file of the lake holds this very row (number, gid and time),
and every byte of that file was just read again and is as it was written. The rows of any other file stay in the store.

The removal of history must be recorded, or a forgotten gid would get a second life (correctness rule 15): the history
horizon rises in the transaction of the deletes, to the age asked for, and a row stays whose gid, made by twophase, was
born later although its message is older: its producer's clock is ahead. It works as the coordinator's own retention
does, and beside it, on PostgreSQL. A SQLite file has one writer (ADR 0003): there a running server must do the cleaning
itself.

The process may be killed at any moment: each transaction is whole, and the next run finds the remaining rows by
looking.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from twophase.core.errors import ArchiveRefused, ConfigurationError
from twophase.core.gid import born_ms
from twophase.core.hooks import Clock
from twophase_spark.lake import marks
from twophase_spark.lake.checking import Fault, Look, look_at
from twophase_spark.lake.facts import SHAPES
from twophase_spark.lake.planning import store_now_ms
from twophase_spark.lake.tables import File, Lake, Snapshot
from twophase_spark.lake.writing import Transaction, changing, statement
from twophase_spark.locations import Location
from twophase_spark.readers.database import open_database
from twophase_spark.readers.probe import ENTRIES
from twophase_spark.source.schema.tables import Kind

AGE_MS_MIN = 7_200_000
"""Bound on the age, as for retention: a younger message may still be in progress."""
ROWS_PER_STEP = 500
PAUSE_SHARE = 9
"""Pause as a multiple of a step's time: a tenth of the store's time at most."""
_Item = TypeVar("_Item")
Key = tuple[int, str, int]
"""(seq, gid, finished_ms) of history, (id, gid, at_ms) of attempts."""


class PurgeSettings(msgspec.Struct, frozen=True):
    """The options of a purge.

    `older_than_ms`: by the store's clock, since they were finished or made; `dry_run`: only count. `pause` waits for
    seconds; `reached` is for tests that end it at a point.
    """

    clock: Clock
    older_than_ms: int
    dry_run: bool = False
    say: Callable[[str], None] = lambda _: None
    pause: Callable[[float], None] = time.sleep
    reached: Callable[[str], None] = lambda _: None
    rows_per_step: int = ROWS_PER_STEP


class Purged(msgspec.Struct, frozen=True):
    """The rows that were removed, or would be.

    `early`: rows kept because their gids were born later than `before_ms`.
    """

    history: int
    attempts: int
    files: int
    early: int
    before_ms: int
    faults: tuple[Fault, ...]


def purge(url: str, place: str | Path, settings: PurgeSettings) -> Purged:
    """Remove what the lake at `place` has from the store at `url`.

    Raises:
        ArchiveRefused: no lake, another store's, or a server uses the SQLite file.
        LakeDamaged: a log of it cannot be read.
        ConfigurationError: the age is too small.
        CannotRead: the store cannot be reached.
    """
    if settings.older_than_ms < AGE_MS_MIN:
        raise ConfigurationError("--older-than must be two hours at least: a younger message may still be on its way.")
    location = marks.store_at(url)
    snapshot = Lake(place).snapshot()
    with _alone(location, dry_run=settings.dry_run):
        with open_database(location) as database:
            known = {str(name): int(value) for name, value in database.rows(statement("horizon"))}
            now_ms = store_now_ms(database, location.engine, settings.clock)
        if known.get("archive_lake") != snapshot.identity:
            raise marks.other_lake(location)
        before_ms = max(0, min(now_ms - settings.older_than_ms, snapshot.extent().until_ms))
        return _Purge(location, snapshot, settings, before_ms).run()


class _Purge:
    """One run over the files of a lake."""

    def __init__(self, location: Location, snapshot: Snapshot, settings: PurgeSettings, before_ms: int) -> None:
        self._location = location
        self._snapshot = snapshot
        self._lake = snapshot.lake
        self._settings = settings
        self._before_ms = before_ms
        self._removed = dict.fromkeys(Kind, 0)
        self._early = 0

    def run(self) -> Purged:
        """Purge file by file, those of the oldest day first."""
        faults: list[Fault] = []
        used = 0
        for file in (file for kind in (Kind.HISTORY, Kind.ATTEMPT) for file in self._snapshot.files(kind)):
            standing = self._standing(file)
            if not standing:
                continue
            fault = look_at(Look(self._lake.place, file))
            if fault is not None:
                faults.append(fault)
                self._settings.say(f"{file.shown}: {fault.why}; its rows stay in the store")
                continue
            used += 1
            self._settings.reached("verified")
            self._take(file, self._listed(file, standing))
        removed = self._removed
        return Purged(removed[Kind.HISTORY], removed[Kind.ATTEMPT], used, self._early, self._before_ms, tuple(faults))

    def _standing(self, file: File) -> list[Key]:
        """Return the rows within a file's bounds that the store has, if old enough."""
        if file.kind is Kind.HISTORY:
            bounds: tuple[int, ...] = (file.node, file.first, file.last, self._before_ms)
        else:
            bounds = (file.first, file.last, file.first_ms, file.last_ms + 1, self._before_ms)
        with open_database(self._location) as database:
            name = "purgeable_attempts"
            if file.kind is Kind.HISTORY:  # the store of an older coordinator has no queues
                name = "purgeable_history" if database.columns(ENTRIES) else "purgeable_history_without_queues"
            found = [(int(number), str(gid), int(at)) for number, gid, at in database.rows(statement(name), bounds)]
        kept = [key for key in found if file.kind is Kind.ATTEMPT or not self._is_early(key)]
        self._early += len(found) - len(kept)
        return kept

    def _is_early(self, key: Key) -> bool:
        born = born_ms(key[1])
        return born is not None and born >= self._before_ms

    def _listed(self, file: File, standing: Sequence[Key]) -> list[Key]:
        """Return those of the rows that the file has.

        Raises:
            ArchiveRefused: the store has another message under a number of history that the file has.
        """
        shape = SHAPES[file.kind]
        columns = [shape.key, "gid", shape.time]
        with self._lake.files_of(file.kind).open_input_file(file.path) as source:
            table = pq.ParquetFile(source).read(columns=columns)
        numbers, gids, times = (table.column(name).cast(kind).to_pylist() for name, kind in _columns(columns))
        listed = {number: (gid, at) for number, gid, at in zip(numbers, gids, times, strict=True)}
        same = [key for key in standing if listed.get(key[0]) == key[1:]]
        others = [key for key in standing if key[0] in listed and listed[key[0]] != key[1:]]
        if others and file.kind is Kind.HISTORY:
            raise ArchiveRefused(
                f"{self._location.shown} has other messages than the lake under node {file.node}, seq "
                f"{others[0][0]}: it was restored from a backup, or is another store. These rows stay.",
                remedy="Archive it into a new lake: first --detach, then another --lake.",
            )
        return same

    def _take(self, file: File, keys: Sequence[Key]) -> None:
        kind = file.kind
        if self._settings.dry_run:
            self._removed[kind] += len(keys)
            return
        for some in _in_lots(keys, self._settings.rows_per_step):
            began_s = time.monotonic()
            with changing(self._location) as transaction:
                self._removed[kind] += self._remove(transaction, file, kind, some)
            self._settings.reached("removed")
            self._settings.pause((time.monotonic() - began_s) * PAUSE_SHARE)
        self._settings.say(f"{file.shown}: {len(keys)} rows removed")

    def _remove(self, transaction: Transaction, file: File, kind: Kind, keys: Sequence[Key]) -> int:
        """Raise the horizon first, then remove the rows.

        A transaction that waits for the horizon does not lock the rows.
        """
        known = {str(name): int(value) for name, value in transaction.rows(statement("horizon"))}
        if known.get("archive_lake") != self._snapshot.identity:
            raise marks.other_lake(self._location)
        if kind is Kind.ATTEMPT:
            return transaction.many(statement("purge_attempts"), keys)
        transaction.rows(statement("raise_horizon"), (self._before_ms, self._before_ms))
        removed = transaction.many(statement("purge_history"), [(*key, file.node) for key in keys])
        self._settings.reached("removing")
        return removed


def _columns(names: Sequence[str]) -> list[tuple[str, pa.DataType]]:
    return list(zip(names, (pa.int64(), pa.string(), pa.int64()), strict=True))


def _in_lots(items: Sequence[_Item], size: int) -> Iterator[list[_Item]]:
    left = iter(items)
    while lot := list(itertools.islice(left, size)):
        yield lot


@contextlib.contextmanager
def _alone(location: Location, *, dry_run: bool) -> Iterator[None]:
    """Hold the right to serve a SQLite file, which is the lock that a server takes.

    PostgreSQL needs none.

    Raises:
        ArchiveRefused: a server has it.
    """
    if location.engine != "sqlite" or dry_run or not Path(location.path).is_file():
        yield
        return
    path = os.path.realpath(location.path)
    descriptor = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveRefused(
                f"A server uses {location.shown}, and a SQLite store has one writer.",
                remedy="Stop the server for the purge; or leave it out: the server's own retention removes what is "
                "archived (retention_ms).",
            ) from None
        yield
    finally:
        os.close(descriptor)
