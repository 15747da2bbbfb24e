"""A connection lost in the middle of a flush.

The store fences first, then reads, and never guesses (correctness rule 20).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from tests.integration.postgres.refusals import made
from tests.servers.database import Database
from tests.servers.proxy import Cut, Proxy, Way
from tests.support.hurry import in_a_hurry
from tests.support.items import abort, failed_call, final, flush, live, prepare
from tests.support.waiting import until
from tests.support.watch import Watch
from twophase.core.errors import StoreUnavailable
from twophase.stores.batch import Batch, Redirect, Reschedule
from twophase.stores.postgres import PostgresStore
from twophase.stores.rows import HistoryRow

pytestmark = pytest.mark.postgres

WAIT_MS = 1_500


@pytest.fixture
async def store(dsn_through_proxy: str) -> AsyncIterator[PostgresStore]:
    """A started store behind the bad network, with a long bound of its waits."""
    made = PostgresStore(dsn_through_proxy, outage_wait_ms=30_000)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def hasty(database: Database, dsn_through_proxy: str) -> AsyncIterator[PostgresStore]:
    """A store that soon gives up where the test hurries it, and whose tables exist."""
    await made(database)
    store = PostgresStore(dsn_through_proxy, outage_wait_ms=30_000)
    await store.start()
    yield store
    await store.stop()


_WAITING = """
select 1 from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and query like '{}' and pid <> pg_backend_pid()"""


def _rows(database: Database, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database.dsn) as connection:
        return connection.execute(statement.encode()).fetchall()


async def _until(database: Database, statement: str) -> None:
    """Wait until a query of the server's activity finds a row."""
    await until(lambda: _rows(database, statement))


@pytest.mark.parametrize("cut", Cut)
async def test_a_flush_whose_answer_is_lost_is_done_exactly_once(
    store: PostgresStore, proxy: Proxy, database: Database, cut: Cut
) -> None:
    await flush(store, prepare("ends"), prepare("stays"), prepare("waits"))
    stays = await live(store, "stays")
    batch = Batch(
        [prepare("the-new-one"), abort("ends"), abort("stays", version=9), Reschedule("waits", 1, 77, 1, 0)],
        [failed_call("waits")],
    )
    proxy.cut_around(b"the-new-one", cut)

    result = await store.flush(batch)

    assert proxy.has_cut.is_set()
    assert result.refused == {2: stays}
    assert (await live(store, "the-new-one")).version == 1
    assert (await live(store, "waits")).version == 2
    assert await store.attempts("waits") == [failed_call("waits")]
    assert (await final(store, "ends")).seq == 1
    await flush(store, abort("stays"), abort("waits", 2))
    assert _rows(database, "select seq from history order by seq") == [(1,), (2,), (3,)]
    assert _rows(database, "select gid from message") == [("the-new-one",)]


@pytest.mark.parametrize("cut", Cut)
async def test_a_redirect_whose_answer_is_lost_is_done_exactly_once(
    store: PostgresStore, proxy: Proxy, cut: Cut
) -> None:
    await flush(store, prepare("moves"), prepare("stays"))
    stays = await live(store, "stays")
    batch = Batch(
        [Redirect("stays", 9, 5, 0, b"never"), Redirect("moves", 1, 77, 0, b"the-new-body"), prepare("beside")],
        [failed_call("moves")],
    )
    proxy.cut_around(b"the-new-body", cut)

    result = await store.flush(batch)

    assert proxy.has_cut.is_set()
    assert result.refused == {0: stays}
    row = await live(store, "moves")
    assert (row.version, row.due_ms, row.body) == (2, 77, b"the-new-body")
    assert await store.attempts("moves") == [failed_call("moves")]
    assert (await live(store, "beside")).version == 1


async def test_a_driver_that_is_surprised_by_a_closed_socket_has_lost_its_connection(store: PostgresStore) -> None:
    async def write() -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    with pytest.raises(ConnectionError, match="handler is closed"):
        await store._reconnecting.within(store._reconnecting.deadline(), write())

    assert (await flush(store, prepare("after"))).refused == {}


