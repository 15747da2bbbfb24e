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


@pytest.mark.parametrize(("renewed", "place"), [(False, (1, 1)), (True, (2, 1))])
async def test_whoever_would_take_a_place_waits_for_the_flush_that_is_being_committed(
    join: Join, raw: Raw, clock: SetClock, renewed: bool, place: tuple[int, int]
) -> None:
    first = await join()
    await flush(first, prepare("a"))
    clock.time_ms += LEASE_MS + 1
    with raw.transaction():
        raw.execute("update node set seq = 7, seen_ms = %s where id = 1", (clock.time_ms if renewed else 0,))
        joining = asyncio.create_task(join())
        await somebody_waits_for(raw)

    second = await joining
    assert second.place == place
    if renewed:
        assert (await flush(first, abort("a"))).refused == {}
    else:
        with pytest.raises(StoreFenced):
            await flush(first, prepare("b"))
        await flush(second, abort("a"))
        assert (await final(second, "a")).seq == 8
