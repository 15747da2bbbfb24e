"""Searches for a person, and reads what is overdue; see `stores.search`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from twophase.core.lifecycle import State
from twophase.stores import search
from twophase.stores.rows import LiveRow
from twophase.stores.search import Found, Live, Page, Past, PastOfNode, Search
from twophase.stores.sqlite import statements
from twophase.stores.sqlite.reader import history_row, live_row


def find(connection: sqlite3.Connection, search_: Search, position: str, limit: int) -> Found:
    """Return a page of what is wanted."""
    page = Page(search_, position, limit)
    if isinstance(page.at, Live):
        _read_live(connection, search_, page, page.at)
    if isinstance(page.at, Past):
        _read_past(connection, search_, page, page.at)
    return page.found()


def later(connection: sqlite3.Connection, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
    """Return a page of what is due behind `after`, in the order of (due_ms, gid)."""
    return [live_row(row) for row in connection.execute(statements.LATER, (*after, limit))]


def _read_live(connection: sqlite3.Connection, search_: Search, page: Page, at: Live) -> None:
    begin = (at.below, search_.gid_prefix)
    rows_max = _rows_max(connection, search_, statements.SEARCH_LIVE_SIZES, begin)
    floor = connection.execute(statements.SEARCH_LIVE_FLOOR, (*begin, rows_max - 1)).fetchone()
    rows = connection.execute(
        statements.SEARCH_LIVE,
        (
            at.below,
            floor[0] if floor else search_.gid_prefix,
            *_both(search_.live_states),
            *((0, 1) if search_.parked is None else (int(search_.parked),) * 2),
            search_.created_from_ms,
            search_.created_before_ms,
            search_.needle or None,
            page.room + 1,
            search_.owner,
        ),
    )
    page.take_live([live_row(row) for row in rows], floor[0] if floor else None)


def _read_past(connection: sqlite3.Connection, search_: Search, page: Page, at: Past) -> None:
    node = statements.NODE
    below = at.below.get(node, search.SEQ_END if not at.below else 0)
    rows_max = _rows_max(connection, search_, statements.SEARCH_HISTORY_SIZES, (node, below))
    floor = connection.execute(statements.SEARCH_HISTORY_FLOOR, (node, below, rows_max - 1)).fetchone()
    rows = connection.execute(
        statements.SEARCH_HISTORY,
        (
            node,
            below,
            floor[0] if floor else 0,
            *_both(search_.past_states),
            search_.gid_prefix,
            search_.created_from_ms,
            search_.created_before_ms,
            search_.needle or None,
            page.room + 1,
            search_.owner,
        ),
    )
    found = [history_row(row[:-1], row[-1]) for row in rows]
    page.take_past([PastOfNode(node, below, found, (floor[1], floor[0]) if floor else None)])


def _rows_max(connection: sqlite3.Connection, search_: Search, sizes: str, begin: tuple[object, ...]) -> int:
    """Return the number of rows that a page may look at.

    One that looks for an address reads their bodies. Arguments are the statement of their sizes, and where it begins.
    """
    if search_.needle:
        left = search.EXAMINED_BYTES_MAX
        for rows, (size,) in enumerate(connection.execute(sizes, (*begin, search.EXAMINED_MAX)), 1):
            left -= size
            if left <= 0:
                return rows
    return search.EXAMINED_MAX


def _both(states: list[State]) -> tuple[int, int]:
    return int(states[0]), int(states[-1])
