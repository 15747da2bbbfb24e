"""Searches for a person, and reads what is overdue; see `stores.search`."""

from __future__ import annotations

from collections.abc import Sequence

from twophase.stores import search
from twophase.stores.base import HistoryRow, LiveRow
from twophase.stores.postgres import statements
from twophase.stores.postgres.connection import Connection
from twophase.stores.postgres.reader import Tenure, history_row, is_text, live_row
from twophase.stores.search import Found, Live, Page, Past, PastOfNode, Search


async def find(connection: Connection, wanted: Search, position: str, limit: int, tenure: Tenure) -> Found:
    """Return a page of what is wanted, of all nodes."""
    page = Page(wanted, position, limit)
    if not is_text(wanted.gid_prefix + position):
        return Found([], "")
    if isinstance(page.at, Live):
        await _read_live(connection, wanted, page, page.at, tenure)
    if isinstance(page.at, Past):
        await _read_past(connection, wanted, page, page.at)
    return page.found()


async def later(connection: Connection, after: tuple[int, str], limit: int, tenure: Tenure) -> Sequence[LiveRow]:
    """Return a page of the rows of all nodes that are due behind `after`.

    They are in the order of (due_ms, gid).
    """
    rows = [live_row(row, tenure) for row in await connection.fetch(statements.LATER, *after, limit)]
    return sorted(rows, key=lambda row: (row.due_ms, row.gid.encode()))[:limit]


async def _read_live(connection: Connection, wanted: Search, page: Page, at: Live, tenure: Tenure) -> None:
    floor = await connection.fetchval(
        statements.SEARCH_LIVE_FLOOR, at.below, wanted.gid_prefix, search.EXAMINED_MAX - 1
    )
    rows = await connection.fetch(
        statements.SEARCH_LIVE,
        at.below,
        floor or wanted.gid_prefix,
        wanted.live_states,
        [False, True] if wanted.parked is None else [wanted.parked],
        wanted.created_from_ms,
        wanted.created_before_ms,
        wanted.needle,
        page.room + 1,
    )
    page.take_live([live_row(row, tenure) for row in rows], floor)


async def _read_past(connection: Connection, wanted: Search, page: Page, at: Past) -> None:
    below = dict(at.below)
    if not below:
        below = {number: search.SEQ_END for (number,) in await connection.fetch(statements.NODES)}
    if not below:
        page.take_past(())
        return
    nodes = list(below)
    begins = [below[node] for node in nodes]
    window = max(1, search.EXAMINED_MAX // len(nodes))
    floors = {
        row["node"]: (row["finished_ms"], row["seq"])
        for row in await connection.fetch(statements.SEARCH_HISTORY_FLOOR, nodes, begins, window - 1)
    }
    rows: dict[int, list[HistoryRow]] = {node: [] for node in nodes}
    for row in await connection.fetch(
        statements.SEARCH_HISTORY,
        nodes,
        begins,
        [floors[node][1] if node in floors else 0 for node in nodes],
        wanted.past_states,
        wanted.gid_prefix,
        wanted.created_from_ms,
        wanted.created_before_ms,
        wanted.needle,
        page.room + 1,
    ):
        rows[row["node"]].append(history_row(row))
    page.take_past([PastOfNode(node, below[node], rows[node], floors.get(node)) for node in nodes])
