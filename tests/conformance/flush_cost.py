"""What a flush costs a message, for benchmarks: `python -m tests.conformance.flush_cost [FOLDER]`.

`measure` drives a store as a coordinator does, one flush after the other: each brings new messages, decides those of
the flush before and finishes those before that, or only inserts. CPU is that of the whole process, so it contains
the hand-over between the event loop and the writer's thread.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.lifecycle import State
from twophase.stores.base import Batch, Decide, Finish, Insert, Item
from twophase.stores.sqlite import SqliteStore

_BODY = bytes(range(256)) + bytes(64)


class FlushCost(msgspec.Struct, frozen=True):
    """Microseconds an item, and milliseconds a flush."""

    items: int
    wall_us: float
    cpu_us: float
    flush_p50_ms: float
    flush_p99_ms: float


async def measure(path: Path, messages: int, seconds: float, *, whole_life: bool) -> FlushCost:
    """Flush batches of `messages` new messages for `seconds`; with their decisions and ends if `whole_life`."""
    store = SqliteStore(path)
    await store.start()
    prepared: list[str] = []
    submitted: list[str] = []
    took: list[float] = []
    done = 0
    cpu = 0.0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        gids = [make_gid(time.time_ns() // 1_000_000, secrets.token_bytes(RANDOM_BYTES)) for _ in range(messages)]
        items: list[Item] = []
        if whole_life:
            items += [Finish(gid, 2, State.SUCCEEDED, done=1) for gid in submitted]
            items += [Decide(gid, 1, 1_000, "submit") for gid in prepared]
        items += [Insert(gid, State.PREPARED, 35_000, _BODY) for gid in gids]
        flush_cpu, flush_began = time.process_time(), time.perf_counter()
        result = await store.flush(Batch(items, []))
        cpu += time.process_time() - flush_cpu
        took.append(time.perf_counter() - flush_began)
        assert not result.refused
        done += len(items)
        prepared, submitted = gids, prepared
    await store.stop()
    wall = sum(took)
    took.sort()
    return FlushCost(
        done,
        wall / done * 1e6,
        cpu / done * 1e6,
        took[len(took) // 2] * 1e3,
        took[len(took) * 99 // 100] * 1e3,
    )


async def main(folder: str | None, seconds: float = 2.0) -> None:
    """Print the table."""
    print("kind        batch  items/s  wall µs/item  CPU µs/item  flush p50 ms  p99 ms")
    for whole_life in (False, True):
        for messages in (1, 10, 100, 1000):
            with tempfile.TemporaryDirectory(dir=folder) as made:
                cost = await measure(Path(made) / "store.db", messages, seconds, whole_life=whole_life)
            kind = "whole life" if whole_life else "prepare"
            print(
                f"{kind:10} {messages:6} {1e6 / cost.wall_us:8.0f} {cost.wall_us:13.1f} {cost.cpu_us:12.1f}"
                f" {cost.flush_p50_ms:13.2f} {cost.flush_p99_ms:7.2f}"
            )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
