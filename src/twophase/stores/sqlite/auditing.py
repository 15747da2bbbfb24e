"""The audit log on SQLite.

Its rows are chained here, as the one writer knows the last hash.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from twophase.core.audit_log import (
    AuditEntry,
    AuditHead,
    AuditPage,
    AuditRow,
    AuditSearch,
    TokensSeen,
    chained,
    old_until,
    page_bounds,
    page_of,
)
from twophase.stores.sqlite import statements


def append(connection: sqlite3.Connection, at_ms: int, node: int, entries: Iterable[AuditEntry]) -> None:
    """Append rows in the transaction that is open."""
    rows = chained(head(connection), at_ms, node, [entry.bounded() for entry in entries])
    if rows:
        connection.executemany(statements.AUDIT_APPEND, [msgspec.structs.astuple(row) for row in rows])
        connection.execute(statements.AUDIT_ADVANCE, (rows[-1].seq, rows[-1].hash))


def head(connection: sqlite3.Connection) -> AuditHead:
    """Return both ends of the chain."""
    return AuditHead(*connection.execute(statements.AUDIT_HEAD).fetchone())


def chain(connection: sqlite3.Connection, after_seq: int, limit: int) -> Sequence[AuditRow]:
    """Return the rows behind a number, in the order of the chain."""
    return [AuditRow(*row) for row in connection.execute(statements.AUDIT_CHAIN, (after_seq, limit))]


def search(connection: sqlite3.Connection, wanted: AuditSearch, position: int, limit: int) -> AuditPage:
    """Return a page of the rows that a person looks for, the newest first."""
    ends = head(connection)
    before, least = page_bounds(position, ends.seq)
    filters = (wanted.target, wanted.who, wanted.act, wanted.since_ms)
    rows = connection.execute(statements.AUDIT_SEARCH, (before, least, *filters, limit))
    return page_of([AuditRow(*row) for row in rows], limit, least, ends.anchor_seq)


def tokens(connection: sqlite3.Connection) -> TokensSeen:
    """Return the tokens that were noted last."""
    rows = connection.execute(statements.TOKENS).fetchall()
    return TokensSeen(rows[0][0], {name: description for _, name, description in rows if name is not None})


def put_tokens(connection: sqlite3.Connection, known: TokensSeen, now: dict[str, str]) -> bool:
    """Note tokens in the open transaction; False when others than `known` are noted."""
    if connection.execute(statements.BUMP_TOKENS, (known.revision,)).rowcount != 1:
        return False
    connection.executemany(statements.REMOVE_TOKEN, [(name,) for name in known.by_name.keys() - now.keys()])
    connection.executemany(statements.PUT_TOKEN, list(now.items()))
    return True


def oldest(connection: sqlite3.Connection, before_ms: int, through: int | None, limit: int) -> int:
    """Return the number of the last row that cleaning may remove; 0 for none.

    `through`: the last row that an archive has; None without an archive.
    """
    rows = connection.execute(statements.AUDIT_OLDEST, (head(connection).anchor_seq, limit))
    return old_until(rows, before_ms, through)


def forget(connection: sqlite3.Connection, until: int) -> None:
    """Remove the rows up to a number, in the transaction that is open.

    The head keeps the hash of the last one.
    """
    connection.execute(statements.AUDIT_ANCHOR, (until,))
    connection.execute(statements.AUDIT_FORGET, (until,))
