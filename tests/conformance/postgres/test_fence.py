"""The first statement of a flush is the fence.

The holder of the node slot writes what comes after it (19).
"""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.postgres.conftest import LEASE_MS, Join, Raw, asked, somebody_waits_for
from tests.support.items import SetClock, abort, final, flush, live, prepare
from twophase.core.errors import StoreFenced
from twophase.stores.postgres.statements import ADOPT, FLUSH, HEARTBEAT


async def test_a_flush_that_meets_a_fence_being_raised_waits_and_writes_nothing(join: Join, raw: Raw) -> None:
    store = await join()
    await flush(store, prepare("before"))
    with raw.transaction():
        raw.execute("update node set fence = fence + 1, owner = 'another' where id = 1")
        flushing = asyncio.create_task(flush(store, prepare("after")))
        await somebody_waits_for(raw)

    with pytest.raises(StoreFenced):
        await flushing
    assert await store.get("after") is None
    assert (await live(store, "before")).version == 1


async def test_a_flush_is_one_round_trip_so_that_a_stopped_node_holds_no_lock(join: Join) -> None:
    store = await join()
    await flush(store, prepare("a"), prepare("b"))

    async with asked(store) as statements_sent:
        assert (await flush(store, abort("a"), prepare("c"))).refused == {}
        await store.heartbeat()
        await store.adopt(10)

    assert statements_sent == [FLUSH, HEARTBEAT, ADOPT]


async def test_the_taker_of_a_slot_ends_what_its_holder_before_may_still_send(join: Join, raw: Raw) -> None:
    first = await join()
    await flush(first, prepare("a"))
    raw.execute("update node set owner = ''")

    second = await join()

    assert second.slot == (1, 1)
    with pytest.raises(StoreFenced):
        await flush(first, abort("a"))
    assert (await live(second, "a")).owned


async def test_a_start_neither_takes_nor_waits_for_a_held_slot(join: Join, raw: Raw, clock: SetClock) -> None:
    first = await join()
    await flush(first, prepare("a"))
    clock.time_ms += LEASE_MS + 1
    with raw.transaction():
        raw.execute("update node set seq = 7 where id = 1")
        second = await join()

    assert second.slot == (2, 1)
    assert (await flush(first, abort("a"))).refused == {}
    assert (await final(first, "a")).seq == 8


async def test_two_starts_never_take_the_same_slot(join: Join, raw: Raw) -> None:
    await (await join()).stop()
    with raw.transaction():
        raw.execute("update node set fence = fence + 1, owner = 'another' where id = 1")
        joining = asyncio.create_task(join())
        await somebody_waits_for(raw)

    assert (await joining).slot == (2, 1)
