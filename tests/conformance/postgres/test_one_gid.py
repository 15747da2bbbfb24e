"""A gid stands once over live rows and history together.

That holds whichever node writes or reads it (correctness 18, 21).
"""

from __future__ import annotations

import asyncio

from tests.conformance.postgres.conftest import Join, Raw, asked, somebody_waits_for
from tests.support.items import abort, final, flush, live, prepare
from twophase.stores.postgres import PostgresStore
from twophase.stores.postgres.statements import FLUSH, GET
from twophase.stores.rows import HistoryRow

SECONDS, GIDS, FLUSHES = 2.0, 4, 12
END = """
with gone as (delete from message where gid = %s returning *)
insert into history
    (node, seq, gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, done, body)
select 77, 1, gid, 5, created_ms, decided_ms, 1, 'abort', '', 0, 0, body from gone
"""


async def test_an_insert_that_waits_for_an_end_sees_the_history_that_came_with_it(join: Join, raw: Raw) -> None:
    one, two = await join(), await join()
    await flush(one, prepare("g", body=b"first"))
    with raw.transaction():
        raw.execute(END, ("g",))
        inserting = asyncio.create_task(flush(two, prepare("g", body=b"second"), prepare("beside")))
        await somebody_waits_for(raw)

    result = await inserting

    row = await final(two, "g")
    assert result.refused == {0: row}
    assert row.body == b"first"
    assert raw.execute("select count(*) from message where gid = 'g'").fetchone() == (0,)
    assert (await live(two, "beside")).owned


async def test_what_is_on_its_way_into_history_is_read_as_it_was_or_as_it_is(join: Join, raw: Raw) -> None:
    """Two statements, history first and then live rows, would find it in neither."""
    one, two = await join(), await join()
    await flush(one, prepare("g", body=b"first"))
    with raw.transaction():
        raw.execute("lock table message in access exclusive mode")
        raw.execute(END, ("g",))
        reading = asyncio.create_task(two.get("g"))
        await somebody_waits_for(raw)

    row = await reading

    assert isinstance(row, HistoryRow)
    assert row.body == b"first"


async def test_refused_items_are_read_in_one_statement(join: Join) -> None:
    one = await join()
    await flush(one, prepare("live"), prepare("ended"))
    await flush(one, abort("ended"))
    async with asked(one) as statements_sent:
        result = await flush(one, abort("live", 9), abort("ended"), abort("unknown"))

    assert statements_sent == [FLUSH, GET]
    assert result.refused == {0: await one.get("live"), 1: await one.get("ended"), 2: None}


async def _hammer(store: PostgresStore, until: float) -> None:
    """Insert and end the same few gids over and over.

    The number of rounds has a minimum, however slow the disk is.
    """
    loop = asyncio.get_running_loop()
    flushes = 0
    while loop.time() < until or flushes < FLUSHES:
        gids = [f"h{flushes // 6 * GIDS + place}" for place in range(GIDS)]
        await flush(store, *(prepare(gid) for gid in gids))
        await flush(store, *(abort(gid) for gid in gids))
        flushes += 2


async def test_hammering_the_same_gids_from_two_nodes_never_leaves_one_in_both(join: Join, raw: Raw) -> None:
    one, two = await join(), await join()
    until = asyncio.get_running_loop().time() + SECONDS

    await asyncio.gather(_hammer(one, until), _hammer(two, until))
    twice = "select count(*) from message join history using (gid)"
    assert raw.execute(twice).fetchone() == (0,)
    assert raw.execute("select count(*) - count(distinct gid) from history").fetchone() == (0,)
    counted = raw.execute("select node, count(*), max(seq) from history group by node").fetchall()
    assert all(count == highest for _, count, highest in counted)


async def test_two_ends_of_one_message_make_one_history_row(join: Join) -> None:
    one, two = await join(), await join()
    for number in range(20):
        gid = f"g{number}"
        await flush(one, prepare(gid))
        results = await asyncio.gather(flush(one, abort(gid)), flush(two, abort(gid)))
        refused = [result.refused for result in results]
        assert sorted(map(len, refused)) == [0, 1]
        (row,) = max(refused, key=len).values()
        assert isinstance(row, HistoryRow)
