"""Searches for a person, and reads what is overdue; see `stores.search`."""

from __future__ import annotations

from collections.abc import Sequence

from twophase.stores import search
from twophase.stores.postgres import statements
from twophase.stores.postgres.connection import Connection
from twophase.stores.postgres.reader import NodeEpoch, history_row, is_text, live_row
from twophase.stores.rows import HistoryRow, LiveRow
from twophase.stores.search import Found, Live, Page, Past, PastOfNode, Search


async def find(connection: Connection, search_: Search, position: str, limit: int, own: NodeEpoch) -> Found:
    """Return a page of what is wanted, of all nodes."""
    page = Page(search_, position, limit)
    if not is_text(search_.gid_prefix + position):
        return Found([], "")
    if isinstance(page.at, Live):
        await _read_live(connection, search_, page, page.at, own)
    if isinstance(page.at, Past):
        await _read_past(connection, search_, page, page.at)
    return page.found()


async def later(connection: Connection, after: tuple[int, str], limit: int, own: NodeEpoch) -> Sequence[LiveRow]:
    """Return a page of the rows of all nodes that are due behind `after`.

    They are in the order of (due_ms, gid).
    """
    rows = [live_row(row, own) for row in await connection.fetch(statements.LATER, *after, limit)]
    return sorted(rows, key=lambda row: (row.due_ms, row.gid.encode()))[:limit]


async def _read_live(connection: Connection, search_: Search, page: Page, at: Live, own: NodeEpoch) -> None:
    floor = await connection.fetchval(
        statements.SEARCH_LIVE_FLOOR, at.below, search_.gid_prefix, search.EXAMINED_MAX - 1
    )
    rows = await connection.fetch(
        statements.SEARCH_LIVE,
        at.below,
        floor or search_.gid_prefix,
        search_.live_states,
        [False, True] if search_.parked is None else [search_.parked],
        search_.created_from_ms,
        search_.created_before_ms,
        search_.needle,
        page.room + 1,
        search_.owner,
    )
    page.take_live([live_row(row, own) for row in rows], floor)


async def _read_past(connection: Connection, search_: Search, page: Page, at: Past) -> None:
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
        search_.past_states,
        search_.gid_prefix,
        search_.created_from_ms,
        search_.created_before_ms,
        search_.needle,
        page.room + 1,
        search_.owner,
    ):
        rows[row["node"]].append(history_row(row))
    page.take_past([PastOfNode(node, below[node], rows[node], floors.get(node)) for node in nodes])
