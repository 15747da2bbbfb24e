"""`make bench-spark`: the audit of many messages a side, beside DuckDB.

All read the same Parquet, and their results must be equal. It prints and writes the costs: time, processor time, peak
memory of all processes, and of Spark also shuffle and spill. There is one look at data that does not change; no report
is made. DuckDB answers in two ways (`duckdb_audit`): its twin by the audit's own algorithm is the yardstick, the oracle
by another one is the judge.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.servers.processes import cpu_s, tree
from tests.spark.cases import SCOPE
from tests.spark.duckdb_audit import Ask, by_oracle, by_twin, opened
from tests.spark.scale import expected_of, read, write
from twophase_spark.rules.comparison import compare
from twophase_spark.rules.taxonomy import Flag
from twophase_spark.session import SessionSettings, open_session

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MESSAGES_OF_BAR, SECONDS_MAX, MEMORY_MB_MAX, TIMES_TWIN_MAX = 10_000_000, 45.0, 5_000, 4.0
SPARK, TWIN, ORACLE = "Spark", "DuckDB, twin", "DuckDB, oracle"


class Taken(msgspec.Struct, frozen=True):
    """The costs of one engine, run by run.

    Times in seconds, `cpu_s` those of all its processes; sizes in MiB, None is not measured.
    """

    engine: str
    seconds: tuple[float, ...]
    cpu_s: tuple[float, ...]
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


def by_spark(folder: Path, memory_mb: int, partitions: int, runs: int) -> Taken:
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
    spent: list[float] = []
    with Memory(os.getpid()) as memory:
        with open_session(settings) as spark:
            for _ in range(runs):
                started, before_s = time.monotonic(), _spent_s()
                audited = compare(read(spark, folder), SCOPE)
                audited.release()
                seconds.append(time.monotonic() - started)
                spent.append(_spent_s() - before_s)
        counts = {"messages": audited.result.messages, **audited.result.counts}
    written = spilled = 0
    for file in log.iterdir():
        for line in file.read_text().splitlines():
            if '"SparkListenerTaskEnd"' in line:
                metrics = json.loads(line).get("Task Metrics", {})
                written += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
                spilled += metrics.get("Disk Bytes Spilled", 0)
    shutil.rmtree(log)
    moved = (written // runs // 2**20, spilled // runs // 2**20)
    return Taken(SPARK, tuple(seconds), tuple(spent), memory.peak_mb, *moved, counts)


def by_duckdb(name: str, ask: Ask, folder: Path, memory_mb: int, runs: int) -> Taken:
    """Ask DuckDB the same question, on two threads."""
    seconds: list[float] = []
    spent: list[float] = []
    counts: dict[str, int] = {}
    with Memory(os.getpid()) as memory, opened(folder, memory_mb) as connection:
        for _ in range(runs):
            started, before_s = time.monotonic(), _spent_s()
            counts = ask(connection)
            seconds.append(time.monotonic() - started)
            spent.append(_spent_s() - before_s)
    return Taken(name, tuple(seconds), tuple(spent), memory.peak_mb, None, None, counts)


def _spent_s() -> float:
    """Return the processor time of this process and of all that it started."""
    return sum(map(cpu_s, tree(os.getpid())))


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
    parser.add_argument("--runs", type=int, default=3, help="of Spark and the twin; the oracle is asked once")
    parser.add_argument("--folder", type=Path, help="keep the files here, and take them when they are there")
    parser.add_argument("--report", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twophase-bench-") as temporary:
        folder = (options.folder or Path(temporary)) / str(options.messages)
        if not folder.is_dir():
            folder.mkdir(parents=True)
            _apart(_make, folder, options.messages, options.memory)
        taken = [
            _apart(by_spark, folder, options.memory, options.partitions, options.runs),
            _apart(by_duckdb, TWIN, by_twin, folder, options.memory, options.runs),
            _apart(by_duckdb, ORACLE, by_oracle, folder, options.memory, 1),
        ]
    return _told(options.messages, taken, options.report)


def _told(messages: int, taken: list[Taken], report: Path | None) -> int:
    truth = expected_of(messages)
    wanted = {flag.value: truth[flag.value] for flag in Flag}
    right = True
    for one in taken:
        found = {name: one.counts[name] for name in wanted}
        right = right and found == wanted and one.counts["messages"] == messages
        seconds = ", ".join(
            f"{wall_s:.1f} s ({cpu_s:.1f} CPU)" for wall_s, cpu_s in zip(one.seconds, one.cpu_s, strict=True)
        )
        moved = "" if one.shuffle_mb is None else f"shuffle {one.shuffle_mb} MiB, spill {one.spill_mb} MiB a run; "
        print(
            f"{one.engine:<14} {seconds}; peak {one.peak_mb} MiB; {moved}"
            f"{'exactly what was planted' if found == wanted else f'found {found}, planted {wanted}'}"
        )
    spark, twin, _ = taken
    times = statistics.median(spark.seconds) / statistics.median(twin.seconds)
    cpu_times = statistics.median(spark.cpu_s) / statistics.median(twin.cpu_s)
    if messages >= MESSAGES_OF_BAR:
        bar(f"{messages:,} messages, Parquet, s", statistics.median(spark.seconds), SECONDS_MAX)
        bar("peak MiB", spark.peak_mb, MEMORY_MB_MAX)
    bar(f"times DuckDB with the same algorithm ({cpu_times:.1f} by processor time)", times, TIMES_TWIN_MAX)
    if report is not None:
        figures = {"messages": messages, "planted": wanted, "engines": taken}
        report.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    return 0 if right else 1


def bar(what: str, found: float, most: float) -> None:
    """Print a figure beside its bar; of several runs it is the middle one."""
    print(f"bar: {what}: {found:,.1f}, at most {most:,g}: {'kept' if found <= most else 'missed'}")


if __name__ == "__main__":
    raise SystemExit(main())
