"""The work of one task: copy rows of a table into files, or check such files.

Both read the store in a snapshot of their own and neither trusts the other: the copy reports the files that it made,
the check reads the same rows from the store once more, every byte of the files, and compares the two.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from collections.abc import Iterator
from datetime import date, timedelta
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from twophase.core.errors import HistoryGap, LakeDamaged
from twophase_spark.lake.facts import SHAPES, Facts, Tally, facts_of
from twophase_spark.lake.schemas import target_of
from twophase_spark.lake.tables import DAY, File, Lake
from twophase_spark.readers.snapshot import Run
from twophase_spark.source.options.read_options import ReadOptions
from twophase_spark.source.partitions import gaps
from twophase_spark.source.partitions.parts import Range, Stretch
from twophase_spark.source.partitions.reading import Reader, snapshot_of
from twophase_spark.source.schema.sql import select
from twophase_spark.source.schema.tables import Kind

_ACCEPT_GAPS = (
    "Another program removed these rows. --accept-gaps archives the others, and the commit counts the missing ones."
)
_DAY_MS = 86_400_000
_GROUP_ROWS, _GROUP_BYTES = 65_536, 64 * 2**20
_READ_BYTES = 2**20
_EPOCH = date(1970, 1, 1)


class Task(msgspec.Struct, frozen=True):
    """A stretch of history or of the audit log, or the attempts or entries of a time.

    It travels to an executor. `first`, `last`: seqs, of history those of `node`, both within; of the others times, the
    last one without, and `ids` the lowest and the highest attempt. `lake`: its place. `name`: of the files. `whole`: no
    number may be missing.
    """

    options: ReadOptions
    lake: str
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
        if self.kind is Kind.QUEUE_ENTRY:
            return Range("queue_entry", (f"stored_ms >= {self.first}", f"stored_ms < {self.last}"))
        lowest, highest = self.ids
        times = (f"at_ms >= {self.first}", f"at_ms < {self.last}")
        return Range("attempt", (*times, f"id >= {lowest}", f"id <= {highest}"))


class Check(msgspec.Struct, frozen=True):
    """The files of a task, to be compared with the store: day since 1970 to path."""

    task: Task
    paths: dict[int, str]


def copy(task: Task) -> Check:
    """Write the rows of a task into the lake, one file a day.

    No other attempt of the task writes these files: Spark may run a task again, or twice at a time. Only the files of
    the one whose result reaches the driver are committed.

    Raises:
        HistoryGap: numbers are missing that must not be.
    """
    with _DayFiles(task.kind) as days, snapshot_of(task.options) as (run, engine):
        rows = 0
        for batch in Reader(task.options, target_of(task.kind), engine).rows(run, task.range):
            rows += batch.num_rows
            days.add(batch)
        if task.whole and rows != task.last - task.first + 1:
            raise _gap(task, run, rows)
        return Check(task, days.put(Lake(task.lake), task.name))


def check(found: Check) -> list[File]:
    """Return the files of a task for the commit, when they hold the store's rows.

    Raises:
        LakeDamaged: they do not.
    """
    task = found.task
    tallies: dict[int, Tally] = {}
    with snapshot_of(task.options) as (run, engine):
        for batch in Reader(task.options, target_of(task.kind), engine).rows(run, task.range):
            for day, rows in _by_day(batch, task.kind):
                tallies.setdefault(day, Tally(task.kind)).add(rows)
    if set(tallies) != set(found.paths):
        raise LakeDamaged(f"{task.name}: the days that were written are not those of the store; run it again.")
    return [_checked(task, path, tallies[day].facts()) for day, path in sorted(found.paths.items())]


def _checked(task: Task, path: str, stored: Facts) -> File:
    lake = Lake(task.lake)
    with lake.files_of(task.kind).open_input_file(path) as source:
        written = facts_of(task.kind, pq.ParquetFile(source, page_checksum_verification=True).iter_batches(_GROUP_ROWS))
    bounds = (written.rows, written.first, written.last, written.first_ms, written.last_ms)
    file = File(task.kind, path, task.node, *bounds, 0)
    size_bytes, sha256 = fingerprint(lake, file)
    if written != stored or sha256 != file.sha256:
        raise LakeDamaged(
            f"{file.shown} differs from the store: {_described(written)} were read again, and the store has "
            f"{_described(stored)}.",
            remedy="Nothing was released. Run it again; if it differs again, look at the disk of the lake.",
        )
    return msgspec.structs.replace(file, size_bytes=size_bytes)


def fingerprint(lake: Lake, file: File) -> tuple[int, str]:
    """Return size and SHA-256 of a file."""
    with lake.files_of(file.kind).open_input_stream(file.path) as source:
        return _fingerprint(source)


def _fingerprint(source: IO[bytes]) -> tuple[int, str]:
    digest, size_bytes = hashlib.sha256(), 0
    while piece := source.read(_READ_BYTES):
        digest.update(piece)
        size_bytes += len(piece)
    return size_bytes, digest.hexdigest()


class _DayFiles:
    """The rows of a task, a temporary file a day, each written in large pieces."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._open: dict[int, _DayFile] = {}

    def __enter__(self) -> _DayFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        for day, rows in _by_day(batch, self._kind):
            if day not in self._open:
                self._open[day] = _DayFile(target_of(self._kind))
            self._open[day].add(rows)

    def put(self, lake: Lake, name: str) -> dict[int, str]:
        """Write them into the lake; return their paths."""
        paths: dict[int, str] = {}
        for day, file in self._open.items():
            file.end()
            _, sha256 = _fingerprint(file.file)
            file.file.seek(0)
            place = f"{DAY}={(_EPOCH + timedelta(days=day)).isoformat()}"
            paths[day] = f"{place}/{name}-{secrets.token_hex(4)}-{sha256}.parquet"
            lake.put(self._kind, paths[day], file.file)
        return paths


class _DayFile:
    def __init__(self, schema: pa.Schema) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by _DayFiles
        self._writer = pq.ParquetWriter(self.file, schema, compression="zstd", write_page_checksum=True)
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        if (
            sum(batch.num_rows for batch in self._waiting) >= _GROUP_ROWS
            or sum(batch.nbytes for batch in self._waiting) >= _GROUP_BYTES
        ):
            self._write()

    def end(self) -> None:
        """Complete the file, and go to its beginning."""
        self._write()
        self._writer.close()
        self.file.seek(0)

    def close(self) -> None:
        self._writer.close()
        self.file.close()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema), row_group_size=_GROUP_ROWS)
            self._waiting = []


def _by_day(batch: pa.RecordBatch, kind: Kind) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Return the rows of each day, counted from 1970."""
    days: Any = batch.column(SHAPES[kind].time).to_numpy(zero_copy_only=False) // _DAY_MS
    for day in np.unique(days):
        yield int(day), batch.filter(pa.array(days == day))


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
