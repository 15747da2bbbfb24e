"""The first statement of a flush is the fence: what comes after it is written by the holder of the place (19)."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.items import SetClock, abort, final, flush, live, prepare
from tests.conformance.postgres.conftest import LEASE_MS, Join, Raw, somebody_waits_for
from twophase.core.errors import StoreFenced


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


async def test_a_start_neither_takes_nor_waits_for_a_place_that_is_held(join: Join, raw: Raw, clock: SetClock) -> None:
    first = await join()
    await flush(first, prepare("a"))
    clock.time_ms += LEASE_MS + 1
    with raw.transaction():
        raw.execute("update node set seq = 7 where id = 1")
        second = await join()

    assert second.place == (2, 1)
    assert (await flush(first, abort("a"))).refused == {}
    assert (await final(first, "a")).seq == 8


async def test_two_starts_never_take_the_same_place(join: Join, raw: Raw) -> None:
    await (await join()).stop()
    with raw.transaction():
        raw.execute("update node set fence = fence + 1, owner = 'another' where id = 1")
        joining = asyncio.create_task(join())
        await somebody_waits_for(raw)

    assert (await joining).place == (2, 1)
