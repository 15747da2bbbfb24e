"""The work of one task: copy rows of a table into files, or check such files.

Both read the store in a snapshot of their own and neither trusts the other: the copy reports the files that it made,
the check reads the same rows from the store once more, every byte of the files, and compares the two.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from twophase.core.errors import HistoryGap, LakeDamaged
from twophase_spark.archive.facts import SHAPES, Facts, Tally, facts_of
from twophase_spark.archive.lake import File, attempt_folder, make_folder
from twophase_spark.archive.schemas import target_of
from twophase_spark.datasource.options.read_options import ReadOptions
from twophase_spark.datasource.partitions import gaps
from twophase_spark.datasource.partitions.connection import Run
from twophase_spark.datasource.partitions.parts import Range, Stretch
from twophase_spark.datasource.partitions.reading import Reader, snapshot_of
from twophase_spark.datasource.schema.sql import select
from twophase_spark.datasource.schema.tables import Kind

_ACCEPT_GAPS = (
    "Somebody else removed them. To archive what is left and say in the manifest how many are missing: --accept-gaps."
)
_DAY_MS = 86_400_000
_GROUP_ROWS, _GROUP_BYTES = 65_536, 64 * 2**20
_READ_BYTES = 2**20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Task(msgspec.Struct, frozen=True):
    """A stretch of history or of the audit log, or the attempts of a time.

    It travels to an executor. `first`, `last`: seqs, of history those of `node`, both within; of attempts times, the
    last one without, and `ids` the lowest and the highest of them. `name`: of the files. `whole`: no number may be
    missing.
    """

    options: ReadOptions
    staging: str
    node: int
    first: int
    last: int
    name: str
    whole: bool
    ids: tuple[int, int] = (0, 0)

    @property
    def kind(self) -> Kind:
        """The task's table."""
        return self.options.kind

    @property
    def range(self) -> Range:
        """The task's rows in the store."""
        if self.kind is Kind.HISTORY:
            return Range("history", (f"node = {self.node}", f"seq >= {self.first}", f"seq <= {self.last}"))
        if self.kind is Kind.AUDIT_LOG:
            return Range("audit_log", (f"seq >= {self.first}", f"seq <= {self.last}"))
        lowest, highest = self.ids
        times = (f"at_ms >= {self.first}", f"at_ms < {self.last}")
        return Range("attempt", (*times, f"id >= {lowest}", f"id <= {highest}"))


class Check(msgspec.Struct, frozen=True):
    """The files of a task, to be compared with the store.

    `attempt`: the folder that the attempt wrote them into.
    """

    task: Task
    attempt: str
    paths: tuple[str, ...]


def copy(task: Task) -> Check:
    """Write the rows of a task, one file a day, into a folder of this attempt.

    No other attempt of the task has it: Spark may run a task again, or twice at a time, and only one attempt's result
    reaches the driver.

    Raises:
        HistoryGap: numbers are missing that must not be.
    """
    attempt = str(attempt_folder(Path(task.staging), secrets.token_hex(8)))
    days = _DayFiles(task, Path(attempt))
    with contextlib.closing(days), snapshot_of(task.options) as (run, engine):
        rows = 0
        for batch in Reader(task.options, target_of(task.kind), engine).rows(run, task.range):
            rows += batch.num_rows
            days.add(batch)
        if task.whole and rows != task.last - task.first + 1:
            raise _gap(task, run, rows)
    return Check(task, attempt, days.paths())


def check(found: Check) -> list[File]:
    """Return the files of a task for the manifest, when they hold the store's rows.

    Raises:
        LakeDamaged: they do not.
    """
    task = found.task
    tallies: dict[int, Tally] = {}
    with snapshot_of(task.options) as (run, engine):
        for batch in Reader(task.options, target_of(task.kind), engine).rows(run, task.range):
            for day, rows in _by_day(batch, task.kind):
                tallies.setdefault(day, Tally(task.kind)).add(rows)
    stored = {_path(task, day): tally.facts() for day, tally in tallies.items()}
    if set(stored) != set(found.paths):
        raise LakeDamaged(f"{task.name}: the days that were written are not those of the store; run it again.")
    files: list[File] = []
    for path in sorted(stored):
        whole = Path(task.staging) / path
        written = read_facts(whole, task.kind)
        if written != stored[path]:
            raise LakeDamaged(
                f"{path} differs from the store: {_described(written)} were read again, and the store has "
                f"{_described(stored[path])}.",
                remedy="Nothing was released. Run it again; if it differs again, look at the disk of the lake.",
            )
        size_bytes, sha256 = fingerprint(whole)
        times = (task.first, task.last) if task.kind is Kind.ATTEMPT else (0, 0)
        files.append(File(path, task.kind.value, task.node, written, size_bytes, sha256, *times))
    return files


def read_facts(path: Path, kind: Kind) -> Facts:
    """Return the facts of a file, from its rows."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return facts_of(kind, file.iter_batches(_GROUP_ROWS))


def fingerprint(path: Path) -> tuple[int, str]:
    """Return size and SHA-256 of a file."""
    digest, size_bytes = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
            size_bytes += len(piece)
    return size_bytes, digest.hexdigest()


class _DayFiles:
    """The files of a task, one a day, each written in large pieces."""

    def __init__(self, task: Task, folder: Path) -> None:
        self._task = task
        self._folder = folder
        self._open: dict[int, _DayFile] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        for day, rows in _by_day(batch, self._task.kind):
            if day not in self._open:
                path = self._folder / _path(self._task, day)
                self._open[day] = _DayFile(path, target_of(self._task.kind))
            self._open[day].add(rows)

    def close(self) -> None:
        for file in self._open.values():
            file.close()

    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(_path(self._task, day) for day in self._open))


class _DayFile:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        make_folder(path.parent)
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", write_page_checksum=True)
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        if (
            sum(batch.num_rows for batch in self._waiting) >= _GROUP_ROWS
            or sum(batch.nbytes for batch in self._waiting) >= _GROUP_BYTES
        ):
            self._write()

    def close(self) -> None:
        self._write()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema), row_group_size=_GROUP_ROWS)
            self._waiting = []


def _by_day(batch: pa.RecordBatch, kind: Kind) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Return the rows of each day, counted from 1970."""
    days: Any = batch.column(SHAPES[kind].time).to_numpy(zero_copy_only=False) // _DAY_MS
    for day in np.unique(days):
        yield int(day), batch.filter(pa.array(days == day))


def _path(task: Task, day: int) -> str:
    return f"{task.kind.value}/dt={(_EPOCH + timedelta(days=day)).date().isoformat()}/{task.name}.parquet"


def _gap(task: Task, run: Run, rows: int) -> HistoryGap:
    if task.kind is Kind.AUDIT_LOG:
        missing = task.last - task.first + 1 - rows
        return HistoryGap(
            f"{missing} rows of the audit log were removed before they were archived: they are among seq {task.first} "
            f"to {task.last}.",
            remedy=_ACCEPT_GAPS,
        )
    stretch = Stretch(task.node, task.first, task.last)
    seqs = run(select(["seq"], "history", task.range.conditions, "seq"), {})
    error = gaps.failure(gaps.holes(stretch, (seq for one in seqs for seq in one.column("seq").to_pylist())))
    return HistoryGap(
        error.message.replace("the stream read them", "they were archived"),
        remedy=_ACCEPT_GAPS,
    )


def _described(facts: Facts) -> str:
    return f"{facts.rows} rows (digest {facts.digest[:12]})"
