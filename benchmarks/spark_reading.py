"""The speed of reading a coordinator's history with Spark.

It is measured in rows a second and core, from SQLite and PostgreSQL, in batches and as a stream.

    python -m benchmarks.spark_reading [--rows N] [--rounds N] [--engine sqlite|postgresql]

Bars: 250 000 rows/s/core in batches by ADBC with the default columns, 20 000 rows/s of the stream. The database runs on
the same cores, its pages are warm; every named column is handed to Java. The least, the middle and the greatest of the
rounds are shown. The middle round has the processor time a row: of Java, of Spark's Python workers (where this source
runs), and of the database. The load of the machine before each part is shown, too, because other work on it changes
rows a second most.

The floor is PostgreSQL's own time: the same rows and columns by `COPY … TO '/dev/null'`, by as many connections.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from pyspark.sql import DataFrame, SparkSession

from benchmarks.servers.processes import cpu_s, listening, tree
from tests.servers.postgres import PostgresServer
from tests.servers.server import ServerUnavailable
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.message import Branch, Message, encode
from twophase.stores.postgres.store import PostgresStore
from twophase.stores.sqlite.store import SqliteStore
from twophase_spark import register
from twophase_spark.session import SessionSettings, open_session

CORES = 2
BATCH_BAR, STREAM_BAR = 250_000, 20_000
BORN_MS = 1_750_000_000_000
ROWS_PER_MICRO_BATCH = 200_000
_WITH_BRANCHES = "node,seq,gid,state,created_ms,decided_ms,finished_ms,branches,check_url"
_OF_THE_BAR = "default columns, ADBC"
_PLAIN = "node,seq,gid,state,created_ms,decided_ms,finished_ms,decided_by,reason,attempts,done"
_COLUMNS = "node, seq, gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, done, body"


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_reading", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=("sqlite", "postgresql"), help="this one only")
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, {CORES} cores for Spark, {options.rows} rows; {options.rounds} rounds each")
    folder = Path(tempfile.mkdtemp(prefix="twophase-bench-"))
    server = PostgresServer()
    try:
        places = [("SQLite", _sqlite(folder, options.rows))] if options.engine != "postgresql" else []
        try:
            if options.engine != "sqlite":
                server.start()
                places.append(("PostgreSQL", _postgresql(folder, server, options.rows)))
                _floor(server, options.rows, options.rounds)
        except ServerUnavailable as error:
            print(f"PostgreSQL was not measured: {error}")
        settings = SessionSettings(cores=CORES, memory_mb=1024, name="reading")
        with open_session(settings) as spark:
            register(spark)
            for name, url in places:
                database = None if name == "SQLite" else listening(server.address.port)
                _measure(spark, name, url, options.rows, options.rounds, folder, Account(database))
    finally:
        server.stop()
        shutil.rmtree(folder)


class Round(msgspec.Struct, frozen=True):
    """One read: its rate, and the processor time a row of each part, in microseconds."""

    rate: float
    cpu_us: dict[str, float]


class Account:
    """Processor time of Java, of its Python workers and of the database."""

    def __init__(self, database: int | None) -> None:
        self._java = next(pid for pid in tree(os.getpid()) if _program(pid) == "java")
        self._database = database

    def read_s(self) -> dict[str, float]:
        """Return the seconds so far."""
        of = {pid: cpu_s(pid) for pid in tree(self._java)}
        python_s = sum(spent_s for pid, spent_s in of.items() if _program(pid) != "java")
        found = {"Java": sum(of.values()) - python_s, "Python": python_s}
        if self._database is not None:
            found["database"] = sum(cpu_s(pid) for pid in tree(self._database))
        return found

    def round(self, rows: int, cores: int, work: Callable[[], float]) -> Round:
        """Do some work that reads `rows` rows and returns its time; return the round."""
        before = self.read_s()
        took_s = work()
        after = self.read_s()
        return Round(rows / took_s / cores, {name: 1e6 * (after[name] - before[name]) / rows for name in after})


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _measure(spark: SparkSession, name: str, url: str, rows: int, rounds: int, folder: Path, account: Account) -> None:
    for what, columns, driver in (
        (_OF_THE_BAR, "", "adbc"),
        ("with branches, ADBC", _WITH_BRANCHES, "adbc"),
        ("gid and state, ADBC", "gid,state", "adbc"),
        ("default columns, driver", "", "python"),
    ):
        frame = _history(spark, url, columns, driver)
        _seconds(frame)
        found = [account.round(rows, CORES, partial(_seconds, frame)) for _ in range(rounds)]
        _line(f"{name}: batch, {what}", found, "rows/s/core", BATCH_BAR if what == _OF_THE_BAR else None)
    found = [
        account.round(rows, 1, partial(_streamed, spark, url, folder / f"checkpoint-{name}-{number}"))
        for number in range(rounds)
    ]
    _line(f"{name}: stream, default columns", found, "rows/s", STREAM_BAR)


def _history(spark: SparkSession, url: str, columns: str, driver: str) -> DataFrame:
    reader = spark.read.format("twophase").option("url", url).option("table", "history").option("driver", driver)
    return reader.option("partitions", str(CORES)).option("columns", columns).load()


def _seconds(frame: DataFrame) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _streamed(spark: SparkSession, url: str, checkpoint: Path) -> float:
    reader = spark.readStream.format("twophase").option("url", url).option("partitions", str(CORES))
    stream = reader.option("maxRowsPerBatch", str(ROWS_PER_MICRO_BATCH)).load().writeStream.format("noop")
    began = time.perf_counter()
    query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return time.perf_counter() - began


def _line(what: str, found: list[Round], unit: str, bar: int | None) -> None:
    ordered = sorted(found, key=lambda one: one.rate)
    least, middle, most = ordered[0], ordered[len(ordered) // 2], ordered[-1]
    cpu = ", ".join(f"{name} {us:.2f}" for name, us in middle.cpu_us.items())
    verdict = "" if bar is None else f"; bar {bar:,}: {'kept' if middle.rate >= bar else 'missed'}"
    print(
        f"{what:<38} {least.rate:>9,.0f} {middle.rate:>9,.0f} {most.rate:>9,.0f} {unit:<11} "
        f"CPU µs a row: {cpu}{verdict}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def _floor(server: PostgresServer, rows: int, rounds: int) -> None:
    """Measure PostgreSQL's own time for the rows."""
    database = listening(server.address.port)
    assert database is not None, "it was started"
    dsn = server.database("bench").dsn
    for what, columns in (("row only", _PLAIN), ("with bodies", _COLUMNS)):
        found = []
        for _ in range(rounds + 1):
            before_s, began = sum(map(cpu_s, tree(database))), time.perf_counter()
            with ThreadPoolExecutor(CORES) as threads:
                list(threads.map(partial(_copied, dsn, columns, rows), range(CORES)))
            took_s, spent_s = time.perf_counter() - began, sum(map(cpu_s, tree(database))) - before_s
            found.append(Round(rows / took_s / CORES, {"database": 1e6 * spent_s / rows}))
        _line(f"PostgreSQL: floor, {what}", found[1:], "rows/s/core", None)


