"""The cost of durability a message, by the number that share a commit.

It is measured on SQLite, and on PostgreSQL where it is installed. Each message has a whole life: prepared, submitted,
finished, in three flushes. Wall time includes the fsync of this machine's disk; for PostgreSQL the CPU time of the
client and of the database's processes stand beside it.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import uvloop

from benchmarks.measure import ROUNDS, Result
from tests.servers.postgres import PostgresServer
from tests.servers.server import ServerUnavailable
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message, encode
from twophase.stores.base import Store
from twophase.stores.batch import Batch, Decide, Finish, Insert, Item
from twophase.stores.postgres.store import PostgresStore
from twophase.stores.sqlite.store import SqliteStore

SIZES = (1, 10, 100, 1_000)
_MESSAGES_A_ROUND = 2_000
_MESSAGES_LEAST = 200
_BODY = encode(
    Message("g", (Branch("http://bank-b/transfer-in", b'{"account":"B","amount":30}'),), "http://bank-a/check")
)
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class _Cost(msgspec.Struct, frozen=True):
    """Seconds a round."""

    wall: float
    client_cpu: float
    database_cpu: float


async def _flush(store: Store, items: list[Item]) -> None:
    result = await store.flush(Batch(items, []))
    assert not result.refused, "the benchmark writes what the store accepts"


async def _life(store: Store, messages: int, size: int) -> float:
    """Return the process' CPU seconds of `messages` messages, `size` a flush."""
    used = 0.0
    for _ in range(0, messages, size):
        gids = [make_gid(time.time_ns() // 1_000_000, secrets.token_bytes(RANDOM_BYTES)) for _ in range(size)]
        inserts: list[Item] = [Insert(gid, State.PREPARED, 35_000, _BODY) for gid in gids]
        decides: list[Item] = [Decide(gid, 1, 0, "submit") for gid in gids]
        finishes: list[Item] = [Finish(gid, 2, State.SUCCEEDED, done=1) for gid in gids]
        began = time.process_time()
        await _flush(store, inserts)
        await _flush(store, decides)
        await _flush(store, finishes)
        used += time.process_time() - began
    return used


async def _measure(open_store: Callable[[], Store], size: int, database_cpu: Callable[[], float]) -> list[_Cost]:
    """Return the cost of a message, one figure a round; the first does not count."""
    store = open_store()
    await store.start()
    messages = max(size, min(_MESSAGES_A_ROUND, max(size * 100, _MESSAGES_LEAST)))
    costs = []
    try:
        for _ in range(ROUNDS + 1):
            database_began, began = database_cpu(), time.perf_counter()
            client = await _life(store, messages, size)
            wall = time.perf_counter() - began
            costs.append(_Cost(wall / messages, client / messages, (database_cpu() - database_began) / messages))
    finally:
        await store.stop()
    return costs[1:]


def _results(
    name: str, open_store: Callable[[int], Store], database_cpu: Callable[[], float], sizes: Sequence[int]
) -> Iterator[Result]:
    for size in sizes:
        costs = uvloop.run(_measure(lambda size=size: open_store(size), size, database_cpu))  # type: ignore[misc]
        title = f"{name}, {size} a flush"
        yield Result(f"{title}: prepare, submit, finish", tuple(cost.wall * 1e6 for cost in costs))
        yield Result(f"{title}: CPU of this process", tuple(cost.client_cpu * 1e6 for cost in costs))
        if any(cost.database_cpu for cost in costs):
            yield Result(f"{title}: CPU of the database", tuple(cost.database_cpu * 1e6 for cost in costs))


def _children_cpu(parent: int) -> float:
    """Return the CPU seconds of the living children of a process, and of itself."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(entry.name) == parent or int(fields[1]) == parent:
                total += int(fields[11]) + int(fields[12])
    return total / _TICKS_A_SECOND


def results(sizes: Sequence[int] = SIZES) -> Iterator[Result]:
    """Yield all measurements of this module, for each number of messages a flush."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _results("SQLite", lambda size: SqliteStore(Path(folder) / f"{size}.db"), lambda: 0.0, sizes)
    server = PostgresServer()
    try:
        server.start()
    except ServerUnavailable as error:
        print(f"PostgreSQL was not measured: {error}")
        return
    try:
        postmaster = int((Path(server.address.directory) / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        url = server.create_database("bench").dsn
        yield from _results("PostgreSQL", lambda _: PostgresStore(url), lambda: _children_cpu(postmaster), sizes)
    finally:
        server.stop()
