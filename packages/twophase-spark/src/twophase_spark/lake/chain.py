"""The chain of the archived audit log: whether each row follows the row before.

A file that is as it was written may hold rows that were changed in the store, before they were copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pyarrow.parquet as pq

from twophase.core.audit_chain import Broken, ChainCheck
from twophase.core.audit_log import AuditHead, AuditRow
from twophase_spark.lake.schemas import target_of
from twophase_spark.lake.tables import File, Lake
from twophase_spark.source.schema.tables import Kind


def first_break(lake: Lake, files: Sequence[File]) -> Broken | None:
    """Return the first row that does not follow the row before, if there is one.

    Arguments:
        lake: the lake of these files.
        files: those of the audit log, each as it was written.
    """
    check = ChainCheck()
    anchor: tuple[int, str] | None = None
    for rows in _rows(lake, files):
        first, last = rows[0], rows[-1]
        anchor = anchor or (first.seq - 1, first.previous)
        broken = check.page(rows, AuditHead(last.seq, last.hash, *anchor))
        if broken is not None:
            return broken
    return None


def _rows(lake: Lake, files: Sequence[File]) -> Iterator[list[AuditRow]]:
    """Yield the rows in order, those of one task at a time.

    A task has a file for each day, and all of them have its name.
    """
    ordered = sorted(files, key=lambda file: file.task)
    for _, of_task in itertools.groupby(ordered, lambda file: file.task):
        yield sorted((row for file in of_task for row in _read(lake, file)), key=lambda row: row.seq)


def _read(lake: Lake, file: File) -> Iterator[AuditRow]:
    with lake.files_of(file.kind).open_input_file(file.path) as source:
        table = pq.ParquetFile(source).read(columns=target_of(Kind.AUDIT_LOG).names)
    columns = [table.column(name).to_pylist() for name in target_of(Kind.AUDIT_LOG).names]
    return (AuditRow(*values) for values in zip(*columns, strict=True))
