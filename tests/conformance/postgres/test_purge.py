"""Several nodes on one store delete old rows at once, while others write.

No row is deleted twice, and none too early (I10).
"""

from __future__ import annotations

import asyncio

from tests.conformance.postgres.conftest import Join
from tests.conformance.test_purge import born, purge_all
from tests.support.items import SetClock, abort, flush, prepare
from twophase.stores.batch import Forgotten
from twophase.stores.postgres import PostgresStore


async def _ended(store: PostgresStore, gids: list[str]) -> None:
    await flush(store, *(prepare(gid) for gid in gids))
    await flush(store, *(abort(gid) for gid in gids))


async def test_nodes_that_forget_at_once_remove_everything_old_and_nothing_else(join: Join, clock: SetClock) -> None:
    nodes = [await join() for _ in range(3)]
    old = [[born(clock.time_ms, place * 1_000 + number) for number in range(150)] for place in range(3)]
    for node, gids in zip(nodes, old, strict=True):
        await _ended(node, gids)
    clock.time_ms += 1
    before_ms = clock.time_ms
    for place, node in enumerate(nodes):
        await _ended(node, [f"young {place}"])

    await asyncio.gather(*(purge_all(node, before_ms, limit=10) for node in nodes))

    assert [gid for gids in old for gid in gids if await nodes[0].get(gid) is not None] == []
    assert [await nodes[0].get(f"young {place}") is not None for place in range(3)] == [True] * 3
    assert [await node.history_horizon_ms() for node in nodes] == [before_ms] * 3


async def test_a_node_that_has_not_heard_of_the_horizon_gives_no_second_life(join: Join, clock: SetClock) -> None:
    """One node deletes rows; the other gets a gid that it has never seen.

    It must learn the horizon in its own commit.
    """
    cleaner, other = await join(), await join()
    gids = [born(clock.time_ms, number) for number in range(200)]
    await _ended(cleaner, gids)
    clock.time_ms += 1

    async def duplicates() -> None:
        for start in range(0, len(gids), 5):
            result = await flush(other, *(prepare(gid) for gid in gids[start : start + 5]))
            assert sorted(result.refused) == list(range(5))

    cleaning = asyncio.create_task(purge_all(cleaner, clock.time_ms, limit=10))
    async with asyncio.timeout(60):
        while not cleaning.done():
            await duplicates()

    result = await flush(other, prepare(gids[0]))
    assert result.refused == {0: Forgotten(clock.time_ms)}
