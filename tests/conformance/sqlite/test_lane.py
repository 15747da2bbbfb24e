"""The thread a connection lives in."""

from __future__ import annotations

import asyncio
import functools
import threading

import pytest

from tests.conformance.items import flush, live, prepare
from twophase.stores.sqlite import SqliteStore
from twophase.stores.sqlite.lane import Lane


async def test_calls_run_in_one_other_thread_in_the_order_of_asking() -> None:
    lane = Lane("test")
    lane.open()
    ran: list[tuple[int, int]] = []

    def note(number: int) -> None:
        ran.append((number, threading.get_ident()))

    await asyncio.gather(*(lane.call(functools.partial(note, n)) for n in range(50)))
    await lane.close()

    assert [n for n, _ in ran] == list(range(50))
    assert len({thread for _, thread in ran}) == 1
    assert ran[0][1] != threading.get_ident()


async def test_what_a_call_raises_reaches_the_caller_and_the_lane_goes_on() -> None:
    lane = Lane("test")
    lane.open()

    with pytest.raises(ZeroDivisionError):
        await lane.call(lambda: 1 // 0)
    assert await lane.call(lambda: 7) == 7
    await lane.close()


async def test_a_caller_who_leaves_does_not_stop_the_call() -> None:
    lane = Lane("test")
    lane.open()
    go, ran = threading.Event(), threading.Event()

    def work() -> None:
        go.wait()
        ran.set()

    caller = asyncio.create_task(lane.call(work))
    await asyncio.sleep(0)
    caller.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await lane.close()

    assert ran.is_set()


def test_a_loop_that_closed_meanwhile_hurts_nobody() -> None:
    lane = Lane("test")
    lane.open()
    go, ran = threading.Event(), threading.Event()

    def work() -> None:
        go.wait()
        ran.set()

    async def leave() -> None:
        asyncio.create_task(lane.call(work))  # noqa: RUF006 -- it is abandoned on purpose
        await asyncio.sleep(0)

    asyncio.run(leave())
    go.set()
    assert ran.wait(10)
    asyncio.run(lane.close())


async def test_a_look_up_does_not_wait_behind_a_flush(tmp_path: object) -> None:
    store = SqliteStore(f"{tmp_path}/store.db")
    await store.start()
    await flush(store, prepare("g"))
    assert store._write_lane is not None
    go = threading.Event()
    busy = asyncio.create_task(store._write_lane.call(go.wait))
    await asyncio.sleep(0)

    row = await live(store, "g")

    assert row.version == 1
    assert not busy.done()
    go.set()
    await busy
    await store.stop()
