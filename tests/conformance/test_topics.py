"""Topics: one revision over all of them.

Changes compare and set, are durable, and are read as of one moment.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.conformance.engines import Engine
from tests.support.items import SetClock, flush, prepare
from twophase.core.errors import StoreFenced
from twophase.stores.base import Store
from twophase.stores.rows import Subscriber, Topic, Topics

ONE, TWO = Subscriber("http://b/1", "the bank's"), Subscriber("http://b/2?x=\u00e9&y=\u0000'\"")


async def _topics(store: Store) -> Topics:
    topics = await store.topics()
    assert topics is not None, "nothing is known"
    return topics


async def test_a_new_store_has_none(store: Store) -> None:
    assert await _topics(store) == Topics(0, {})
    assert await store.topics(0) is None


async def test_a_topic_is_made_changed_and_removed(store: Store, clock: SetClock) -> None:
    made_ms = clock.time_ms
    assert await store.change_topic(0, "rates", [ONE])
    assert await _topics(store) == Topics(1, {"rates": Topic("rates", 1, 1, made_ms, made_ms, (ONE,))})

    clock.time_ms += 7
    assert await store.change_topic(1, "rates", [ONE, TWO])
    changed = Topic("rates", 1, 2, made_ms, made_ms + 7, (ONE, TWO))
    assert await _topics(store) == Topics(2, {"rates": changed})

    assert await store.change_topic(2, "empty", [])
    assert (await _topics(store)).by_name["empty"].subscribers == ()

    assert await store.change_topic(3, "rates", None)
    assert list((await _topics(store)).by_name) == ["empty"]
    assert (await _topics(store)).revision == 4


async def test_a_topic_made_anew_is_another(store: Store) -> None:
    await store.change_topic(0, "rates", [ONE])
    await store.change_topic(1, "rates", None)
    await store.change_topic(2, "rates", [ONE])

    again = (await _topics(store)).by_name["rates"]
    assert (again.id, again.version) == (3, 1)


async def test_what_is_known_is_not_read_again(store: Store) -> None:
    await store.change_topic(0, "rates", [ONE])

    assert await store.topics(1) is None
    assert (await store.topics(0)) == await store.topics(2) == await _topics(store)


@pytest.mark.parametrize("subscribers", [[TWO], None])
async def test_a_change_of_what_has_changed_meanwhile_does_nothing(
    store: Store, subscribers: list[Subscriber] | None
) -> None:
    await store.change_topic(0, "rates", [ONE])
    before = await _topics(store)

    assert not await store.change_topic(0, "rates", subscribers)
    assert not await store.change_topic(2, "rates", subscribers)

    assert await _topics(store) == before


async def test_changes_at_once_are_applied_one_after_the_other(store: Store) -> None:
    async def add(number: int) -> None:
        while True:
            topics = await _topics(store)
            known = topics.by_name.get("rates")
            subscribers = (*(known.subscribers if known else ()), Subscriber(f"http://b/{number}"))
            if await store.change_topic(topics.revision, "rates", subscribers):
                return

    await asyncio.gather(*(add(number) for number in range(10)))

    topics = await _topics(store)
    rates = topics.by_name["rates"]
    assert {one.url for one in rates.subscribers} == {f"http://b/{number}" for number in range(10)}
    assert topics.revision == rates.version == len(rates.subscribers) == 10


async def test_topics_outlive_the_process_and_leave_messages_alone(
    engine: Engine, store: Store, tmp_path: Path, clock: SetClock
) -> None:
    await asyncio.gather(flush(store, prepare("g")), store.change_topic(0, "rates", [ONE]))
    await store.stop()

    again = engine.make(tmp_path, clock)
    await again.start()
    assert (await _topics(again)).by_name["rates"].subscribers == (ONE,)
    assert (await flush(again, prepare("g"), prepare("h"))).refused.keys() == {0}
    await again.stop()


async def test_a_node_whose_slot_was_taken_changes_no_file(
    engine: Engine, store: Store, tmp_path: Path, clock: SetClock
) -> None:
    engine.usurp(tmp_path)

    if store.shared:  # a topic belongs to no node, and the revision covers all
        assert await store.change_topic(0, "rates", [ONE])
    else:
        with pytest.raises(StoreFenced):
            await store.change_topic(0, "rates", [ONE])
        assert await _topics(store) == Topics(0, {})
