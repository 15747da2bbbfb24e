"""One node serves the consumers of a topic, and only its progress is written.

A node that owned the topic before changes nothing any more, however late its flush comes.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.postgres.conftest import LEASE_MS, Join, Raw, somebody_waits_for
from tests.support.items import SetClock, prepare
from tests.support.waiting import until
from twophase.core.errors import StoreFenced
from twophase.stores.base import Store
from twophase.stores.batch import Batch, Decide, FlushResult, Redirect
from twophase.stores.queue_rows import Progress

TOPIC, GROUP = "orders", "billing"


def done(next_number: int, term: int, topic: str = TOPIC) -> Progress:
    """Return a group's progress in the topic's first queue."""
    return Progress(GROUP, topic, 0, next_number, b"", term)


async def report(store: Store, *progress: Progress) -> FlushResult:
    """Flush progress alone."""
    return await store.flush(Batch([], [], progress=list(progress)))


async def next_number(store: Store, topic: str = TOPIC) -> int:
    """Return how far the group is."""
    return next((one.next_number for one in await store.queue_progress(GROUP, topic)), 0)


async def test_a_topic_has_one_owner(join: Join) -> None:
    one, two = await join(), await join()

    assert await one.own_topic(TOPIC) == 1
    assert await two.own_topic(TOPIC) is None
    assert await two.own_topic("bills") == 1


async def test_a_topic_that_was_given_up_goes_to_the_next_in_a_new_term(join: Join) -> None:
    one, two = await join(), await join()
    term = await one.own_topic(TOPIC)
    assert term is not None
    await report(one, done(3, term))

    await one.give_up_topic(TOPIC, term)

    assert await two.own_topic(TOPIC) == term + 1
    assert await next_number(two) == 3


async def test_progress_of_a_former_owner_is_refused_and_that_of_its_other_topics_is_not(join: Join) -> None:
    one, two = await join(), await join()
    term = await one.own_topic(TOPIC) or 0
    bills = await one.own_topic("bills") or 0
    await one.give_up_topic(TOPIC, term)
    later = await two.own_topic(TOPIC) or 0
    await report(two, done(7, later))

    result = await one.flush(
        Batch([prepare("g")], [], progress=[done(1, bills, "bills"), done(5, term), done(2, bills, "bills2")])
    )

    assert (result.refused, set(result.lost)) == ({}, {1, 2})
    assert (await next_number(two), await next_number(two, "bills")) == (7, 1)
    assert await one.get("g") is not None, "the items beside it are written"


async def test_a_former_term_of_the_same_node_is_refused(join: Join) -> None:
    one = await join()
    first = await one.own_topic(TOPIC) or 0
    await one.give_up_topic(TOPIC, first)
    second = await one.own_topic(TOPIC) or 0
    await report(one, done(4, second))

    assert (await report(one, done(2, first))).lost == {0}
    await one.give_up_topic(TOPIC, first)

    assert (await report(one, done(5, second))).lost == frozenset(), "the end of another term was not touched"
    assert await next_number(one) == 5


async def test_the_topic_of_a_silent_node_is_free_once_its_epoch_has_ended(join: Join, clock: SetClock) -> None:
    one, two = await join(), await join()
    term = await one.own_topic(TOPIC) or 0
    await report(one, done(3, term))
    clock.time_ms += LEASE_MS + 1
    await two.heartbeat()
    assert await two.own_topic(TOPIC) is None

    await two.adopt(10)

    assert await two.own_topic(TOPIC) == term + 1
    assert await next_number(two) == 3
    with pytest.raises(StoreFenced):
        await report(one, done(9, term))
    with pytest.raises(StoreFenced):
        await one.own_topic(TOPIC)
    assert await next_number(two) == 3


async def test_the_topic_of_a_node_that_has_left_is_free_at_once(join: Join) -> None:
    one, two = await join(), await join()
    await one.own_topic(TOPIC)

    await one.stop()

    assert await two.own_topic(TOPIC) == 2


async def test_a_process_that_continues_a_slot_begins_a_new_term(join: Join) -> None:
    one = await join()
    term = await one.own_topic(TOPIC) or 0
    await one.stop()
    again = await join()
    assert again.slot == (1, 1)

    assert await again.own_topic(TOPIC) == term + 1
    assert (await report(again, done(1, term))).lost == {0}


async def test_a_process_that_continues_a_slot_keeps_no_topic_of_the_one_before(join: Join) -> None:
    one, two = await join(), await join()
    term = await one.own_topic(TOPIC) or 0
    own = await two.own_topic("bills")
    await one.stop()
    again = await join()
    assert again.slot == (1, 1)

    assert await two.own_topic(TOPIC) == term + 1, "the process that has the slot now does not know of the topic"
    assert await again.own_topic("bills") is None, f"a topic of a node that lives stays its own, in term {own}"


async def test_whoever_takes_a_topic_waits_for_progress_that_is_being_written(join: Join, raw: Raw) -> None:
    """A flush of the owner that is under way is read by the next, or refused."""
    one, two = await join(), await join()
    term = await one.own_topic(TOPIC) or 0
    with raw.transaction():
        raw.execute("insert into queue_progress values (0, 0, 0, %s, %s, '')", (GROUP, TOPIC))
        reporting = asyncio.ensure_future(report(one, done(6, term)))
        await somebody_waits_for(raw)
        giving_up = asyncio.ensure_future(two.give_up_topic(TOPIC, term))
        await until(
            lambda: len(raw.execute("select from pg_locks where not granted").fetchall()) >= len((reporting, giving_up))
        )
        raw.execute("delete from queue_progress")
    assert (await reporting).lost == frozenset()
    await giving_up
    assert await two.own_topic(TOPIC) == term + 1
    assert await next_number(two) == 6


async def test_where_no_node_ever_owned_a_topic_its_term_is_0(join: Join) -> None:
    one = await join()

    assert (await report(one, done(1, 0), done(1, 5, "bills"))).lost == {1}


async def test_refused_progress_beside_redirects_and_poison_is_named_once(join: Join) -> None:
    one = await join()
    term = await one.own_topic(TOPIC) or 0
    await one.flush(Batch([prepare("r")], []))

    result = await one.flush(
        Batch(
            [Redirect("r", 1, 5, 0, b"new"), prepare("a"), prepare("poison\ud800"), prepare("b")],
            [],
            progress=[done(1, term), done(1, term + 1)],
        )
    )

    assert set(result.refused) == {2}
    assert result.lost == {1}


async def test_prepared_messages_are_passed_on_to_a_node_that_lives_and_others_stay(join: Join) -> None:
    one, two, three = await join(), await join(), await join()
    await three.stop()
    await one.flush(Batch([prepare("g"), prepare("changed"), prepare("decided")], []))
    await one.flush(Batch([Redirect("changed", 1, 5, 0, b"new"), Decide("decided", 1, 0, "submit")], []))
    await two.flush(Batch([prepare("another's")], []))

    await one.pass_on([("g", 1)], 3)
    assert await one.moved([("g", 1)]) == set(), "nobody lives there"
    await one.pass_on([("g", 1), ("changed", 1), ("decided", 2), ("another's", 1)], 2)

    assert await one.moved([("g", 1), ("changed", 2), ("decided", 2)]) == {"g"}
    assert await two.moved([("g", 1), ("another's", 1)]) == set()


async def test_an_announcement_is_seen_by_all(join: Join) -> None:
    one, two = await join(), await join()

    await two.announce("b:8081")

    assert [(seen.node, seen.served_at) for seen in await one.nodes()] == [(1, ""), (2, "b:8081")]


async def test_a_notice_wakes_the_others(join: Join) -> None:
    woken: asyncio.Queue[str] = asyncio.Queue()
    one = await join(woken=woken.put_nowait)
    two = await join()
    assert one is not two

    async with asyncio.timeout(60):
        heard: set[str] = set()
        while heard != {TOPIC, "bills"}:  # it listens soon after its start
            await two.wake([TOPIC, "bills"])
            while not woken.empty():
                heard.add(woken.get_nowait())
            await asyncio.sleep(0.01)
