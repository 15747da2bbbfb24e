"""`make bench-spark`: every figure of the Spark pipeline that has a bar.

They are written to docs/benchmarks-spark.md.

    python -m benchmarks.spark [--only audit reading sink] [--messages N] [--rows N] [--published N] [--folder FOLDER]
                               [--page FILE]

Each part is a program of its own, which can be run alone and prints its results; the page has its command and its
output. The audit also writes its figures as JSON, for a table. One failed part does not lose the others.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.results.machine import this_machine

PAGE: Final = Path("docs/benchmarks-spark.md")
PARTS: Final = ("audit", "reading", "sink")
TITLES: Final = {
    "audit": "Audit, beside DuckDB on the same files",
    "reading": "Reading history: batch and stream",
    "sink": "Publishing",
}
WHAT: Final = {
    "audit": "Messages with planted violations of every class, four Parquet tables, two cores. Both engines must count "
    "exactly what was planted of every class. One look at Parquet: no reading from databases, no second pass, no "
    "reports. DuckDB is the oracle here, no race of engines: its SQL is written to reach the answer another way, by "
    "joins and lists over all rows, where the audit first sets apart by sums and hashes what is in order. On one "
    "machine DuckDB is the faster engine: in an early trial with simpler questions, which is not in this repository, "
    "it took 6 to 17 s for ten million, Spark 37 to 118. Bar at ten million: 90 s, 5 000 MiB.",
    "reading": '`format("twophase")` on a warm store of this machine. Bars: 250 000 rows/s/core, stream 20 000 rows/s.',
    "sink": '`write.format("twophase")`, one message a row, to the last submit acknowledged; coordinator, PostgreSQL, '
    "ledger and branch share the machine. Bar: 5 000 messages/s.",
}
_PACKAGES: Final = ("twophase", "pyspark", "pyarrow", "duckdb")
_FAILURE_CHARACTERS = 600


class Engine(msgspec.Struct, frozen=True):
    """One engine's audit from `tests.spark.bench --report`; None is not measured."""

    engine: str
    seconds: tuple[float, ...]
    peak_mb: int
    shuffle_mb: int | None
    spill_mb: int | None


class Audit(msgspec.Struct, frozen=True):
    """The whole report."""

    messages: int
    engines: tuple[Engine, ...]


class Part(msgspec.Struct, frozen=True):
    """The result of a part.

    `command` is without the interpreter, `load` is the machine's before it, `failure` is the end of a failed one.
    """

    name: str
    command: str
    load: float
    said: str
    failure: str = ""
    audit: Audit | None = None


def main() -> int:
    """Measure, and write the page; 1 when a part failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--messages", type=int, default=10_000_000, help="of the audit, a side")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of history, to be read")
    parser.add_argument("--published", type=int, default=50_000, help="messages of the sink")
    parser.add_argument("--folder", type=Path, help="keep the audit's files here, and take them when they are there")
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twophase-bench-") as folder:
        report = Path(folder) / "audit.json"
        kept = ["--folder", str(asked.folder)] if asked.folder else []
        commands = {
            "audit": ["tests.spark.bench", "--messages", str(asked.messages), "--report", str(report), *kept],
            "reading": ["benchmarks.spark_reading", "--rows", str(asked.rows)],
            "sink": ["tests.spark.sink.bench", str(asked.published), "postgres"],
        }
        found = [measured(name, commands[name], report) for name in PARTS if name in asked.only]
    asked.page.write_text("\n".join(page(found)) + "\n")
    print(f"written: {asked.page}")
    return int(any(part.failure for part in found))


def measured(name: str, command: Sequence[str], report: Path) -> Part:
    """Run a part, and show its output while it runs."""
    load = os.getloadavg()[0]
    said: list[str] = []
    told = command[: command.index("--report")] if "--report" in command else command
    shown = f"python -m {' '.join(told)}"
    print(f"== {shown}", flush=True)
    arguments = [sys.executable, "-m", *command]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None, "asked for"
        for line in process.stdout:
            print(line, end="", flush=True)
            said.append(line)
    text = "".join(said)
    failure = (text[-_FAILURE_CHARACTERS:] or f"exit code {process.returncode}") if process.returncode else ""
    audit = msgspec.json.decode(report.read_bytes(), type=Audit) if name == "audit" and report.is_file() else None
    return Part(name, shown, load, text, failure, audit)


def page(parts: Sequence[Part]) -> Iterator[str]:
    """Yield the lines of the page."""
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    yield "# Benchmarks of the Spark pipeline\n"
    yield "Written by `make bench-spark`, part by part; everything runs on one machine and shares its processors."
    yield "A load average of more than a little before a part means that others used the machine meanwhile.\n"
    yield f"{this_machine().line()}. {versions}."
    for part in parts:
        yield f"\n## {TITLES[part.name]}\n"
        yield WHAT[part.name]
        yield f"Load average before: {part.load:.1f}.\n"
        if part.failure:
            yield "**Not measured, or not right**: it ended with an error. Its last words:\n"
        elif part.audit is not None:
            yield from _table(part.audit)
        yield f"```\n$ {part.command}\n{(part.failure or part.said).strip()}\n```"


def _table(audit: Audit) -> Iterator[str]:
    yield f"{audit.messages:,} messages a side.\n"
    yield "| | min / **median** / max s | peak MiB | shuffle MiB a run | spill MiB a run |"
    yield "|---|---|---|---|---|"
    for engine in audit.engines:
        least, middle, most = min(engine.seconds), statistics.median(engine.seconds), max(engine.seconds)
        seconds = f"{least:.1f} / **{middle:.1f}** / {most:.1f}"
        moved = ["–" if size is None else f"{size:,}" for size in (engine.shuffle_mb, engine.spill_mb)]
        yield f"| {engine.engine} | {seconds} | {engine.peak_mb:,} | {' | '.join(moved)} |"
    yield ""


if __name__ == "__main__":
    raise SystemExit(main())
