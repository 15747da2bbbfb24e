"""Consumers whose filter leaves out nearly everything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.coordinator.harness import Harness
from tests.unit.coordinator.queueing import Queueing, order
from twophase.coordinator.queues import subscription
from twophase.coordinator.queues.subscription import PAGE_ENTRIES


@pytest.fixture
def queueing(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Queueing:
    monkeypatch.setattr(subscription, "_PAGES_MAX", 1)
    return Queueing(harness)


async def send(queueing: Queueing, pages: int) -> None:
    """Send pages with the tag `often`, between two messages with the tag `rare`."""
    await queueing.send(order("first", tag="rare"))
    for page in range(pages):
        await queueing.send(*(order(f"{page}-{number}", tag="often") for number in range(PAGE_ENTRIES)))
    await queueing.send(order("last", tag="rare"))


async def test_what_a_filter_finds_is_given_out_before_all_the_rest_is_read(queueing: Queueing) -> None:
    await send(queueing, 3)

    assert await queueing.ids(expression="rare") == ["first"]
    assert await queueing.ids(expression="rare") == ["last"]


async def test_a_poll_that_finds_nothing_among_many_ends_in_time_and_others_go_on(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(queueing, 3)
    await queueing.ids(expression="rare")
    waiting = asyncio.ensure_future(queueing.ids(expression="rare", wait_ms=60_000, group="other"))
    page, pages = harness.store.queue_page, 0

    async def slow(*asked: Any) -> Any:
        nonlocal pages
        if asked[2] == 0:  # the other group begins at the first entry
            return await page(*asked)
        pages += 1
        harness.clock.advance(1_500)
        return await page(*asked)

    with monkeypatch.context() as patched:
        patched.setattr(harness.store, "queue_page", slow)
        assert await queueing.ids(expression="none", wait_ms=0) == []
    assert pages == 2

    assert await queueing.ids(expression="rare") == ["last"]
    assert await waiting == ["first"]
