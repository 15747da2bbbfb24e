"""The connection is lost in the middle of a flush.

The fence and the count of flushes show its fate, which is never guessed (20).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.conformance.postgres.conftest import PATIENT_MS, Join, Raw, somebody_waits_for
from tests.servers.proxy import Cut, Proxy
from tests.support.hurry import in_a_hurry
from tests.support.items import SetClock, abort, failed_call, final, flush, live, prepare
from tests.support.waiting import until
from twophase.core.errors import StoreError, StoreFenced, StoreUnavailable
from twophase.stores.batch import Batch
from twophase.stores.postgres import PostgresStore, reconnecting
from twophase.stores.postgres.connection import Connection, connect

SHORT_MS = 2_000
"""Time that tests wait whose database stays away."""
MARK = b"cut-here"


@pytest.fixture
async def store(join: Join, url: str, proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """A node behind that network, with a row to change.

    The network still works when the node stops.
    """
    parts = urlsplit(url)
    made = await join(url=url.replace(f":{parts.port}/", f":{proxy.port}/"))
    await flush(made, prepare("old"))
    yield made
    await made.stop()


def _node(raw: Raw) -> tuple[int, int, int]:
    row: tuple[int, int, int] | None = raw.execute("select fence, flushes, seq from node where id = 1").fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize("cut", Cut)
async def test_a_cut_flush_is_done_exactly_once(store: PostgresStore, proxy: Proxy, raw: Raw, cut: Cut) -> None:
    fence, flushes, _ = _node(raw)
    proxy.cut_around(MARK, cut)

    result = await store.flush(
        Batch([prepare("new", body=MARK), abort("old"), abort("unknown")], [failed_call("new", 1)])
    )

    assert proxy.has_cut.is_set()
    assert result.refused == {2: None}
    assert _node(raw) == (fence + 1, flushes + 1, 1)
    assert (await live(store, "new")).created_ms == result.at_ms
    assert (await final(store, "old")).seq == 1
    assert await store.attempts("new") == [failed_call("new", 1)]
    assert (await flush(store, abort("new"))).refused == {}


async def test_a_flush_that_is_still_being_committed_is_waited_for(
    store: PostgresStore, proxy: Proxy, raw: Raw
) -> None:
    """The old backend may commit after the connection is lost.

    A plain reading would find nothing, and the flush would be sent again.
    """
    with raw.transaction():
        raw.execute("select from message where gid = 'old' for update")
        flushing = asyncio.create_task(flush(store, abort("old"), prepare("new")))
        await somebody_waits_for(raw)
        proxy.cut()
        # Now the new connection waits for the old flush, which waits for this test.
        await until(lambda: raw.execute("select count(*) from pg_locks where not granted").fetchone() != (1,))

    assert (await flushing).refused == {}
    assert _node(raw)[1:] == (2, 1)


async def test_no_answer_within_the_bound_is_unavailable_and_the_next_call_settles_it(
    store: PostgresStore, proxy: Proxy, raw: Raw
) -> None:
    fence, flushes, _ = _node(raw)
    proxy.partition()

    with in_a_hurry(store, SHORT_MS):
        with pytest.raises(StoreUnavailable):
            await flush(store, prepare("new"))
        with pytest.raises(StoreUnavailable):
            await store.get("new")
    proxy.heal()

    row = await store.get("new")
    assert _node(raw) == (fence + 1, flushes + (row is not None), 0)
    result = await flush(store, prepare("new"))
    assert result.refused == ({} if row is None else {0: row})


async def test_a_flush_without_an_answer_is_unknown_whatever_went_wrong_before_it(
    join: Join, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that refused a connection says that nothing happened.

    That is true of its own call, not of a call that was begun later.
    """
    store = await join()
    await flush(store, prepare("old"))
    refusals = [asyncpg.TooManyConnectionsError("sorry, too many clients already")]

    async def crowded_once(url: str, wait_ms: int, timeout_s: float) -> Connection:
        if refusals:
            raise refusals.pop()
        return await connect(url, 10 * wait_ms, timeout_s)  # so that the caller gives up first

    monkeypatch.setattr(reconnecting, "connect", crowded_once)
    store._reconnecting.drop()
    with raw.transaction(), in_a_hurry(store, SHORT_MS):
        raw.execute("select from message where gid = 'old' for update")
        with pytest.raises(StoreUnavailable, match=r"sorry, too many clients.*Fate: undecided"):
            await flush(store, abort("old"))
        with pytest.raises(StoreUnavailable):
            await store.get("old")

    assert (await final(store, "old")).seq == 1


