"""How many messages a second the sink publishes: `python -m tests.spark.sink.bench [MESSAGES] [postgres|sqlite]`.

Coordinator, store, ledger, branch and Spark share this machine. `write` is the time of the whole call: rows to the
last submit that was acknowledged, Spark's own start of a job included; `delivered` ends when the last message has
reached the branch. Run after a first small one, which starts Spark's workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

from tests.crash.checker import rows
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.spark.sink.scene import Scene, staged
from twophase.bench.processes import Meter, Process, listening, machine_cpu_s, tree
from twophase.spark import register
from twophase.spark.session import SessionSettings, open_session

WARM = 500
NAMES = ("Spark", "coordinator", "database")
_GID = re.compile(rb"[?&]gid=([^& ]+)")
_DONE = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Branch(asyncio.Protocol):
    """Answers each call at once and keeps its gid; a call comes whole in one read, as ours do."""

    gids: list[bytes]

    def __init__(self, gids: list[bytes]) -> None:
        self.gids = gids

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        found = _GID.findall(data.partition(b"\r\n")[0])
        self.gids += found
        self.transport.write(_DONE)


def serve(told: Connection) -> None:
    """The branch, until somebody asks what came."""

    async def main() -> None:
        gids: list[bytes] = []
        server = await asyncio.get_running_loop().create_server(lambda: Branch(gids), "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await asyncio.to_thread(told.recv)
        told.send((len(gids), len(set(gids))))

    asyncio.run(main())


@contextlib.contextmanager
def places(engine: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Store and ledger, in two databases of one server."""
    if engine == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}", f"sqlite:///{folder / 'ledger.db'}"
        return
    with running(PostgresServer()) as server:
        store, ledger = server.create_database("store"), server.create_database("ledger")
        reference = folder / "ledger-url"
        reference.write_text(ledger.dsn)
        yield store.dsn, f"file:{reference}"


def parts(scene: Scene) -> dict[str, int]:
    """The processes to account: Java with its workers, the coordinator, the database server."""
    url = urlsplit(scene.store)
    database = {"database": listening(url.port) or 0} if url.port else {}
    java = next(pid for pid in tree(os.getpid()) if Path(f"/proc/{pid}/comm").read_text().strip() == "java")
    return {"Spark": java, "coordinator": scene.pid, **database}


def measure(scene: Scene, branch: Connection, port: int, messages: int) -> None:
    """One small `write`, one large, and what came."""
    with open_session(SessionSettings(cores=2, memory_mb=1024, name="bench")) as spark:
        register(spark)

        def write(first: int, last: int) -> float:
            frame = spark.range(first, last, numPartitions=2).selectExpr(
                "id", "concat('customer-', id % 1000) as customer", "id % 97 as amount"
            )
            began = time.perf_counter()
            options = scene.options(url=f"http://127.0.0.1:{port}/in", checkAfter="600")
            frame.write.format("twophase").mode("append").options(**options).save()
            return time.perf_counter() - began

        write(0, WARM)
        load = os.getloadavg()[0]
        meter = Meter([Process(name, pid) for name, pid in parts(scene).items()])
        before, machine_s = {one.name: one.cpu_s for one in meter.read()}, machine_cpu_s()
        began = time.perf_counter()
        took_s = write(WARM, WARM + messages)
        while rows(scene.store, "select count(*) from history where state = 4") != [(WARM + messages,)]:
            time.sleep(0.1)
        delivered_s = time.perf_counter() - began
        after, machine_s = {one.name: one.cpu_s for one in meter.read()}, machine_cpu_s() - machine_s
    branch.send(None)
    calls, distinct = branch.recv()
    print(
        f"{messages} messages: write {took_s:.2f} s = {messages / took_s:,.0f}/s, delivered {delivered_s:.2f} s = "
        f"{messages / delivered_s:,.0f}/s; {calls} calls of {distinct} messages; load average before: {load:.1f}"
    )
    cpu = {name: after[name] - before[name] for name in before if name in NAMES}
    shown = ", ".join(f"{name} {1e6 * spent_s / messages:,.0f}" for name, spent_s in cpu.items())
    others = (machine_s - sum(cpu.values())) / delivered_s
    print(f"CPU µs a message: {shown}; other programs meanwhile: {others:.2f} of {os.cpu_count()} processors")


def main(messages: int, engine: str) -> None:
    """Measure once."""
    ours, theirs = multiprocessing.Pipe()
    branch = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    branch.start()
    port = ours.recv()
    with (
        tempfile.TemporaryDirectory() as folder,
        places(engine, Path(folder)) as (store, ledger),
        staged(Path(folder), store, ledger) as scene,
    ):
        measure(scene, ours, port, messages)
    branch.join(10)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000, sys.argv[2] if len(sys.argv) > 2 else "postgres")
