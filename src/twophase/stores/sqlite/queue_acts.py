"""Operators' acts on queues in one SQLite file, and the readings for them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from twophase.stores.queue_rows import Definition, Progress, Reader, Span
from twophase.stores.sqlite import queueing, statements
from twophase.stores.sqlite.queueing import Old

Change = Callable[[sqlite3.Connection, int], bool]
"""A change in an open transaction, given its time; False: it is taken back."""


def spans(connection: sqlite3.Connection, topic: str) -> list[Span]:
    """Return the extent of each queue of a topic, or of all topics."""
    found: list[Span] = []
    for name, queue, end in connection.execute(statements.QUEUE_ENDS_OF, (topic,)).fetchall():
        number, stored_ms = first(connection, name, queue, 0) or (end, None)
        found.append(Span(name, queue, number, end, stored_ms))
    return found


def first(connection: sqlite3.Connection, topic: str, queue: int, least: int) -> tuple[int, int] | None:
    """Return number and time of the first entry from a number on."""
    row: tuple[int, int] | None = connection.execute(statements.QUEUE_FIRST, (topic, queue, least)).fetchone()
    return row


def readers(connection: sqlite3.Connection, topic: str, group: str) -> list[Reader]:
    """Return where groups stand."""
    return [Reader(*row) for row in connection.execute(statements.QUEUE_READERS, (topic, group))]


def keys(connection: sqlite3.Connection, topic: str, queue: int, before: int, limit: int) -> list[Old]:
    """Return the keys and times of entries at the old end of a queue."""
    return connection.execute(statements.QUEUE_KEYS, (topic, queue, before, limit)).fetchall()


def change(known: Definition | None, wanted: Definition | None) -> Change:
    """Return the change of a definition, see `QueueStore.change_queue`."""
    named = wanted or known
    assert named is not None, "there is something to change"

    def put(connection: sqlite3.Connection, _at_ms: int) -> bool:
        if known is None:
            made = connection.execute(statements.QUEUE_DEFINE, (named.kind, named.name, named.text))
            return made.rowcount == 1
        if wanted is not None:
            changed = (wanted.text, known.kind, known.name, known.text)
            return connection.execute(statements.QUEUE_REDEFINE, changed).rowcount == 1
        if connection.execute(statements.QUEUE_UNDEFINE, (known.kind, known.name, known.text)).rowcount != 1:
            return False
        connection.execute(statements.QUEUE_UNREAD, (known.kind, known.name))
        return True

    return put


def reset(progress: Sequence[Progress]) -> Change:
    """Return the change of what groups have done, see `QueueStore.reset_queues`."""

    def put(connection: sqlite3.Connection, at_ms: int) -> bool:
        queueing.report(connection, at_ms, progress)
        return True

    return put