async def test_reading_waits_for_a_database_that_is_away_and_goes_on(store: PostgresStore, proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(StoreUnavailable, match=f"Waited {SHORT_MS} ms"), in_a_hurry(store, SHORT_MS):
        await store.get("old")
    reading = asyncio.create_task(store.get("old"))
    await asyncio.sleep(0)
    proxy.heal()

    assert await reading == await live(store, "old")
    assert await store.heartbeat() == (await flush(store)).at_ms


async def test_a_node_whose_slot_was_taken_during_the_outage_learns_it(
    store: PostgresStore, proxy: Proxy, raw: Raw
) -> None:
    proxy.partition()
    with pytest.raises(StoreUnavailable), in_a_hurry(store, SHORT_MS):
        await flush(store, prepare("new"))
    raw.execute("update node set fence = fence + 1, owner = 'another'")
    proxy.heal()

    with pytest.raises(StoreFenced):
        await flush(store, prepare("new"))
    with pytest.raises(StoreFenced):
        await store.get("new")
    await store.rejoin()
    assert store.slot == (2, 1)
    assert (await flush(store, prepare("later"))).refused == {}


@pytest.mark.parametrize("in_the_middle", [True, False])
async def test_a_database_that_has_forgotten_flushes_is_noticed(
    store: PostgresStore, proxy: Proxy, raw: Raw, in_the_middle: bool
) -> None:
    """After a failover to a standby that was behind, this node's memory is wrong."""
    await flush(store, prepare("a"))
    raw.execute("update node set flushes = flushes - 1")
    if in_the_middle:
        proxy.cut_around(MARK, Cut.BEFORE_REQUEST)
    else:
        proxy.cut()

    with pytest.raises(StoreFenced, match="lost flushes"):
        await flush(store, prepare("b", body=MARK))
    await store.rejoin()
    assert (await flush(store, prepare("b"))).refused == {}


async def test_a_cancelled_flush_is_settled_before_anything_else(store: PostgresStore, raw: Raw) -> None:
    fence, flushes, _ = _node(raw)
    with raw.transaction():
        raw.execute("select from message where gid = 'old' for update")
        flushing = asyncio.create_task(flush(store, abort("old")))
        await somebody_waits_for(raw)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing

    await flush(store)
    assert _node(raw)[0] == fence + 1
    assert _node(raw)[1] - flushes in (1, 2)


async def test_reading_after_a_cancelled_flush_settles_it_first(store: PostgresStore, raw: Raw) -> None:
    """Otherwise it would be read as it was, and committed a moment later."""
    fence, _, _ = _node(raw)
    with raw.transaction():
        raw.execute("select from message where gid = 'old' for update")
        flushing = asyncio.create_task(flush(store, abort("old")))
        await somebody_waits_for(raw)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing

    await store.get("old")
    assert _node(raw)[0] == fence + 1


async def test_adoption_whose_answer_was_lost_says_that_something_came(
    store: PostgresStore, proxy: Proxy, raw: Raw, join: Join, clock: SetClock
) -> None:
    other = await join()
    await flush(other, prepare("theirs"))
    await other.stop()
    proxy.cut_around(b"twophase_adopt", Cut.BEFORE_REPLY)
    assert await store.adopt(10) >= 1

    assert (await live(store, "theirs")).owned


async def test_a_deadlock_is_tried_again(join: Join, raw: Raw) -> None:
    one = await join()
    await flush(one, prepare("a"), prepare("b"))
    raw.execute("set deadlock_timeout = '10s'")
    with raw.transaction():
        raw.execute("select from message where gid = 'b' for update")
        flushing = asyncio.create_task(flush(one, abort("a"), abort("b")))
        await somebody_waits_for(raw)
        await asyncio.to_thread(raw.execute, "update message set due_ms = 7 where gid = 'a'")

    assert (await flushing).refused == {}
    assert [(await final(one, gid)).seq for gid in "ab"] == [1, 2]


async def test_one_answer_ends_the_outage_for_every_reader(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer may come by any connection.

    Otherwise readers by another connection would keep the short timeout for good.
    """
    parts = urlsplit(url)
    store = PostgresStore(url.replace(f":{parts.port}/", f":{proxy.port}/"), outage_wait_ms=PATIENT_MS)
    await store.start()
    proxy.refuse()
    with in_a_hurry(store, SHORT_MS):
        answers = await asyncio.gather(store.get("g"), store.get("g"), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
    proxy.heal()
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(StoreUnavailable):
                await store.get("g")
                break

    assert store._readers is not None
    assert await store._readers.ask(lambda connection: connection.fetchval("select 7 from pg_sleep(1.2)")) == 7
    await store.stop()


async def test_a_reading_that_waits_for_a_lost_flush_ends_with_a_stop_as_any_other(join: Join, raw: Raw) -> None:
    store = await join()
    store._writer._lose()
    with raw.transaction():
        raw.execute("select from node for update")
        reading = asyncio.ensure_future(store.attempts("g"))
        await somebody_waits_for(raw)
        stopping = asyncio.ensure_future(store.stop())
        await until(lambda: store._readers is None)

    with pytest.raises(StoreError, match="not open"):
        await reading
    await stopping
