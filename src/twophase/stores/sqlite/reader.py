"""What is read: one statement each, so that each sees one moment of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from twophase.core.lifecycle import State
from twophase.stores.base import Attempt, AttemptKind, HistoryRow, LiveRow, Overview
from twophase.stores.sqlite import statements


def get(connection: sqlite3.Connection, gid: str) -> LiveRow | HistoryRow | None:
    """The row of a gid, live or history."""
    try:
        row = connection.execute(statements.GET, (gid,)).fetchone()
    except UnicodeEncodeError:
        return None  # a lone surrogate: nothing of that name can have been stored
    if row is None:
        return None
    final, *columns, reason = row
    return _history(columns, reason) if final else _live(columns)


def due(connection: sqlite3.Connection, until_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
    """A page of what is due, in the order of (due_ms, gid)."""
    return [_live(row) for row in connection.execute(statements.DUE, (until_ms, *after, limit))]


def attempts(connection: sqlite3.Connection, gid: str, limit: int) -> Sequence[Attempt]:
    """The newest attempts of a gid, oldest first."""
    rows = connection.execute(statements.ATTEMPTS, (gid, limit)).fetchall()
    return [Attempt(row[0], AttemptKind(row[1]), *row[2:]) for row in reversed(rows)]


def overview(connection: sqlite3.Connection) -> Overview:
    """Counts of the live rows."""
    return Overview(*connection.execute(statements.OVERVIEW).fetchone())


def horizon_ms(connection: sqlite3.Connection) -> int:
    """Gids born before this may have been forgotten."""
    (value,) = connection.execute(statements.HORIZON).fetchone()
    assert isinstance(value, int)
    return value


def _live(columns: Sequence[Any]) -> LiveRow:
    gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts_, parked, done, body = columns
    return LiveRow(
        gid, State(state), version, due_ms, created_ms, decided_ms, decided_by, attempts_, bool(parked), done, body
    )


def _history(columns: Sequence[Any], reason: str) -> HistoryRow:
    gid, state, node, seq, created_ms, decided_ms, decided_by, attempts_, finished_ms, done, body = columns
    return HistoryRow(
        node, seq, gid, State(state), created_ms, decided_ms, finished_ms, decided_by, reason, attempts_, done, body
    )
