"""A plan made while the tables are empty, as they often are, is kept.

It must also be right when they are not empty.
"""

from __future__ import annotations

import asyncio

from tests.conformance.postgres.conftest import LEASE_MS, Join, Raw, somebody_waits_for
from tests.support.items import SetClock, abort, flush, prepare
from twophase.stores.batch import Decide, DecideEarly, Park, Reschedule
from twophase.stores.rows import DecidedBy

COUNT = 4_000
HALF = COUNT // 2
SECONDS = 60
"""Bound on a large batch.

A walk over all items for each row takes minutes; by the index it is a second or less.
"""


async def test_large_batches_are_fast_after_statistics_of_empty_tables(join: Join, raw: Raw, clock: SetClock) -> None:
    one, two = await join(), await join()
    raw.execute("analyze")
    for gid in ("a", "b"):
        await flush(one, prepare(gid))
        await flush(one, Decide(gid, 1, 0, DecidedBy.SUBMIT))
        await flush(one, Reschedule(gid, 2, 5, 1, 0))
        await flush(one, prepare("a"))
        await flush(one, abort(gid, 3), abort("unknown"))
    await flush(one, prepare("c"))
    await flush(one, DecideEarly("c", 1, 0, DecidedBy.SUBMIT, 1, 0), DecideEarly("d", 1, 0, DecidedBy.SUBMIT, 1, 0))
    await flush(one, abort("c", 2))
    await two.adopt(10)
    gids = [f"g{number}" for number in range(COUNT)]

    async with asyncio.timeout(SECONDS):
        assert (await flush(one, *(prepare(gid) for gid in gids))).refused == {}
        assert (await flush(one, *(Decide(gid, 1, 0, DecidedBy.SUBMIT) for gid in gids[:HALF]))).refused == {}
        early = [DecideEarly(gid, 1, 0, DecidedBy.SUBMIT, 1, 0) for gid in gids[HALF:]]
        assert (await flush(one, *early)).refused == {}
        assert len((await flush(one, *early)).refused) == HALF
        assert (await flush(one, *(Reschedule(gid, 2, 5, 1, 0) for gid in gids[:HALF]))).refused == {}
        assert (await flush(one, *(Park(gid, 2, parked=True, due_ms=5) for gid in gids[HALF:]))).refused == {}
        assert len((await flush(one, *(prepare(gid) for gid in gids))).refused) == COUNT
        assert await one.moved([(gid, 3) for gid in gids]) == set()
        clock.time_ms += LEASE_MS + 1
        with raw.transaction():
            raw.execute("select from message for update")
            adopting = asyncio.create_task(two.adopt(COUNT + 1))
            await somebody_waits_for(raw)
        assert await adopting == COUNT
        assert (await flush(two, *(abort(gid, 3) for gid in gids))).refused == {}
        assert len((await flush(two, *(abort(gid, 3) for gid in gids))).refused) == COUNT
        clock.time_ms += 1
        assert (await two.purge(clock.time_ms, COUNT + 3)).history == COUNT + 3
