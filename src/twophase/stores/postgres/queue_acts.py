"""Operators' acts on queues on PostgreSQL, and the readings for them."""

from __future__ import annotations

from collections.abc import Sequence

from twophase.stores.postgres import statements
from twophase.stores.postgres.auditing import Acts
from twophase.stores.postgres.connection import Connection
from twophase.stores.postgres.queueing import progress_columns, removed
from twophase.stores.queue_rows import Definition, Progress, Reader, Span


async def spans(connection: Connection, topic: str) -> list[Span]:
    """Return the extent of each queue of a topic, or of all topics."""
    return [Span(*row) for row in await connection.fetch(statements.QUEUE_SPANS, topic)]


async def first(connection: Connection, topic: str, queue: int, least: int) -> tuple[int, int] | None:
    """Return number and time of the first entry from a number on."""
    row = await connection.fetchrow(statements.QUEUE_FIRST, topic, queue, least)
    return None if row is None else (row[0], row[1])


async def readers(connection: Connection, topic: str, group: str) -> list[Reader]:
    """Return where groups stand."""
    return [Reader(*row) for row in await connection.fetch(statements.QUEUE_READERS, topic, group)]


async def empty(connection: Connection, topic: str, queue: int, before: int, limit: int) -> int:
    """Remove some entries at the old end of a queue; return how many."""
    return removed(await connection.execute(statements.QUEUE_EMPTY, topic, queue, before, limit))


async def define(connection: Connection, wanted: Definition, clock_ms: int | None, node: int, acts: Acts) -> Definition:
    """Make a definition unless there is one, see `QueueStore.define_queue`."""
    named, text = (wanted.kind, wanted.name, wanted.text), None
    while text is None:
        text = await connection.fetchval(statements.QUEUE_DEFINE, *named, clock_ms, node, *acts)
    return Definition(wanted.kind, wanted.name, text)


async def change(
    connection: Connection,
    known: Definition | None,
    wanted: Definition | None,
    clock_ms: int | None,
    node: int,
    acts: Acts,
) -> bool:
    """Change a definition, see `QueueStore.change_queue`."""
    named = wanted or known
    assert named is not None, "there is something to change"
    texts = (None if known is None else known.text, None if wanted is None else wanted.text)
    row = await connection.fetchrow(statements.QUEUE_CHANGE, named.kind, named.name, *texts, clock_ms, node, *acts)
    return row is not None


async def reset(
    connection: Connection, progress: Sequence[Progress], clock_ms: int | None, node: int, acts: Acts
) -> bool:
    """Write what groups have done, see `QueueStore.reset_queues`."""
    columns = progress_columns(progress)
    return await connection.fetchrow(statements.QUEUE_RESET, clock_ms, node, *columns, *acts) is not None
