"""Attempts, and entries of queues, cut by the time they were made.

So a task and a file have about as many rows as one of history. Attempts have no number that could be cut: an outage
makes as many in an hour as a month does otherwise. So they are counted first, by slices of a second or more, which are
then put together. The ids between which a span's rows lie are no bound of it, but SQLite, which has no index by time,
finds them by these: else each span would read the whole table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import msgspec

from twophase_spark.lake.writing import statement
from twophase_spark.readers.database import Database

SLICE_MS_MIN = 1_000
SLICES_MAX = 100_000


class Span(msgspec.Struct, frozen=True):
    """A time, the last millisecond without, with the number of its attempts.

    `ids`: their lowest and highest id.
    """

    first_ms: int
    until_ms: int
    rows: int
    ids: tuple[int, int]


def spans_between(database: Database, what: str, since_ms: int, until_ms: int, rows_per_span: int) -> tuple[Span, ...]:
    """Return the spans that cover a time; empty when nothing was made in it.

    Arguments:
        database: the store.
        what: `attempts` or `entries`, which have no ids.
        since_ms, until_ms: the time, the last millisecond without.
        rows_per_span: of one task.
    """
    [(counted, first_ms, last_ms, *ids)] = database.rows(statement(f"{what}_made"), (since_ms, until_ms))
    if not counted:
        return ()
    if counted <= rows_per_span:
        return (Span(since_ms, until_ms, int(counted), (int(ids[0]), int(ids[1]))),)
    width_ms = max(SLICE_MS_MIN, (int(last_ms) - int(first_ms)) // SLICES_MAX + 1)
    found = database.rows(statement(f"{what}_by_slice"), (width_ms, since_ms, until_ms))
    slices = [(int(number) * width_ms, *map(int, rest)) for number, *rest in found]
    return put_together(slices, since_ms, until_ms, rows_per_span)


def put_together(slices: Iterable[Sequence[int]], since_ms: int, until_ms: int, rows_per_span: int) -> tuple[Span, ...]:
    """Return spans of whole slices, of `rows_per_span` rows or of one slice.

    A slice is given as beginning, rows, lowest and highest id.

    >>> put_together([(0, 6, 1, 7), (10, 4, 6, 10), (20, 9, 11, 19), (30, 12, 20, 31)], 3, 99, 10)
    (Span(first_ms=3, until_ms=20, rows=10, ids=(1, 10)), Span(first_ms=20, until_ms=30, rows=9, ids=(11, 19)), \
Span(first_ms=30, until_ms=99, rows=12, ids=(20, 31)))
    """
    begun: list[int] = []
    rows: list[int] = []
    ids: list[tuple[int, int]] = []
    for begin_ms, count, lowest, highest in slices:
        if not begun or rows[-1] + count > rows_per_span:
            begun.append(begin_ms if begun else since_ms)
            rows.append(0)
            ids.append((lowest, highest))
        rows[-1] += count
        ids[-1] = (min(ids[-1][0], lowest), max(ids[-1][1], highest))
    bounds = itertools.pairwise([*begun, until_ms])
    return tuple(Span(*times, count, between) for times, count, between in zip(bounds, rows, ids, strict=True))
