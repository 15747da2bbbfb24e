"""Several nodes on one database: a row's owner, and the adoption of its rows."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tests.conformance.postgres.conftest import LEASE_MS, Join, Raw, somebody_waits_for
from tests.support.items import SetClock, abort, final, flush, live, prepare
from twophase.core.errors import StoreFenced
from twophase.stores.batch import Decide, Park, Redirect
from twophase.stores.postgres import PostgresStore
from twophase.stores.rows import DecidedBy, LiveRow

ALL = 1_000


async def due(store: PostgresStore) -> list[str]:
    return [row.gid for row in await store.due(2**62, (-1, ""), ALL)]


async def test_every_node_has_its_own_slot(join: Join) -> None:
    nodes = [await join() for _ in range(3)]

    assert [node.slot for node in nodes] == [(1, 1), (2, 1), (3, 1)]


async def test_a_released_slot_is_shown_as_vacant(join: Join) -> None:
    one, two = await join(), await join()
    await two.stop()

    assert [(seen.node, seen.held) for seen in await one.nodes()] == [(1, True), (2, False)]


async def test_each_drives_its_own_rows_and_knows_the_others(join: Join) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"))
    await flush(two, prepare("b"))

    assert (await due(one), await due(two)) == (["a"], ["b"])
    assert ((await live(one, "a")).owned, (await live(one, "b")).owned) == (True, False)
    assert (await two.overview()).prepared == 2


async def test_a_change_moves_the_row_to_the_node_that_made_it(join: Join) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"))

    await flush(two, Decide("a", 1, 0, DecidedBy.SUBMIT))

    assert (await due(one), await due(two)) == ([], ["a"])
    assert await one.moved([("a", 1)]) == {"a"}
    refused = (await flush(one, abort("a"))).refused[0]
    assert isinstance(refused, LiveRow)
    assert (refused.owned, refused.version) == (False, 2)


async def test_a_redirect_moves_the_row_and_its_address_goes_with_its_adopter(join: Join, clock: SetClock) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"))

    await flush(two, Redirect("a", 1, 5, 0, b"elsewhere"))

    assert await one.moved([("a", 1)]) == {"a"}
    refused = (await flush(one, Redirect("a", 1, 5, 0, b"too late"))).refused[0]
    assert isinstance(refused, LiveRow)
    assert (refused.owned, refused.version, refused.body) == (False, 2, b"elsewhere")
    await two.stop()
    assert await one.adopt(ALL) == 1
    row = await live(one, "a")
    assert (row.owned, row.body) == (True, b"elsewhere")


async def test_a_fenced_node_redirects_nothing(join: Join, clock: SetClock) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"))
    clock.time_ms += LEASE_MS + 1
    await two.heartbeat()
    await two.adopt(ALL)

    with pytest.raises(StoreFenced):
        await flush(one, Redirect("a", 1, 5, 0, b"elsewhere"))

    assert (await live(two, "a")).body == b"body"


async def test_a_released_slot_is_taken_with_its_rows(join: Join) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"))
    await one.stop()

    three = await join()

    assert three.slot == (1, 1)
    assert (await due(three), await due(two)) == (["a"], [])
    assert await two.adopt(ALL) == 0


async def test_rows_of_a_released_slot_are_adopted_at_once_when_no_node_takes_it(join: Join) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"), prepare("parked"))
    await flush(one, Park("parked", 1, parked=True, due_ms=0))
    await one.stop()

    assert await two.adopt(ALL, end_epochs=False) == 2
    assert await due(two) == ["a"]
    assert ((await live(two, "a")).version, (await live(two, "parked")).version) == (1, 2)
    assert (await live(two, "parked")).owned
    assert (await join()).slot == (1, 2), "the tenure has ended with that"


async def test_nothing_of_a_node_within_its_lease_is_adopted(join: Join, clock: SetClock) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"))
    clock.time_ms += LEASE_MS

    assert await two.adopt(ALL) == 0
    assert (await flush(one, abort("a"))).refused == {}


async def test_a_node_that_missed_its_lease_is_fenced_and_its_rows_are_adopted(join: Join, clock: SetClock) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"), prepare("b"))
    clock.time_ms += LEASE_MS + 1

    assert await two.adopt(ALL) == 2
    with pytest.raises(StoreFenced):
        await flush(one, abort("a"), prepare("new"))
    with pytest.raises(StoreFenced):
        await one.heartbeat()
    with pytest.raises(StoreFenced):
        await one.adopt(ALL)
    assert await two.get("new") is None
    assert await due(two) == ["a", "b"]
    assert (await live(two, "a")).version == 1


async def test_heartbeat_flush_and_adoption_renew_the_lease(join: Join, clock: SetClock) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"))
    for renew in (one.heartbeat, lambda: flush(one), lambda: one.adopt(1)):
        clock.time_ms += LEASE_MS
        await renew()
        clock.time_ms += LEASE_MS
        assert await two.adopt(ALL) == 0
    assert (await flush(one, abort("a"))).refused == {}


async def test_a_clock_that_falls_back_keeps_a_dead_node_alive_for_one_lease_only(join: Join, clock: SetClock) -> None:
    """A failover may lead to a host whose clock is behind.

    Otherwise the node would count as dead only when that clock has caught up.
    """
    one, two, three = await join(), await join(), await join()
    await flush(one, prepare("a"))
    await flush(three, prepare("c"))
    clock.time_ms -= 20 * 60_000
    await two.heartbeat()
    clock.time_ms += LEASE_MS
    await three.heartbeat()
    assert await two.adopt(ALL) == 0
    clock.time_ms += 1

    assert await two.adopt(ALL) == 1
    assert await due(two) == ["a"]
    assert (await flush(three, abort("c"))).refused == {}


async def test_a_node_that_was_away_itself_ends_no_epoch(join: Join, clock: SetClock) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"))
    clock.time_ms += LEASE_MS * 10

    assert await two.adopt(ALL, end_epochs=False) == 0
    assert (await flush(one, abort("a"))).refused == {}


async def test_a_start_after_an_outage_leaves_those_who_are_about_to_report_where_they_are(
    join: Join, clock: SetClock
) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"))
    clock.time_ms += LEASE_MS * 10

    three = await join()
    await three.rejoin()

    assert three.slot == (3, 1)
    assert await three.adopt(ALL, end_epochs=False) == 0
    await two.heartbeat()
    assert (await flush(one, abort("a"))).refused == {}
    assert (one.slot, two.slot) == ((1, 1), (2, 1))


async def test_an_expired_slot_is_used_again_once_adoption_has_emptied_it(join: Join, clock: SetClock) -> None:
    one = await join()
    await flush(one, prepare("a"), prepare("b"))
    await flush(one, abort("b"))
    clock.time_ms += LEASE_MS + 1
    two = await join()
    assert await two.adopt(ALL) == 1

    three = await join()

    assert (two.slot, three.slot) == ((2, 1), (1, 2))
    assert (await due(two), await due(three)) == (["a"], [])
    with pytest.raises(StoreFenced):
        await flush(one, abort("a"))
    await flush(three, prepare("c"))
    await flush(three, abort("c"))
    assert (await final(three, "c")).seq == 2, "history numbers go on"


async def test_processes_that_are_killed_and_started_again_do_not_add_slots_for_ever(
    join: Join, clock: SetClock, raw: Raw
) -> None:
    other = await join()
    for _ in range(5):
        await join()  # the process before it was killed, and its heartbeat is silent
        clock.time_ms += LEASE_MS + 1
        await other.heartbeat()
        await other.adopt(ALL)

    assert raw.execute("select count(*) from node").fetchone() == (2,)


async def test_a_fenced_node_joins_again_in_another_slot(join: Join, clock: SetClock) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"))
    clock.time_ms += LEASE_MS + 1
    await two.adopt(ALL)
    with pytest.raises(StoreFenced):
        await flush(one)

    await one.rejoin()

    assert one.slot == (1, 2)
    assert await due(one) == []
    await flush(one, prepare("b"))
    assert await two.adopt(ALL) == 0
    assert (await due(one), await due(two)) == (["b"], ["a"])


async def test_adoption_goes_step_by_step(join: Join, clock: SetClock) -> None:
    one, two = await join(), await join()
    gids = [f"g{number:02}" for number in range(25)]
    await flush(one, *(prepare(gid) for gid in gids))
    await flush(one, *(Park(gid, 1, parked=True, due_ms=0) for gid in gids[:8]))
    clock.time_ms += LEASE_MS + 1

    assert [await two.adopt(10) for _ in range(4)] == [10, 10, 5, 0]
    assert await due(two) == gids[8:]


async def test_a_node_in_the_middle_of_a_flush_is_not_declared_silent(join: Join, clock: SetClock, raw: Raw) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"))
    clock.time_ms += LEASE_MS + 1
    with raw.transaction():
        raw.execute("update node set seen_ms = seen_ms where id = 1")
        assert await two.adopt(ALL) == 0

    assert (await flush(one, abort("a"))).refused == {}


async def test_rows_that_a_node_is_changing_are_waited_for_and_not_taken(join: Join, clock: SetClock, raw: Raw) -> None:
    one, two, three = await join(), await join(), await join()
    await flush(one, prepare("a"), prepare("b"))
    clock.time_ms += LEASE_MS + 1
    await three.heartbeat()
    with raw.transaction():
        raw.execute("update message set node = 3, epoch = 1, version = 2 where gid = 'a'")
        assert await two.adopt(1) == 1, "the other row is taken meanwhile"
    assert await two.adopt(ALL) == 0
    assert (await due(two), await due(three)) == (["b"], ["a"])


async def test_a_row_that_was_only_locked_for_a_moment_is_adopted_in_the_same_step(
    join: Join, clock: SetClock, raw: Raw
) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("a"), prepare("b"), prepare("parked"))
    await flush(one, Park("parked", 1, parked=True, due_ms=0))
    clock.time_ms += LEASE_MS + 1
    with raw.transaction():
        raw.execute("select from message for update")
        adopting = asyncio.create_task(two.adopt(ALL))
        await somebody_waits_for(raw)

    assert await adopting == 3
    assert await due(two) == ["a", "b"]


async def test_who_has_adopted_rows_does_not_wait_for_those_of_another_who_adopts(
    join: Join, clock: SetClock, raw: Raw
) -> None:
    """Each would wait for the other's rows, until the database ends one of them."""
    one, two, three = await join(), await join(), await join()
    await flush(one, prepare("a"), prepare("due"), prepare("parked"))
    await flush(one, Park("parked", 1, parked=True, due_ms=0))
    clock.time_ms += LEASE_MS + 1
    await three.heartbeat()
    assert await two.adopt(1) == 1, "the tenure has ended"
    raw.execute(
        "create function hold() returns trigger language plpgsql as "
        "'begin perform pg_advisory_xact_lock_shared(44); return new; end'"
    )
    raw.execute("create trigger hold before update on message for each row when (new.node = 2) execute function hold()")
    with raw.transaction():
        raw.execute("select pg_advisory_xact_lock(44)")
        adopting = asyncio.create_task(two.adopt(ALL))
        await somebody_waits_for(raw)  # with the due one in its hands

        assert await asyncio.wait_for(three.adopt(ALL), 60) == 1
    assert await adopting == 1
    assert (await due(two), await due(three)) == (["a", "due"], [])
    assert (await live(three, "parked")).owned


async def test_who_waits_for_rows_of_others_keeps_none_of_them_from_its_owner(
    join: Join, url: str, clock: SetClock, raw: Raw
) -> None:
    one, two, three = await join(), await join(), await join()
    await flush(one, prepare("a"), prepare("b"))
    clock.time_ms += LEASE_MS + 1
    await three.heartbeat()
    with psycopg.connect(url) as other:
        other.execute("select from message where gid = 'b' for update")
        with raw.transaction():
            raw.execute("update message set node = 3, epoch = 1 where gid = 'a'")
            adopting = asyncio.create_task(two.adopt(ALL))
            await somebody_waits_for(raw)

        assert await asyncio.wait_for(flush(three, abort("a")), 60)
    assert await adopting == 0
    assert await two.adopt(ALL) == 1, "what was left comes with the next heartbeat"
