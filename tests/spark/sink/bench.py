"""Measure the messages a second that the sink publishes.

`python -m tests.spark.sink.bench [MESSAGES] [postgres|sqlite]`

Coordinator, store, ledger, branch and Spark share this machine. `published` is the whole call of `write`: rows to the
last submit that was acknowledged, Spark's own start of a job included; `prepared` and `submitted` are its two phases,
by the store's own times; `delivered` ends when the last message has reached the branch, which continues beside the
submits. `--later` publishes messages that are to be delivered an hour later, so that no branch call competes for the
processors; its figures hold as long as the coordinator has all of them in memory (100 000). `--durability check-back`
publishes with that option: the coordinator stores one change of a message less. A first small `write` starts Spark's
workers; then the rounds follow, of new rows each.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from pyspark.sql import SparkSession

from benchmarks.servers.processes import Meter, Process, listening, machine_cpu_s, tree
from tests.crash.checker import rows
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.spark.sink.harness import Harness, running_harness
from tests.support.secret_files import secret_in
from twophase_spark import register
from twophase_spark.session import SessionSettings, open_session

WARM = 500
DELIVERED_BAR = 5_000
NAMES = ("Spark", "coordinator", "database")
_GID = re.compile(rb"[?&]gid=([^& ]+)")
_DONE = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Branch(asyncio.Protocol):
    """A branch that answers each call at once and keeps its gid.

    A call arrives complete in one read, like the coordinator's.
    """

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
    """Run the branch until its gids are requested."""

    async def main() -> None:
        gids: list[bytes] = []
        server = await asyncio.get_running_loop().create_server(lambda: Branch(gids), "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await asyncio.to_thread(told.recv)
        told.send((len(gids), len(set(gids))))

    asyncio.run(main())


@contextlib.contextmanager
def places(engine: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Return store and ledger, in two databases of one server."""
    if engine == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}", f"sqlite:///{folder / 'ledger.db'}"
        return
    with running(PostgresServer()) as server:
        store, ledger = server.create_database("store"), server.create_database("ledger")
        yield store.dsn, secret_in(folder / "ledger-url", ledger.dsn)


def parts(harness: Harness) -> dict[str, int]:
    """Return the processes to account.

    They are Java with its workers, the coordinator and the database server.
    """
    url = urlsplit(harness.store)
    database = {"database": listening(url.port) or 0} if url.port else {}
    java = next(pid for pid in tree(os.getpid()) if Path(f"/proc/{pid}/comm").read_text().strip() == "java")
    return {"Spark": java, "coordinator": harness.pid, **database}


class Round(msgspec.Struct, frozen=True):
    """One large `write`.

    Times in seconds; `cpu_s` of each part, and of all else on the machine.
    """

    published_s: float
    prepared_s: float
    submitted_s: float
    delivered_s: float
    cpu_s: dict[str, float]
    others: float


