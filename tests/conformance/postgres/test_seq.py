"""Every node numbers its history by itself.

The numbers have no gaps and follow the order of its commits, whatever the others do.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise

from tests.conformance.postgres.conftest import Join, Raw
from tests.support.items import abort, flush, prepare
from twophase.stores.postgres import PostgresStore

NODES, ROUNDS, A_ROUND = 3, 15, 8


async def _write(store: PostgresStore) -> list[str]:
    """Return the gids that this node has finished, in the order of its flushes.

    Some ends are refused on the way.
    """
    ended: list[str] = []
    for number in range(ROUNDS):
        gids = [f"{store.slot[0]}-{number}-{place}" for place in range(A_ROUND)]
        await flush(store, *(prepare(gid) for gid in gids))
        await flush(store, *(abort(gid) for gid in gids), abort("unknown"), *(abort(gid) for gid in ended[-2:]))
        ended += gids
    return ended


async def test_numbers_of_every_node_are_gapless_and_in_commit_order(join: Join, raw: Raw) -> None:
    nodes = [await join() for _ in range(NODES)]

    ended = await asyncio.gather(*(_write(node) for node in nodes))

    for node, gids in zip(nodes, ended, strict=True):
        rows = raw.execute(
            "select seq, gid, finished_ms from history where node = %s order by seq", (node.slot[0],)
        ).fetchall()
        assert [(seq, gid) for seq, gid, _ in rows] == list(enumerate(gids, 1))
        assert all(before[2] <= after[2] for before, after in pairwise(rows))