async def test_a_flush_that_is_still_under_way_without_us_is_waited_for(
    store: PostgresStore, proxy: Proxy, database: Database
) -> None:
    await flush(store, prepare("held"))
    with psycopg.connect(database.dsn) as other:
        other.execute("select from message where gid = 'held' for update")
        under_way = asyncio.create_task(flush(store, abort("held"), prepare("rides-along")))
        # The old backend must wait for the row before the cut, because a reset may overtake the request that it
        # follows.
        await _until(database, _WAITING.format("%twophase_flush%"))
        proxy.cut()
        # The new connection moves the fence, and waits for the old backend.
        await _until(database, _WAITING.format("%greatest(fence%"))
        assert not under_way.done()

    result = await under_way

    assert result.refused == {}
    assert isinstance(await store.get("held"), HistoryRow)
    assert _rows(database, "select gid from message") == [("rides-along",)]
    assert _rows(database, "select gid, seq from history") == [("held", 1)]


@pytest.mark.parametrize("ways", [(Way.REQUESTS,), (Way.REPLIES,), (Way.REQUESTS, Way.REPLIES)], ids=str)
async def test_when_the_bound_passes_nothing_is_claimed_and_the_next_flush_settles_first(
    hasty: PostgresStore, proxy: Proxy, database: Database, ways: tuple[Way, ...]
) -> None:
    await flush(hasty, prepare("before"))
    proxy.partition(*ways)

    with in_a_hurry(hasty, WAIT_MS):
        async with Watch() as watch:
            with pytest.raises(StoreUnavailable, match="TP-4009"):
                await flush(hasty, prepare("unclear"), abort("before"))
        with pytest.raises(StoreUnavailable):
            await hasty.get("unclear")
    proxy.heal()

    assert watch.passed_s > WAIT_MS / 1000 * 0.8
    assert watch.waited_s < WAIT_MS / 1000 + 1
    result = await flush(hasty, prepare("after"), prepare("unclear"), abort("before"))
    happened = _rows(database, "select seq from history") == [(1,)] and result.refused.keys() == {1, 2}
    assert happened or result.refused == {}
    assert _rows(database, "select gid from message order by gid") == [("after",), ("unclear",)]
    assert _rows(database, "select gid, seq from history") == [("before", 1)]


async def test_calls_given_up_do_not_pile_up_in_a_database_that_is_locked(
    hasty: PostgresStore, database: Database
) -> None:
    await flush(hasty, prepare("before"))
    waiting = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with psycopg.connect(database.dsn) as operator, in_a_hurry(hasty, WAIT_MS):
        hasty._reconnecting.drop()  # a session gives up after the time that counts when it begins
        operator.execute("lock table message in access exclusive mode")
        for number in range(5):
            with pytest.raises(StoreUnavailable):
                await flush(hasty, prepare(f"in-vain-{number}"))
        left_behind = _rows(database, f"select pid {waiting}")

    assert len(left_behind) <= 6, "the database gives up what its caller has given up"
    assert (await flush(hasty, prepare("after"))).refused == {}


async def test_an_outage_is_waited_for_once_and_not_by_every_call_anew(hasty: PostgresStore, proxy: Proxy) -> None:
    proxy.partition()

    with in_a_hurry(hasty, WAIT_MS):
        async with Watch() as flushes:
            for number in range(2):
                with pytest.raises(StoreUnavailable):
                    await flush(hasty, prepare(f"in-vain-{number}"))
        async with Watch() as reads:
            answers = await asyncio.gather(*(hasty.get("g") for _ in range(8)), return_exceptions=True)
    proxy.heal()
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert flushes.waited_s < WAIT_MS / 1000 + 2
    assert reads.waited_s < 4, "they wait together, not one after the other"
