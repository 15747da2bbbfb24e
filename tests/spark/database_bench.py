"""`make bench-spark`: the audit of databases, and again when nothing is new.

    python -m tests.spark.database_bench [--messages 100000 1000000]

Of each size: `twophase spark audit` as one command with its defaults, so Spark's start, both looks and the grace time
of five seconds are in its time; then, in one warm session as `--every` has it, a whole run with `--state` and two more
at once, to which nothing is new. Every run must find exactly what was planted. Beside it DuckDB answers by the audit's
own algorithm: the same readers in two processes, its Parquet, one look.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.servers.processes import cpu_s, tree
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.spark.bench import bar
from tests.spark.cases import SCOPE
from tests.spark.duckdb_audit import by_twin, opened
from tests.spark.planted_databases import Planted, plant
from tests.spark.scale import TABLES
from twophase_spark.auditing.run import look_into, rows_to_read, run
from twophase_spark.locations import Role
from twophase_spark.readers.probe import Slice, Source
from twophase_spark.readers.rows import arrow_schema, read_slice
from twophase_spark.rules.taxonomy import Flag
from twophase_spark.session import SessionSettings, fitted, open_session

SIZES = (100_000, 1_000_000)
SECONDS_MAX = {100_000: 15.0, 1_000_000: 40.0}
NOTHING_NEW_SECONDS_MAX = 8.0
CORES, MEMORY_MB = 2, 2048
_TABLES = dict(zip((Role.COORDINATOR, Role.PRODUCER, Role.CONSUMER, Role.LEDGER), TABLES, strict=True))


def main() -> int:
    """Measure every size; 1 when a run found anything but what was planted."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.database_bench", description=__doc__)
    parser.add_argument("--messages", type=int, nargs="+", default=list(SIZES))
    sizes = parser.parse_args().messages
    right = True
    with tempfile.TemporaryDirectory(prefix="twophase-bench-") as temporary, running(PostgresServer()) as server:
        for messages in sizes:
            folder = Path(temporary) / str(messages)
            folder.mkdir()
            planted = plant(folder, server, messages)
            took_s, sound = _command(folder, planted)
            right &= sound & _beside(folder, planted) & _again(folder, planted)
            if messages in SECONDS_MAX:
                bar(f"{messages:,} messages from databases, one command, s", took_s, SECONDS_MAX[messages])
    return 0 if right else 1


def _command(folder: Path, planted: Planted) -> tuple[float, bool]:
    """Run the command, and return its seconds and whether it found what was planted."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "twophase", "spark", "audit", *planted.arguments, f"--json={report}"]
    started, before_s = time.monotonic(), sum(os.times()[2:4])
    done = subprocess.run([*command, f"--cores={CORES}"], capture_output=True, text=True, check=False)
    took_s, spent_s = time.monotonic() - started, sum(os.times()[2:4]) - before_s
    if done.returncode != 1:
        print(done.stdout, done.stderr)
        return took_s, False
    plain = json.loads(report.read_bytes())
    sound = _is_sound(planted, plain["result"]["messages"], plain["result"]["counts"])
    waited = ", a grace time of 5 s between the looks" if plain["result"]["waited"] else ""
    _tell(f"{planted.messages:,} messages, one command", took_s, spent_s, sound, waited)
    return took_s, sound


def _beside(folder: Path, planted: Planted) -> bool:
    """Read by the audit's readers in two processes, and ask DuckDB."""
    plan = planted.plan
    sources = look_into(plan)
    started, before_s = time.monotonic(), _spent_s()
    files = [
        (source, part, folder / "duckdb" / _TABLES[source.location.role] / f"{number}-{place}.parquet")
        for number, source in enumerate(sources)
        for place, part in enumerate(source.slices)
    ]
    for _, _, file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(CORES) as pool:
        pool.starmap(_written, files, chunksize=1)
        pool.close()
        pool.join()
    scope = msgspec.structs.replace(SCOPE, as_of_ms=time.time_ns() // 1_000_000, late_ms=int(plan.late_s * 1000))
    with opened(folder / "duckdb", MEMORY_MB) as connection:
        counts = by_twin(connection, scope)
    sound = _is_sound(planted, counts["messages"], counts)
    _tell("DuckDB with the same readers and algorithm", time.monotonic() - started, _spent_s() - before_s, sound)
    return sound


def _written(source: Source, part: Slice, file: Path) -> None:
    with pq.ParquetWriter(file, arrow_schema(source.location.role)) as writer:
        for batch in read_slice(source, part):
            writer.write_table(pa.Table.from_batches([batch]))


def _again(folder: Path, planted: Planted) -> bool:
    """Audit thrice in one session; nothing is new after the first time."""
    plan = msgspec.structs.replace(planted.plan, state=folder / "state")
    sound = True
    rows = rows_to_read(plan, look_into(plan))
    with open_session(SessionSettings(cores=CORES, memory_mb=MEMORY_MB, name="bench", rows=rows)) as spark:
        for what in ("the first run with --state", "nothing new, first time", "nothing new, warm"):
            started, before_s = time.monotonic(), _spent_s()
            sources = look_into(plan)
            with fitted(spark, rows_to_read(plan, sources), CORES):
                report = run(spark, plan, sources)
            took_s = time.monotonic() - started
            right = report.result.violations == planted.violations
            _tell(f"{planted.messages:,} messages, {what}", took_s, _spent_s() - before_s, right)
            sound &= right
    bar("nothing new, warm, s", took_s, NOTHING_NEW_SECONDS_MAX)
    return sound


def _is_sound(planted: Planted, messages: int, counts: dict[str, int]) -> bool:
    expected = {flag.value: planted.expected[flag.value] for flag in Flag}
    found = {name: counts[name] for name in expected}
    if (messages, found) != (planted.messages, expected):
        print(f"found {messages} messages and {found}, planted {planted.messages} and {expected}")
    return (messages, found) == (planted.messages, expected)


def _spent_s() -> float:
    """Return the processor time of this process and of all that it started."""
    return sum(map(cpu_s, tree(os.getpid())))


def _tell(what: str, took_s: float, spent_s: float, sound: bool, more: str = "") -> None:
    verdict = "exactly what was planted" if sound else "**not what was planted**"
    print(f"{what}: {took_s:.1f} s ({spent_s:.1f} CPU){more}; {verdict}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
