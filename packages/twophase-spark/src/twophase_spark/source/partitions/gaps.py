"""Rows of history that are gone before a stream has read them.

They are found for certain, never skipped. A node's seqs have no holes when they are written, so a stretch of them has
exactly as many rows as numbers. Fewer means that retention or an archive removed some: before the stream came there, or
between the planning of a batch and its reading (also when a batch is read again after a crash).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from twophase.core.errors import HistoryGap
from twophase_spark.source.partitions.parts import Stretch
from twophase_spark.source.schema.tables import GAP_ROWS


def holes(stretch: Stretch, seqs: Iterable[int]) -> list[Stretch]:
    """Return the parts of a stretch without rows. `seqs`: of its rows, ascending.

    >>> holes(Stretch(1, 3, 9), [3, 4, 7])
    [Stretch(node=1, first=5, last=6, topic=''), Stretch(node=1, first=8, last=9, topic='')]
    """
    found: list[Stretch] = []
    expected = stretch.first
    for seq in seqs:
        if seq > expected:
            found.append(msgspec.structs.replace(stretch, first=expected, last=seq - 1))
        expected = seq + 1
    if expected <= stretch.last:
        found.append(msgspec.structs.replace(stretch, first=expected))
    return found


def failure(found: list[Stretch]) -> HistoryGap:
    """Return the error for gaps that are not to be reported as rows."""
    rows = sum(hole.last - hole.first + 1 for hole in found)
    first = found[0]
    more = f" and {len(found) - 1} more places" if len(found) > 1 else ""
    if first.topic:
        where = f"queue {first.node} of {first.topic}, number {first.first - 1} to {first.last - 1}"
        return HistoryGap(f"{rows} entries were removed before the stream read them: {where}{more}.")
    return HistoryGap(
        f"{rows} rows of history were removed before the stream read them: node {first.node}, "
        f"seq {first.first} to {first.last}{more}."
    )


def as_rows(found: list[Stretch], target: pa.Schema) -> pa.RecordBatch:
    """Return one row a gap: the place of its last row, all else null.

    `gap_rows` is the number of rows that are gone.
    """
    known = {
        "node": [hole.node for hole in found],
        "seq": [hole.last for hole in found],
        "topic": [hole.topic for hole in found],
        "queue": [hole.node for hole in found],
        "number": [hole.last - 1 for hole in found],
        GAP_ROWS.name: [hole.last - hole.first + 1 for hole in found],
    }
    columns = [
        pa.array(known[field.name], field.type) if field.name in known else pa.nulls(len(found), field.type)
        for field in target
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)
