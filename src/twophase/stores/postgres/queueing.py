"""Queues on PostgreSQL: the columns of `append.sql`, and the readings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from twophase.stores.batch import Complete, Item
from twophase.stores.postgres import statements
from twophase.stores.postgres.connection import Connection
from twophase.stores.queue_rows import PAGE_BYTES_MAX, Append, Definition, Entry, Place, Progress, Weight, Weights

QueueColumns = tuple[list[Any] | None, ...]
"""The arrays of `append.sql`."""
NO_QUEUES: Final[QueueColumns] = (None,) * 14


def queue_columns(
    completes: Sequence[Complete],
    order: Sequence[int],
    items: Sequence[tuple[int, Item]],
    appends: Mapping[int, tuple[Append, ...]],
    progress: Sequence[Progress],
) -> tuple[QueueColumns, list[int]]:
    """Return the arrays, and the item of each entry.

    Arguments:
        completes: messages that enter history at once.
        order: the item of the function's first, second and further place.
        items: the batch's, with their indexes.
        appends: the entries, by item; those of other items are left out.
        progress: of groups.
    """
    entries = [(place, index, entry) for place, index in enumerate(order, 1) for entry in appends.get(index, ())]
    entries.sort(key=lambda one: one[1])  # a queue has the order of the batch, not that of its kinds
    gids = {index: item.gid for index, item in items}
    complete_columns: QueueColumns = (None,) * 3
    if completes:
        complete_columns = (
            [one.gid for one in completes],
            [one.done for one in completes],
            [one.body for one in completes],
        )
    entry_columns: QueueColumns = (None,) * 5
    if entries:
        entry_columns = (
            [place for place, _, _ in entries],
            [entry.topic for _, _, entry in entries],
            [entry.queue for _, _, entry in entries],
            [gids[index] for _, index, _ in entries],
            [entry.branch for _, _, entry in entries],
        )
    reached = progress_columns(progress) if progress else (None,) * 6
    return (*complete_columns, *entry_columns, *reached), [index for _, index, _ in entries]


def progress_columns(progress: Sequence[Progress]) -> QueueColumns:
    """Return the arrays of what groups have done."""
    return (
        [one.group for one in progress],
        [one.topic for one in progress],
        [one.queue for one in progress],
        [one.next_number for one in progress],
        [one.unfinished for one in progress],
        [one.term for one in progress],
    )


def numbers_of(of_items: Sequence[int], numbers: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return the numbers of each item's entries.

    >>> numbers_of([4, 4, 7], [10, 11, -1])
    {4: (10, 11)}
    """
    found: dict[int, tuple[int, ...]] = {}
    for index, number in zip(of_items, numbers, strict=True):
        if number >= 0:
            found[index] = (*found.get(index, ()), number)
    return found


async def definitions(connection: Connection) -> list[Definition]:
    """Return all topics of queues, and all groups."""
    return [Definition(*row) for row in await connection.fetch(statements.QUEUE_DEFINITIONS)]


async def page(connection: Connection, topic: str, queue: int, least: int, limit: int) -> list[Entry]:
    """Return entries from a number on."""
    rows = await connection.fetch(statements.QUEUE_PAGE, topic, queue, least, limit, PAGE_BYTES_MAX)
    return [Entry(*row) for row in rows]


async def entries(connection: Connection, topic: str, queue: int, numbers: Sequence[int]) -> list[Entry]:
    """Return the entries with these numbers."""
    rows = await connection.fetch(statements.QUEUE_ENTRIES, topic, queue, list(numbers))
    return sorted([Entry(*row) for row in rows], key=lambda entry: entry.number)


async def ends(connection: Connection, topic: str) -> dict[int, int]:
    """Return the next number of each queue of a topic."""
    return {row[0]: row[1] for row in await connection.fetch(statements.QUEUE_ENDS, topic)}


async def ends_of(connection: Connection, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """Return the next number of each queue of these topics."""
    rows = await connection.fetch(statements.QUEUE_ENDS_OF, list(topics))
    return {(row[0], row[1]): row[2] for row in rows}


async def place(connection: Connection, gid: str, branch: int) -> Place | None:
    """Return where a message's branch is."""
    row = await connection.fetchrow(statements.QUEUE_PLACE, gid, branch)
    return None if row is None else Place(*row)


async def progress(connection: Connection, group: str, topic: str) -> list[Progress]:
    """Return a group's progress in the queues of a topic."""
    return [Progress(*row) for row in await connection.fetch(statements.QUEUE_PROGRESS, group, topic)]


async def weights(connection: Connection, topic: str, places: Sequence[tuple[int, int]]) -> Weights:
    """Return the bytes of some entries, and how far an archive has history."""
    _, archived_until_ms, _ = await connection.fetchrow(statements.BOUNDS)
    wanted = [queue for queue, _ in places], [number for _, number in places]
    rows = await connection.fetch(statements.QUEUE_WEIGHTS, topic, *wanted)
    return Weights([Weight(*row) for row in rows], archived_until_ms)


async def forget(connection: Connection, before_ms: int, limit: int, own_before_ms: Mapping[str, int]) -> int:
    """Remove entries at the old end of each queue that nothing needs; return how many."""
    own = list(own_before_ms), list(own_before_ms.values())
    return removed(await connection.execute(statements.QUEUE_FORGET, before_ms, limit, *own))


def removed(done: str) -> int:
    """Return the number of rows in PostgreSQL's word about a delete.

    >>> removed("DELETE 17")
    17
    """
    return int(done.rpartition(" ")[2])
