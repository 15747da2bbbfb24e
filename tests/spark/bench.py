"""`make bench-spark`: the audit of many messages a side, beside DuckDB.

Both read the same files, and their results must be equal. It prints and writes the costs: time, peak memory of all
processes, and of Spark also shuffle and spill. All tables are Parquet, read once; no report is made. DuckDB counts the
same classes with SQL of its own (`oracle.sql`), written to reach the answer another way: it is the judge, and this is
no race of engines.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from tests.spark.cases import IDENTITY, SCOPE
from tests.spark.scale import expected_of, read, write
from twophase_spark.rules.comparison import compare
from twophase_spark.rules.taxonomy import Flag
from twophase_spark.session import SessionSettings, open_session

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MESSAGES_OF_BAR, SECONDS_MAX, MEMORY_MB_MAX = 10_000_000, 90.0, 5_000


class Taken(msgspec.Struct, frozen=True):
    """The costs of one engine. Times in seconds, sizes in MiB; None is not measured."""

    engine: str
    seconds: tuple[float, ...]
    peak_mb: int
    shuffle_mb: int | None
    spill_mb: int | None
    counts: dict[str, int]


class Memory:
    """The peak memory of a process and all that it started.

    It is sampled five times a second.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_mb = 0

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            self.peak_mb = max(self.peak_mb, _resident_mb(self._pid))


def _resident_mb(root: int) -> int:
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(stat[1])
                pages[int(folder.name)] = int(stat[21])
            except (OSError, IndexError):
                continue
    total = 0
    for pid, held in pages.items():
        above = pid
        while above not in {root, 0, 1}:
            above = parents.get(above, 0)
        total += held if above == root else 0
    return total * PAGE_BYTES // 2**20


def by_spark(folder: Path, messages: int, memory_mb: int, partitions: int, runs: int) -> Taken:
    """Run the audit by Spark `runs` times in one session.

    Its event log reports shuffle and spill.
    """
    log = folder / "events"
    log.mkdir(exist_ok=True)
    settings = SessionSettings(
        cores=2,
        memory_mb=memory_mb,
        extra=(
            ("spark.sql.shuffle.partitions", str(partitions)),
            ("spark.eventLog.enabled", "true"),
            ("spark.eventLog.dir", log.as_uri()),
            ("spark.eventLog.compress", "false"),
            ("spark.eventLog.rolling.enabled", "false"),
        ),
    )
    seconds: list[float] = []
    with Memory(os.getpid()) as memory:
        with open_session(settings) as spark:
            for _ in range(runs):
                started = time.monotonic()
                audited = compare(read(spark, folder), SCOPE)
                audited.release()
                seconds.append(time.monotonic() - started)
        counts = {"messages": audited.result.messages, **audited.result.counts}
    written = spilled = 0
    for file in log.iterdir():
        for line in file.read_text().splitlines():
            if '"SparkListenerTaskEnd"' in line:
                metrics = json.loads(line).get("Task Metrics", {})
                written += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
                spilled += metrics.get("Disk Bytes Spilled", 0)
    shutil.rmtree(log)
    return Taken("Spark", tuple(seconds), memory.peak_mb, written // runs // 2**20, spilled // runs // 2**20, counts)


def by_duckdb(folder: Path, memory_mb: int, runs: int) -> Taken:
    """Ask DuckDB the same question, on two threads."""
    seconds: list[float] = []
    counts: dict[str, int] = {}
    with Memory(os.getpid()) as memory:
        for _ in range(runs):
            started = time.monotonic()
            counts = ask_duckdb(folder, memory_mb)
            seconds.append(time.monotonic() - started)
    return Taken("DuckDB", tuple(seconds), memory.peak_mb, None, None, counts)


def ask_duckdb(folder: Path, memory_mb: int) -> dict[str, int]:
    """Return the oracle's counts by class, and the number of messages."""
    sql = (Path(__file__).parent / "oracle.sql").read_text()
    sql = sql.format(folder=folder, as_of_ms=SCOPE.as_of_ms, late_ms=SCOPE.late_ms, identity=IDENTITY)
    with duckdb.connect(config={"threads": 2, "memory_limit": f"{memory_mb}MB"}) as connection:
        connection.execute("set enable_progress_bar = false")
        connection.execute(f"set temp_directory = '{folder / 'duckdb'}'")
        cursor = connection.execute(sql)
        row = cursor.fetchone()
        assert row is not None
        return dict(zip([column[0] for column in cursor.description], row, strict=True))


def _apart(function: Callable[..., Any], *arguments: object) -> Any:
    """Run in a process of its own, so that one engine's memory is not the other's."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def _make(folder: Path, messages: int, memory_mb: int) -> None:
    with open_session(SessionSettings(cores=2, memory_mb=memory_mb)) as spark:
        write(spark, folder, messages, files=8)


def main() -> int:
    """Make the files, ask both, compare; 1 when they differ from the truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES_OF_BAR)
    parser.add_argument("--memory", type=int, default=3_072, help="MiB for Java, and for DuckDB")
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="keep the files here, and take them when they are there")
    parser.add_argument("--report", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twophase-bench-") as temporary:
        folder = (options.folder or Path(temporary)) / str(options.messages)
        if not folder.is_dir():
            folder.mkdir(parents=True)
            _apart(_make, folder, options.messages, options.memory)
        taken = [
            _apart(by_spark, folder, options.messages, options.memory, options.partitions, options.runs),
            _apart(by_duckdb, folder, options.memory, options.runs),
        ]
    return _told(options.messages, taken, options.report)


def _told(messages: int, taken: list[Taken], report: Path | None) -> int:
    truth = expected_of(messages)
    wanted = {flag.value: truth[flag.value] for flag in Flag}
    right = True
    for one in taken:
        found = {name: one.counts[name] for name in wanted}
        right = right and found == wanted and one.counts["messages"] == messages
        seconds = ", ".join(f"{each:.1f} s" for each in one.seconds)
        moved = "" if one.shuffle_mb is None else f"shuffle {one.shuffle_mb} MiB, spill {one.spill_mb} MiB a run; "
        print(
            f"{one.engine:<7} {seconds}; peak {one.peak_mb} MiB; {moved}"
            f"{'exactly what was planted' if found == wanted else f'found {found}, planted {wanted}'}"
        )
    spark, duckdb = taken
    print(f"The oracle's SQL is {min(spark.seconds) / min(duckdb.seconds):.1f} times as fast, on this one machine.")
    kept = max(spark.seconds) <= SECONDS_MAX and spark.peak_mb <= MEMORY_MB_MAX
    if messages >= MESSAGES_OF_BAR:
        print(f"Bar for ten million: {SECONDS_MAX:g} s and {MEMORY_MB_MAX} MiB: {'kept' if kept else 'missed'}.")
    if report is not None:
        figures = {"messages": messages, "planted": wanted, "engines": taken}
        report.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
