"""Reading a coordinator's history with Spark: rows a second and core, SQLite and PostgreSQL, batch and stream.

    python -m benchmarks.spark_reading [--rows N] [--rounds N]

Bars: 250 000 rows/s/core in batches by ADBC, 20 000 rows/s of the stream. The database runs on the same cores, its
pages are warm; every column that is named is handed to Java. The best and the middle of the rounds are shown, and the
load of the machine before each part, because other work on it is what moves these figures most.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

from tests.servers.postgres import PostgresServer
from tests.servers.server import ServerUnavailable
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.message import Branch, Message, encode
from twophase.spark import register
from twophase.spark.session import SessionSettings, open_session
from twophase.stores.postgres.store import PostgresStore
from twophase.stores.sqlite.store import SqliteStore

CORES = 2
BATCH_BAR, STREAM_BAR = 250_000, 20_000
BORN_MS = 1_750_000_000_000
ROWS_PER_MICRO_BATCH = 200_000
_PLAIN = "node,seq,gid,state,created_ms,decided_ms,finished_ms,decided_by,reason,attempts,done"
_COLUMNS = "node, seq, gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, done, body"


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_reading", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, {CORES} cores for Spark, {options.rows} rows; best and middle of {options.rounds}")
    folder = Path(tempfile.mkdtemp(prefix="twophase-bench-"))
    server = PostgresServer()
    try:
        places = [("SQLite", _sqlite(folder, options.rows))]
        try:
            server.start()
            places.append(("PostgreSQL", _postgresql(folder, server, options.rows)))
        except ServerUnavailable as error:
            print(f"PostgreSQL was not measured: {error}")
        settings = SessionSettings(cores=CORES, memory_mb=1024, name="reading")
        with open_session(settings) as spark:
            register(spark)
            for name, url in places:
                _measure(spark, name, url, options.rows, options.rounds, folder)
    finally:
        server.stop()
        shutil.rmtree(folder)


def _measure(spark: SparkSession, name: str, url: str, rows: int, rounds: int, folder: Path) -> None:
    for what, columns, driver in (
        ("row only, ADBC", _PLAIN, "adbc"),
        ("with branches, ADBC", "", "adbc"),
        ("row only, driver", _PLAIN, "python"),
        ("with branches, driver", "", "python"),
    ):
        frame = _history(spark, url, columns, driver)
        took = [_seconds(frame) for _ in range(rounds + 1)][1:]
        _line(f"{name}: batch, {what}", [rows / one / CORES for one in took], "rows/s/core", BATCH_BAR)
    took = [_streamed(spark, url, folder / f"checkpoint-{name}-{number}") for number in range(rounds)]
    _line(f"{name}: stream, with branches", [rows / one for one in took], "rows/s", STREAM_BAR)


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


def _line(what: str, figures: list[float], unit: str, bar: float) -> None:
    best, middle = max(figures), statistics.median(figures)
    print(
        f"{what:<44} {best:>9,.0f} {middle:>9,.0f} {unit:<11} bar {bar:,}: {'reached' if best >= bar else 'missed'}; "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


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
    """An empty store, with the place that wrote its history."""
    await store.start()
    await store.stop()


if __name__ == "__main__":
    main()
