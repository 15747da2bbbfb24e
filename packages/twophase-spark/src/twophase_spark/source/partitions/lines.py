"""The lines that a stream follows: a node's history, or a queue.

The rows of a line are numbered from 1 in commit order, without holes: a node's by their seq, a queue's by the number
behind theirs, which is the position of a consumer that has done them. A line's last number is written in the commit
that adds its rows; so a reader that sees it sees all rows up to there.
"""

from __future__ import annotations

from twophase_spark.readers.database import Database
from twophase_spark.source.partitions.parts import Range, Stretch
from twophase_spark.source.partitions.planning import lowest_seq, newest_seqs
from twophase_spark.source.schema.sql import literal, select
from twophase_spark.source.schema.tables import Kind

Line = tuple[str, int]
"""A topic and the number of its queue; or an empty text and a node."""


def text_of(line: Line) -> str:
    """Return a line's name in an offset.

    >>> text_of(("shop/orders", 0)), text_of(("", 1))
    ('shop/orders/0', '1')
    """
    topic, number = line
    return f"{topic}/{number}" if topic else str(number)


def line_of(text: str) -> Line:
    """Return the line of this name.

    >>> line_of("shop/orders/0"), line_of("1")
    (('shop/orders', 0), ('', 1))

    Raises:
        ValueError: it names none.
    """
    topic, _, number = text.rpartition("/")
    return topic, int(number)


def newest(database: Database, kind: Kind) -> dict[Line, int]:
    """Return the last number of every line, as one statement sees them."""
    if kind is Kind.QUEUE_ENTRY:
        ends = database.rows(select(["topic", "queue", "next_number"], "queue_counter"))
        return {(str(topic), int(queue)): int(end) for topic, queue, end in ends}
    return {("", node): seq for node, seq in newest_seqs(database).items()}


def lowest(database: Database, engine: str, line: Line) -> int | None:
    """Return the number of the first present row of a line; None when it has none."""
    topic, number = line
    if not topic:
        return lowest_seq(database, number)
    [(first,)] = database.rows(select(["min(number)"], "queue_entry", _of_queue(engine, topic, number)))
    return None if first is None else int(first) + 1


def oldest_behind_ms(database: Database, engine: str, line: Line, last: int) -> int | None:
    """Return the time of the first row behind `last`, or None without one."""
    topic, number = line
    if topic:
        table, time = "queue_entry", "stored_ms"
        conditions, order = [*_of_queue(engine, topic, number), f"number >= {int(last)}"], "number"
    else:
        table, time = "history", "finished_ms"
        conditions, order = [f"node = {number}", f"seq > {int(last)}"], "seq"
    found = database.rows(select([time], table, conditions, order) + " limit 1")
    return int(found[0][0]) if found else None


def range_of(stretch: Stretch, engine: str) -> Range:
    """Return the rows of a stretch."""
    if not stretch.topic:
        bounds = (f"seq >= {stretch.first}", f"seq <= {stretch.last}")
        return Range("history", (f"node = {stretch.node}", *bounds))
    bounds = (f"number >= {stretch.first - 1}", f"number < {stretch.last}")
    return Range("queue_entry", (*_of_queue(engine, stretch.topic, stretch.node), *bounds))


def numbers_of(stretch: Stretch, engine: str) -> str:
    """Return the statement for the numbers of a stretch's rows, in their order."""
    found = range_of(stretch, engine)
    number = "number + 1" if stretch.topic else "seq"
    return select([f"{number} as place"], found.table, found.conditions, "place")


def last_of(stretch: Stretch, engine: str) -> str:
    """Return the statement for the last number of a stretch's line."""
    if stretch.topic:
        return select(["next_number as place"], "queue_counter", _of_queue(engine, stretch.topic, stretch.node))
    return select(["seq as place"], "node", [f"id = {stretch.node}"])


def _of_queue(engine: str, topic: str, queue: int) -> tuple[str, str]:
    return f"topic = {literal(engine, topic)}", f"queue = {queue}"
