"""A reader that follows (node, seq) while the coordinator writes.

It sees every final message once, in commit order.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from tests.conformance.engines import Engine
from tests.support.items import abort, flush, prepare
from twophase.stores.base import Store

ROUNDS, A_ROUND = 60, 20


async def test_a_follower_misses_nothing_and_sees_nothing_twice(engine: Engine, store: Store, tmp_path: Path) -> None:
    seen: list[tuple[int, str]] = []
    pages = 0
    written, following_up = threading.Event(), threading.Event()

    def follow() -> None:
        nonlocal pages
        while True:
            last_look = written.is_set()
            page = engine.finished(tmp_path, seen[-1][0] if seen else 0)
            seen.extend(page)
            pages += bool(page)
            if page:
                following_up.set()
            if last_look:
                return

    following = asyncio.create_task(asyncio.to_thread(follow))
    for number in range(ROUNDS):
        gids = [f"{number:03}-{place:02}" for place in range(A_ROUND)]
        await flush(store, *(prepare(gid) for gid in gids))
        await flush(store, *(abort(gid) for gid in gids), abort("unknown"))
        if number == 0:
            assert await asyncio.to_thread(following_up.wait, 60)
    written.set()
    await following

    gids = [f"{number:03}-{place:02}" for number in range(ROUNDS) for place in range(A_ROUND)]
    assert seen == list(enumerate(gids, 1))
    assert pages > 1, "it followed while the other wrote"
