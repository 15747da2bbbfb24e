"""The victim of `test_crash`: it flushes until it is killed.

After each flush it reports what was acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from multiprocessing.connection import Connection
from pathlib import Path

from tests.conformance.engines import ENGINES
from tests.support.items import abort
from twophase.core.audit_log import AuditEntry
from twophase.core.lifecycle import State
from twophase.stores.batch import Batch, Insert, Item


class _Clock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def write_until_killed(engine_name: str, folder: Path, life: int, speaks: Connection) -> None:
    """Insert some, finish those of the last flush, report what is durable, and repeat.

    A report is (gid, is it finished).
    """
    asyncio.run(_write(engine_name, folder, life, speaks))


async def _write(engine_name: str, folder: Path, life: int, speaks: Connection) -> None:
    (engine,) = (engine for engine in ENGINES if engine.name == engine_name)
    store = engine.make(folder, _Clock())
    await store.start()
    before: list[str] = []
    for number in itertools.count():
        gids = [f"life{life}-{number}-{place}" for place in range(number % 7 + 1)]
        items: list[Item] = [Insert(gid, State.PREPARED, 0, gid.encode()) for gid in gids]
        items += [abort(gid) for gid in before]
        acts = {at: AuditEntry("eve", "", "stop", gid) for at, gid in enumerate(before, len(gids))}
        result = await store.flush(Batch(items, [], acts))
        assert not result.refused
        speaks.send([(gid, False) for gid in gids] + [(gid, True) for gid in before])
        before = gids
