"""A page of messages for a person, bounded in bytes as it is in rows.

A stored row holds its payloads, so a thousand of the largest would be gigabytes. A page ends early where it has become
too large; its position says where the next one begins. Promise: where one owner's messages are wanted, the position
names no other's, however many rows of others lie between.
"""

from __future__ import annotations

from typing import Final

from twophase.coordinator.view import MessageView, listed
from twophase.stores.base import Store
from twophase.stores.search import Search, behind, is_gid

PAGE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Approximate bytes of a page; the next read's size is guessed from the last one."""
_FIRST_ROWS: Final = 25


async def page_of(store: Store, search: Search, position: str, limit: int) -> tuple[list[MessageView], str]:
    """Return at most `limit` messages without their logs, and the next position.

    The position is empty at the end.

    Raises:
        InvalidRequest: no page ended with this position.
        StoreError: the store cannot be read.
    """
    views: list[MessageView] = []
    held_bytes = 0
    rows_left = min(limit, _FIRST_ROWS)
    while True:
        found = await store.search(search, position, rows_left)
        views += [listed(row) for row in found.rows]
        held_bytes += sum([len(row.body) for row in found.rows])
        position = found.position
        if not position or len(found.rows) < rows_left or len(views) == limit or held_bytes >= PAGE_BYTES_MAX:
            if search.owner is None or not is_gid(position):
                return views, position
            if views:
                return views, behind(views[-1].message.gid)
        if views:
            rows_that_fit = (PAGE_BYTES_MAX - held_bytes) * len(views) // max(1, held_bytes)
            rows_left = min(limit - len(views), max(1, rows_that_fit))
