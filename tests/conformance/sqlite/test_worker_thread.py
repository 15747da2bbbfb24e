"""The thread of a connection."""

from __future__ import annotations

import asyncio
import functools
import threading

import pytest

from tests.support.items import flush, live, prepare
from twophase.stores.sqlite import SqliteStore
from twophase.stores.sqlite.worker_thread import WorkerThread


async def test_calls_run_in_one_other_thread_in_the_order_of_asking() -> None:
    thread = WorkerThread("test")
    thread.open()
    ran: list[tuple[int, int]] = []

    def note(number: int) -> None:
        ran.append((number, threading.get_ident()))

    await asyncio.gather(*(thread.call(functools.partial(note, n)) for n in range(50)))
    await thread.close()

    assert [n for n, _ in ran] == list(range(50))
    assert len({thread for _, thread in ran}) == 1
    assert ran[0][1] != threading.get_ident()


async def test_what_a_call_raises_reaches_the_caller_and_the_thread_continues() -> None:
    thread = WorkerThread("test")
    thread.open()

    with pytest.raises(ZeroDivisionError):
        await thread.call(lambda: 1 // 0)
    assert await thread.call(lambda: 7) == 7
    await thread.close()


async def test_a_caller_who_leaves_does_not_stop_the_call() -> None:
    thread = WorkerThread("test")
    thread.open()
    go, ran = threading.Event(), threading.Event()

    def work() -> None:
        go.wait()
        ran.set()

    caller = thread.call(work)
    await asyncio.sleep(0)
    caller.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await thread.close()

    assert ran.is_set()


async def test_pages_wait_for_every_look_up_and_one_that_nobody_awaits_is_not_read() -> None:
    thread = WorkerThread("test")
    thread.open()
    go = threading.Event()
    ran: list[str] = []
    first = thread.call(go.wait)
    pages = [thread.call(functools.partial(ran.append, f"page {number}"), is_page=True) for number in range(3)]
    look_up = thread.call(functools.partial(ran.append, "look-up"))
    pages[1].cancel()
    go.set()
    await asyncio.gather(first, look_up, pages[0], pages[2])
    await thread.close()

    assert ran == ["look-up", "page 0", "page 2"]
    assert thread.under_way == 0


async def test_the_end_waits_for_pages_too() -> None:
    thread = WorkerThread("test")
    thread.open()
    ran: list[int] = []
    pages = [thread.call(functools.partial(ran.append, number), is_page=True) for number in range(9)]
    await thread.close()

    assert ran == list(range(9))
    assert all(page.done() for page in pages)


def test_a_loop_that_closed_meanwhile_harms_no_caller() -> None:
    thread = WorkerThread("test")
    thread.open()
    go, ran = threading.Event(), threading.Event()

    def work() -> None:
        go.wait()
        ran.set()

    async def leave() -> None:
        thread.call(work)
        await asyncio.sleep(0)

    asyncio.run(leave())
    go.set()
    assert ran.wait(10)
    asyncio.run(thread.close())


async def test_a_look_up_does_not_wait_behind_a_flush(tmp_path: object) -> None:
    store = SqliteStore(f"{tmp_path}/store.db")
    await store.start()
    await flush(store, prepare("g"))
    assert store._write_thread is not None
    go = threading.Event()
    busy = store._write_thread.call(go.wait)
    await asyncio.sleep(0)

    row = await live(store, "g")

    assert row.version == 1
    assert not busy.done()
    go.set()
    await busy
    await store.stop()
