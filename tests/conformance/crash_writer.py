"""The victim of `test_crash`: flushes until it is killed, and says what was acknowledged after each flush."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from pathlib import Path

from tests.conformance.engines import ENGINES
from tests.conformance.items import abort
from twophase.core.lifecycle import State
from twophase.stores.base import Batch, Insert, Item


class _Clock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


async def write(engine_name: str, folder: Path, life: int) -> None:
    """Insert some, finish those of the flush before, say so, and again."""
    (engine,) = (engine for engine in ENGINES if engine.name == engine_name)
    store = engine.make(folder, _Clock())
    await store.start()
    print("started", flush=True)
    before: list[str] = []
    for number in itertools.count():
        gids = [f"life{life}-{number}-{place}" for place in range(number % 7 + 1)]
        items: list[Item] = [Insert(gid, State.PREPARED, 0, gid.encode()) for gid in gids]
        items += [abort(gid) for gid in before]
        result = await store.flush(Batch(items, []))
        assert not result.refused
        said = [f"inserted {gid}" for gid in gids] + [f"finished {gid}" for gid in before]
        # One write, so that a line is whole or missing.
        sys.stdout.write("\n".join(said) + "\n")
        sys.stdout.flush()
        before = gids


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
