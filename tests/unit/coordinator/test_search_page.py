"""A page of messages holds what fits in memory; the pages together hold all."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.unit.coordinator.harness import Harness, message
from twophase.coordinator import search_page
from twophase.stores.rows import LiveRow
from twophase.stores.search import Search

HOUR_MS = 3_600_000


async def pages(harness: Harness, limit: int) -> list[list[str]]:
    found: list[list[str]] = []
    position = ""
    while True:
        views, position = await harness.coordinator.search(Search(), position, limit)
        found.append([view.message.gid for view in views])
        if not position:
            return found


async def test_small_messages_fill_a_page(harness: Harness) -> None:
    gids = [f"g{number:03d}" for number in range(60)]
    for gid in gids:
        await harness.submit(message(gid, delay_ms=HOUR_MS))

    assert [len(page) for page in await pages(harness, 50)] == [50, 10]
    assert list(chain.from_iterable(await pages(harness, 50))) == gids[::-1]


async def test_large_messages_end_a_page_early_and_none_is_left_out(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    gids = [f"g{number:03d}" for number in range(60)]
    for gid in gids:
        await harness.submit(message(gid, delay_ms=HOUR_MS))
    stored = await harness.store.get(gids[0])
    assert isinstance(stored, LiveRow)
    monkeypatch.setattr(search_page, "PAGE_BYTES_MAX", 30 * len(stored.body))

    found = await pages(harness, 50)

    assert [len(page) for page in found] == [30, 30]
    assert list(chain.from_iterable(found)) == gids[::-1]
