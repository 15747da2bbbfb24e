"""Topics on a database that nodes share and may lose.

Changes compare and set between the nodes, and are never done twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from tests.conformance.postgres.conftest import Join, Raw, somebody_waits_for
from tests.servers.proxy import Cut, Proxy
from tests.support.null_observer import NullObserver
from tests.support.waiting import until
from twophase.coordinator.topic_changes import ChangeableTopics
from twophase.core.errors import StoreUnavailable
from twophase.stores.postgres import PostgresStore
from twophase.stores.rows import Subscriber

URL = "http://cut-here/in"
MARK = b"cut-here"


def _topics(store: PostgresStore) -> ChangeableTopics:
    return ChangeableTopics(store, 1_000, lambda: 0.5, NullObserver(), lambda url: None)


@pytest.fixture
async def far(join: Join, url: str, proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """A node behind that network, which still works when the node stops."""
    node = await _behind(proxy, join, url, wait_ms=30_000)
    yield node
    await node.stop()


async def _behind(proxy: Proxy, join: Join, url: str, wait_ms: int) -> PostgresStore:
    parts = urlsplit(url)
    return await join(url=url.replace(f":{parts.port}/", f":{proxy.port}/"), outage_wait_ms=wait_ms)


async def test_of_two_nodes_that_change_at_once_one_is_refused(join: Join, raw: Raw) -> None:
    one, two = await join(), await join()
    with raw.transaction():
        raw.execute("select from store_meta where name = 'topics_revision' for update")
        changing = [
            asyncio.create_task(node.change_topic(0, "rates", [Subscriber(f"http://b/{number}")]))
            for number, node in enumerate((one, two))
        ]
        await somebody_waits_for(raw)

    assert sorted(await asyncio.gather(*changing)) == [False, True]
    topics = await one.topics()
    assert topics == await two.topics()
    assert topics is not None
    assert (topics.revision, topics.by_name["rates"].version) == (1, 1)


async def test_changes_of_three_nodes_at_once_all_come_through(join: Join) -> None:
    nodes = [_topics(await join()) for _ in range(3)]
    urls = [f"http://b/{number}" for number in range(30)]

    await asyncio.gather(*(nodes[number % 3].subscribe("rates", url) for number, url in enumerate(urls)))

    for node in nodes:
        found = await node.refresh()
        assert (found.revision, found.by_name["rates"].version) == (30, 30)
        assert sorted(one.url for one in found.by_name["rates"].subscribers) == sorted(urls)


@pytest.mark.parametrize("cut", Cut)
async def test_a_change_whose_connection_is_cut_is_done_once(far: PostgresStore, proxy: Proxy, cut: Cut) -> None:
    topics = _topics(far)
    await topics.subscribe("rates", "http://b/other")
    proxy.cut_around(MARK, cut)

    await topics.subscribe("rates", URL)

    assert proxy.has_cut.is_set()
    found = await topics.refresh()
    assert (found.revision, found.by_name["rates"].version) == (2, 2)
    assert [one.url for one in found.by_name["rates"].subscribers] == ["http://b/other", URL]


async def test_a_cut_change_that_is_committed_later_is_no_refusal(
    far: PostgresStore, join: Join, proxy: Proxy, raw: Raw
) -> None:
    """It waits behind another node's change when its connection is cut.

    It comes through after that change.
    """
    topics, near = _topics(far), await join()
    with raw.transaction():
        raw.execute("select from store_meta where name = 'topics_revision' for update")
        changing = asyncio.create_task(topics.subscribe("rates", URL))
        await somebody_waits_for(raw)
        proxy.cut()
        await until(lambda: raw.execute("select count(*) from pg_locks where not granted").fetchone() != (1,))

    await changing
    found = await near.topics()
    assert found is not None
    assert (found.revision, found.by_name["rates"].version) == (1, 1)


async def test_a_store_that_is_away_is_reported_within_the_bound(join: Join, url: str, proxy: Proxy) -> None:
    await (await join()).stop()  # the tables are made
    store = await _behind(proxy, join, url, wait_ms=1_500)
    topics = _topics(store)
    proxy.partition()

    async with asyncio.timeout(60):
        with pytest.raises(StoreUnavailable):
            await topics.subscribe("rates", URL)
    proxy.heal()
    await topics.subscribe("rates", URL)
    await store.stop()
