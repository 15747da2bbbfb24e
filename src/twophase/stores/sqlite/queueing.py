"""Queues in one SQLite file: what a flush writes, and the readings.

One flush is under way at a time, so the numbers that it takes are visible together.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial

from twophase.stores.batch import Item
from twophase.stores.queue_rows import PAGE_BYTES_MAX, Append, Definition, Entry, Place, Progress, Weight, Weights
from twophase.stores.sqlite import statements
from twophase.stores.sqlite.statements import ROWS_MAX, Row, RowsStatement

Numbers = dict[int, tuple[int, ...]]
"""The numbers of an item's appends, by the item's index."""
Old = tuple[str, int, int, int]
"""The topic, queue and number of an entry, and when it was stored."""


def append(
    connection: sqlite3.Connection,
    at_ms: int,
    items: Sequence[Item],
    appends: Mapping[int, tuple[Append, ...]],
    not_applied: set[int],
) -> Numbers:
    """Append the entries of the items that apply; return their numbers."""
    counts: dict[tuple[str, int], int] = {}
    applied = {index: appends[index] for index in sorted(appends) if index not in not_applied}
    for entries in applied.values():
        for entry in entries:
            counts[entry.topic, entry.queue] = counts.get((entry.topic, entry.queue), 0) + 1
    following: dict[tuple[str, int], int] = {}
    for (topic, queue), count in counts.items():
        connection.execute(statements.QUEUE_ADVANCE, (topic, queue, count))
        (end,) = connection.execute(statements.QUEUE_NEXT, (topic, queue)).fetchone()
        following[topic, queue] = end - count
    numbers: Numbers = {}
    rows: list[Row] = []
    for index, entries in applied.items():
        taken: list[int] = []
        for entry in entries:
            number = following[entry.topic, entry.queue]
            following[entry.topic, entry.queue] = number + 1
            rows.append((entry.topic, entry.queue, number, items[index].gid, entry.branch))
            taken.append(number)
        numbers[index] = tuple(taken)
    _put(connection, statements.QUEUE_APPEND, (at_ms,), rows)
    return numbers


def report(connection: sqlite3.Connection, at_ms: int, progress: Sequence[Progress]) -> None:
    """Write what groups have done."""
    rows: list[Row] = [(one.group, one.topic, one.queue, one.next_number, one.unfinished) for one in progress]
    _put(connection, statements.QUEUE_REPORT, (at_ms,), rows)


def forget(connection: sqlite3.Connection, entries: Sequence[Old]) -> None:
    """Remove entries, and raise the horizon that stands for them."""
    connection.execute(statements.QUEUE_HORIZON, (max(stored_ms for *_, stored_ms in entries) + 1,))
    connection.executemany(statements.QUEUE_FORGET, [entry[:3] for entry in entries])


def definitions(connection: sqlite3.Connection) -> list[Definition]:
    """Return all topics of queues, and all groups."""
    return [Definition(*row) for row in connection.execute(statements.QUEUE_DEFINITIONS)]


def page(connection: sqlite3.Connection, topic: str, queue: int, least: int, limit: int) -> list[Entry]:
    """Return entries from a number on, row by row, until their bodies are enough."""
    entries: list[Entry] = []
    left = PAGE_BYTES_MAX
    with closing(connection.execute(statements.QUEUE_PAGE, (topic, queue, least, limit))) as rows:
        for row in rows:
            entries.append(Entry(*row))
            left -= len(entries[-1].body)
            if left <= 0:
                break
    return entries


def entries(connection: sqlite3.Connection, topic: str, queue: int, numbers: Sequence[int]) -> list[Entry]:
    """Return the entries with these numbers."""
    rows = connection.execute(statements.QUEUE_ENTRIES, (topic, queue, json.dumps(list(numbers))))
    return [Entry(*row) for row in rows]


def ends(connection: sqlite3.Connection, topic: str) -> dict[int, int]:
    """Return the next number of each queue of a topic."""
    return dict(connection.execute(statements.QUEUE_ENDS, (topic,)).fetchall())


def ends_of(connection: sqlite3.Connection, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """Return the next number of each queue of these topics."""
    return {(topic, queue): end for topic in topics for queue, end in ends(connection, topic).items()}


def place(connection: sqlite3.Connection, gid: str, branch: int) -> Place | None:
    """Return where a message's branch is."""
    row = connection.execute(statements.QUEUE_PLACE, (gid, branch)).fetchone()
    return None if row is None else Place(*row)


def progress(connection: sqlite3.Connection, group: str, topic: str) -> list[Progress]:
    """Return a group's progress in the queues of a topic."""
    return [Progress(*row) for row in connection.execute(statements.QUEUE_PROGRESS, (group, topic))]


def weights(connection: sqlite3.Connection, topic: str, places: Sequence[tuple[int, int]]) -> Weights:
    """Return the bytes of some entries, and how far an archive has history."""
    _, archived_until_ms, _ = connection.execute(statements.HORIZON).fetchone()
    rows = connection.execute(statements.QUEUE_WEIGHTS, (topic, json.dumps(list(places))))
    return Weights([Weight(*row) for row in rows], archived_until_ms)


def old(connection: sqlite3.Connection, before_ms: int, limit: int, own_before_ms: Mapping[str, int]) -> list[Old]:
    """Return the entries that nothing needs, at the old end of each queue.

    They end before the first that is younger, so that no clock makes a hole.
    """
    _, archived_until_ms, _ = connection.execute(statements.HORIZON).fetchone()
    found: list[Old] = []
    for topic, queue in connection.execute(statements.QUEUE_COUNTERS).fetchall():
        until_ms = own_before_ms.get(topic, before_ms)
        if archived_until_ms is not None:
            until_ms = min(until_ms, archived_until_ms)
        entries: list[Old] = connection.execute(statements.QUEUE_OLD, (topic, queue, limit)).fetchall()
        found += itertools.takewhile(partial(_is_older, until_ms), entries)
    return found


def _is_older(until_ms: int, entry: Old) -> bool:
    return entry[3] < until_ms


def _put(connection: sqlite3.Connection, statement: RowsStatement, constants: Row, rows: list[Row]) -> None:
    for start in range(0, len(rows), ROWS_MAX):
        statement.run(connection, constants, rows[start : start + ROWS_MAX])