def _copied(dsn: str, columns: str, rows: int, part: int) -> None:
    span = f"seq > {rows * part // CORES} and seq <= {rows * (part + 1) // CORES}"
    with psycopg.connect(dsn) as connection:
        statement = f"copy (select {columns} from history where node = 1 and {span}) to '/dev/null' (format binary)"
        connection.execute(statement.encode())


def _rows(count: int) -> Iterator[tuple[Any, ...]]:
    for seq in range(1, count + 1):
        gid = make_gid(BORN_MS + seq, os.urandom(RANDOM_BYTES))
        branches = (Branch("http://bank-b:8000/transfer-in", b'{"account":"B","amount":30}'),)
        body = encode(Message(gid, branches, "http://bank-a:8000/twophase/check?barrier=7f3a"))
        born = BORN_MS + seq
        yield (1, seq, gid, 4, born, born + 3, born + 9, "submit", "", 0, 1, body)


def _sqlite(folder: Path, rows: int) -> str:
    path = folder / "bench.db"
    asyncio.run(_created(SqliteStore(path)))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(f"insert into history ({_COLUMNS}) values ({', '.join('?' * 12)})", _rows(rows))
        connection.execute("update node set seq = ?", (rows,))
    return f"sqlite:///{path}"


def _postgresql(folder: Path, server: PostgresServer, rows: int) -> str:
    dsn = server.create_database("bench").dsn
    asyncio.run(_created(PostgresStore(dsn)))
    with psycopg.connect(dsn) as connection:
        with connection.cursor().copy(f"copy history ({_COLUMNS}) from stdin") as copy:
            for row in _rows(rows):
                copy.write_row(row)
        connection.execute("update node set seq = %s", (rows,))
        connection.commit()
        connection.autocommit = True
        connection.execute("vacuum analyze history")
    file = folder / "url"
    file.touch(0o600)
    file.write_text(dsn)
    return f"file:{file}"


async def _created(store: SqliteStore | PostgresStore) -> None:
    """Create an empty store, with the node slot that writes its history."""
    await store.start()
    await store.stop()


if __name__ == "__main__":
    main()
