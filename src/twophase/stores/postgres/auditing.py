"""The audit log on PostgreSQL.

`audit.sql` chains the rows, under the lock of `audit_head`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twophase.core.audit_log import (
    AuditEntry,
    AuditHead,
    AuditPage,
    AuditRow,
    AuditSearch,
    TokensSeen,
    old_until,
    page_bounds,
    page_of,
)
from twophase.stores.postgres import statements
from twophase.stores.postgres.connection import Connection

Acts = tuple[list[Any] | None, ...]
"""The arrays of `audit.sql`."""
_NO_ACTS: Acts = (None,) * 8


def act_columns(entries: Sequence[AuditEntry], places: Sequence[int | None] = ()) -> Acts:
    """Return the arrays of acts; `places`: the item of each in its flush, from 1."""
    if not entries:
        return _NO_ACTS
    bounded = [entry.bounded() for entry in entries]
    return (
        list(places) or [None] * len(bounded),
        [entry.who for entry in bounded],
        [entry.peer for entry in bounded],
        [entry.act for entry in bounded],
        [entry.target for entry in bounded],
        [entry.reason for entry in bounded],
        [entry.before for entry in bounded],
        [entry.after for entry in bounded],
    )


async def head(connection: Connection) -> AuditHead:
    """Return both ends of the chain."""
    return AuditHead(*await connection.fetchrow(statements.AUDIT_HEAD))


async def chain(connection: Connection, after_seq: int, limit: int) -> list[AuditRow]:
    """Return the rows behind a number, in the order of the chain."""
    return [AuditRow(*row) for row in await connection.fetch(statements.AUDIT_CHAIN, after_seq, limit)]


async def search(connection: Connection, wanted: AuditSearch, position: int, limit: int) -> AuditPage:
    """Return a page of the rows that a person looks for, the newest first."""
    ends = await head(connection)
    before, least = page_bounds(position, ends.seq)
    filters = (wanted.target, wanted.who, wanted.act, wanted.since_ms)
    rows = await connection.fetch(statements.AUDIT_SEARCH, before, least, *filters, limit)
    return page_of([AuditRow(*row) for row in rows], limit, least, ends.anchor_seq)


async def tokens(connection: Connection) -> TokensSeen:
    """Return the tokens that were noted last."""
    rows = await connection.fetch(statements.TOKENS)
    return TokensSeen(rows[0][0], {name: description for _, name, description in rows if name is not None})


async def forget(connection: Connection, before_ms: int, through: int | None, limit: int) -> None:
    """Remove rows of the beginning that are older than a time.

    `through`: the last row that an archive has; None without an archive. The head keeps the hash of the last one.
    """
    ends = await head(connection)
    rows = await connection.fetch(statements.AUDIT_OLDEST, ends.anchor_seq, limit)
    until = old_until([(row["seq"], row["at_ms"]) for row in rows], before_ms, through)
    if until:
        await connection.execute(statements.AUDIT_FORGET, until)