class Bench:
    """Rounds over one harness, in one session."""

    def __init__(self, harness: Harness, spark: SparkSession, port: int, durability: str, *, later: bool) -> None:
        self._scene = harness
        self._spark = spark
        self._options = harness.options(url=f"http://127.0.0.1:{port}/in", checkAfter="600", durability=durability)
        if later:
            self._options["delay"] = "3600"
        self._later = later
        self._last = 0

    def write(self, messages: int) -> float:
        """Publish new rows, and return the seconds it took."""
        first, self._last = self._last, self._last + messages
        frame = self._spark.range(first, self._last, numPartitions=2).selectExpr(
            "id", "concat('customer-', id % 1000) as customer", "id % 97 as amount"
        )
        began = time.perf_counter()
        frame.write.format("twophase").mode("append").options(**self._options).save()
        return time.perf_counter() - began

    def round(self, messages: int) -> Round:
        """Run one large `write`, to its end."""
        meter = Meter([Process(name, pid) for name, pid in parts(self._scene).items()])
        before, machine_s = {one.name: one.cpu_s for one in meter.read()}, machine_cpu_s()
        since_ms = time.time_ns() // 1_000_000
        began = time.perf_counter()
        published_s = self.write(messages)
        self._settle()
        delivered_s = time.perf_counter() - began
        after, machine_s = {one.name: one.cpu_s for one in meter.read()}, machine_cpu_s() - machine_s
        cpu_s = {name: after[name] - before[name] for name in before if name in NAMES}
        others = (machine_s - sum(cpu_s.values())) / delivered_s
        return Round(published_s, *self._phases(since_ms), delivered_s, cpu_s, others)

    def _settle(self) -> None:
        while not self._later and rows(self._scene.store, "select sum(seq) from node") != [(self._last,)]:
            time.sleep(0.1)

    def _phases(self, since_ms: int) -> tuple[float, float]:
        table = "message" if self._later else "history"
        [times] = rows(
            self._scene.store,
            "select max(created_ms) - min(created_ms), max(decided_ms) - min(decided_ms) "
            f"from {table} where created_ms >= {since_ms}",
        )
        return times[0] / 1000, times[1] / 1000


def shown(name: str, values: list[float], unit: str = "") -> str:
    """Return the least, middle and greatest value."""
    return f"{name} {min(values):,.0f} / {statistics.median(values):,.0f} / {max(values):,.0f}{unit}"


def report(found: list[Round], messages: int, *, later: bool) -> None:
    """Print the results of all rounds: least, middle and greatest."""
    count = len(found)
    print(f"messages a second, least / middle / most of {count} rounds of {messages}:")
    print("  " + shown("published", [messages / one.published_s for one in found]))
    print("  " + shown("prepared", [messages / one.prepared_s for one in found]))
    print("  " + shown("submitted", [messages / one.submitted_s for one in found]))
    print("  " + shown("delivered", [messages / one.delivered_s for one in found]))
    cpu = [shown(name, [1e6 * one.cpu_s[name] / messages for one in found]) for name in found[0].cpu_s]
    print(f"CPU µs a message: {'; '.join(cpu)}")
    middle = statistics.median([messages / one.delivered_s for one in found])
    if not later:
        verdict = "kept" if middle >= DELIVERED_BAR else "missed"
        print(f"bar: delivered at once, messages/s: {middle:,.0f}, at least {DELIVERED_BAR:,}: {verdict}")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.sink.bench", description=__doc__)
    parser.add_argument("messages", type=int, nargs="?", default=50_000)
    parser.add_argument("engine", choices=("postgres", "sqlite"), nargs="?", default="postgres")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--later", action="store_true", help="to be delivered an hour later")
    parser.add_argument("--durability", choices=("submit", "check-back"), default="submit")
    asked = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    branch = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    branch.start()
    port = ours.recv()
    with (
        tempfile.TemporaryDirectory() as folder,
        places(asked.engine, Path(folder)) as (store, ledger),
        running_harness(Path(folder), store, ledger) as harness,
        open_session(SessionSettings(cores=2, memory_mb=1024, name="bench")) as spark,
    ):
        register(spark)
        bench = Bench(harness, spark, port, asked.durability, later=asked.later)
        bench.write(WARM)
        found = []
        for _ in range(asked.rounds):
            load = os.getloadavg()[0]
            found.append(bench.round(asked.messages))
            one = found[-1]
            print(
                f"{asked.messages} messages: published in {one.published_s:.2f} s (prepared {one.prepared_s:.2f}, "
                f"submitted {one.submitted_s:.2f}), delivered {one.delivered_s:.2f}; other programs meanwhile "
                f"{one.others:.2f} of {os.cpu_count()} processors, load before {load:.1f}",
                flush=True,
            )
    ours.send(None)
    calls, distinct = ours.recv()
    print(f"{calls} calls of {distinct} messages")
    report(found, asked.messages, later=asked.later)
    branch.join(10)


if __name__ == "__main__":
    main()
