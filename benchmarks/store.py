"""What durability costs a message on SQLite, by how many share a commit. Includes the fsync of this machine's disk."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import ROUNDS, Result
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message, encode
from twophase.stores.base import Batch, Decide, Finish, Insert, Item
from twophase.stores.sqlite.store import SqliteStore

SIZES = (1, 10, 100, 1_000)
_MESSAGES_A_ROUND = 2_000
_BODY = encode(
    Message("g", (Branch("http://bank-b/transfer-in", b'{"account":"B","amount":30}'),), "http://bank-a/check")
)


async def _flush(store: SqliteStore, items: list[Item]) -> None:
    result = await store.flush(Batch(items, []))
    assert not result.refused, "the benchmark writes what the store accepts"


async def _life(store: SqliteStore, messages: int, size: int) -> float:
    """Seconds for `messages` messages from prepare to history: three changes each, `size` messages a flush."""
    started = time.perf_counter()
    for _ in range(0, messages, size):
        gids = [make_gid(time.time_ns() // 1_000_000, secrets.token_bytes(RANDOM_BYTES)) for _ in range(size)]
        await _flush(store, [Insert(gid, State.PREPARED, 35_000, _BODY) for gid in gids])
        await _flush(store, [Decide(gid, 1, 0, "submit") for gid in gids])
        await _flush(store, [Finish(gid, 2, State.SUCCEEDED, done=1) for gid in gids])
    return time.perf_counter() - started


async def _measure(size: int) -> tuple[float, ...]:
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "bench.db")
        await store.start()
        try:
            messages = max(size, min(_MESSAGES_A_ROUND, size * 100))
            seconds = [await _life(store, messages, size) for _ in range(ROUNDS + 1)]
        finally:
            await store.stop()
    return tuple(one / messages * 1e6 for one in seconds[1:])


def results() -> Iterator[Result]:
    """All measurements of this page."""
    for size in SIZES:
        yield Result(f"SQLite: prepare, submit, finish; batches of {size}", asyncio.run(_measure(size)))
