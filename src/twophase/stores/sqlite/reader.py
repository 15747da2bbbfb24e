"""The readings: one statement each, so that each sees one moment of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from twophase.core.lifecycle import State
from twophase.stores.base import DUE_BYTES_MAX, Overview
from twophase.stores.rows import (
    NODES_SHOWN_MAX,
    OWNERS_COUNTED_MAX,
    Attempt,
    AttemptKind,
    HistoryRow,
    LiveRow,
    NodeSeen,
    Topics,
)
from twophase.stores.sqlite import statements
from twophase.stores.sqlite.statements import ROWS_MAX
from twophase.stores.topic_rows import topics_of


def get(connection: sqlite3.Connection, gid: str) -> LiveRow | HistoryRow | None:
    """Return the row of a gid, live or history."""
    try:
        row = connection.execute(statements.GET, (gid,)).fetchone()
    except UnicodeEncodeError:
        return None  # a lone surrogate: nothing of that name can have been stored
    if row is None:
        return None
    final, *columns, reason = row
    return history_row(columns, reason) if final else live_row(columns)


def due(connection: sqlite3.Connection, until_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
    """Read a page of what is due, in the order of (due_ms, gid), row by row."""
    page: list[LiveRow] = []
    left = DUE_BYTES_MAX
    with closing(connection.execute(statements.DUE, (until_ms, *after, limit))) as rows:
        for row in rows:
            page.append(live_row(row))
            left -= len(page[-1].body)
            if left <= 0:
                break
    return page


def attempts(connection: sqlite3.Connection, gid: str, limit: int) -> Sequence[Attempt]:
    """Return the newest attempts of a gid, oldest first."""
    rows = connection.execute(statements.ATTEMPTS, (gid, limit)).fetchall()
    return [Attempt(row[0], AttemptKind(row[1]), *row[2:]) for row in reversed(rows)]


def overview(connection: sqlite3.Connection, due_by_ms: int) -> Overview:
    """Count the live rows."""
    return Overview(*connection.execute(statements.OVERVIEW, (due_by_ms,)).fetchone())


def nodes(connection: sqlite3.Connection) -> Sequence[NodeSeen]:
    """Return the node slots there ever were."""
    rows = connection.execute(statements.NODES, (NODES_SHOWN_MAX,))
    return [NodeSeen(node, epoch, bool(held), seen_ms) for node, epoch, held, seen_ms in rows]


def waiting_by_owner(connection: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Count the live rows of each owner, and the bytes of their bodies."""
    rows = connection.execute(statements.WAITING_BY_OWNER, (OWNERS_COUNTED_MAX,))
    return {owner: (messages, held) for owner, messages, held in rows}


def size_bytes(connection: sqlite3.Connection) -> int:
    """Return the bytes of the file that are in use."""
    return int(connection.execute(statements.SIZE).fetchone()[0])


def oldest_undecided(
    connection: sqlite3.Connection, before_ms: int, after: tuple[int, str], limit: int
) -> Sequence[LiveRow]:
    """Return a page of prepared rows older than `before_ms`.

    They are in the order of (created_ms, gid).
    """
    return [live_row(row) for row in connection.execute(statements.OLDEST_UNDECIDED, (before_ms, *after, limit))]


def moved(connection: sqlite3.Connection, known: Sequence[tuple[str, int]]) -> set[str]:
    """Return the gids that have another version or are not live."""
    found: set[str] = set()
    for start in range(0, len(known), ROWS_MAX):
        part = known[start : start + ROWS_MAX]
        rows = [(position, gid, version, 0) for position, (gid, version) in enumerate(part)]
        found.update(part[position][0] for (position,) in statements.UNMATCHED.run(connection, (), rows))
    return found


def horizon_ms(connection: sqlite3.Connection) -> int:
    """Gids born before this may have been forgotten."""
    value, _, _ = connection.execute(statements.HORIZON).fetchone()
    assert isinstance(value, int)
    return value


def topics(connection: sqlite3.Connection, known: int) -> Topics | None:
    """Return all topics; None when the store still has the revision `known`."""
    return topics_of(connection.execute(statements.TOPICS, (known,)).fetchall())


def live_row(columns: Sequence[Any]) -> LiveRow:
    """Return a live row from its columns."""
    gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts_, parked, done, body, owner = columns
    return LiveRow(
        gid,
        State(state),
        version,
        due_ms,
        created_ms,
        decided_ms,
        decided_by,
        attempts_,
        bool(parked),
        done,
        body,
        owner=owner or "",
    )


def history_row(columns: Sequence[Any], reason: str) -> HistoryRow:
    """Return a final message from its columns."""
    gid, state, node, seq, created_ms, decided_ms, decided_by, attempts_, finished_ms, done, body, owner = columns
    return HistoryRow(
        node,
        seq,
        gid,
        State(state),
        created_ms,
        decided_ms,
        finished_ms,
        decided_by,
        reason,
        attempts_,
        done,
        body,
        owner or "",
    )
