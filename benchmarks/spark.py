"""`make bench-spark`: every figure of the Spark pipeline that has a bar.

They are written to docs/benchmarks-spark.md.

    python -m benchmarks.spark [--only audit databases reading sink] [--messages N] [--planted N N] [--rows N]
                               [--published N] [--folder FOLDER] [--page FILE]

Each part is a program of its own, which can be run alone and prints its results, each bar with *kept* or *missed*; the
page has its command and its output. The audit also writes its figures as JSON, for a table. One failed part does not
lose the others. On two free processors the whole takes about half an hour.
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
PARTS: Final = ("audit", "databases", "reading", "sink")
TITLES: Final = {
    "audit": "Audit of Parquet, beside DuckDB on the same files",
    "databases": "Audit of databases, and again when nothing is new",
    "reading": "Reading history: batch and stream",
    "sink": "Publishing",
}
WHAT: Final = {
    "audit": "Messages with planted violations of every class, four Parquet tables, two cores. Every engine must count "
    "exactly what was planted of every class. One look at Parquet: no reading from databases, no second pass, no "
    "reports. DuckDB's twin works as the audit does: sums and hashes set apart what is in order, and only the others "
    "are joined. Its oracle joins every message, and judges what is right; its time is no yardstick. Bars at ten "
    "million: 45 s, 5 000 MiB, 4 times the twin; the middle run counts.",
    "databases": "The same kinds of messages in SQLite (coordinator, producer, a consumer) and PostgreSQL (a consumer "
    "with its ledger), on the same two cores. The command has its defaults: Spark's start, both looks, the grace time "
    "and a JSON report are in its time. Beside it, DuckDB works as the audit does, on the rows that the same readers "
    "read in two processes, with one look, no grace time and no report. Bars: 15 s for 100 thousand, 40 s for a "
    "million, 8 s where nothing is new.",
    "reading": '`format("twophase")` on a warm store of this machine. Bars: 250 000 rows/s/core with the default '
    "columns, stream 20 000 rows/s.",
    "sink": '`write.format("twophase")`, one message a row, delivered at once; coordinator, PostgreSQL, ledger and '
    "branch share the machine. Bar: 5 000 messages/s delivered.",
}
_PACKAGES: Final = ("twophase", "pyspark", "pyarrow", "duckdb")
_FAILURE_CHARACTERS = 600


class Engine(msgspec.Struct, frozen=True):
    """One engine's audit from `tests.spark.bench --report`; None is not measured."""

    engine: str
    seconds: tuple[float, ...]
    cpu_s: tuple[float, ...]
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
    parser.add_argument("--planted", type=int, nargs="+", default=[100_000, 1_000_000], help="in databases")
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
            "databases": ["tests.spark.database_bench", "--messages", *map(str, asked.planted)],
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
    yield "| | min / **median** / max s | CPU s | peak MiB | shuffle MiB a run | spill MiB a run |"
    yield "|---|---|---|---|---|---|"
    for engine in audit.engines:
        least, middle, most = min(engine.seconds), statistics.median(engine.seconds), max(engine.seconds)
        seconds = f"{least:.1f} / **{middle:.1f}** / {most:.1f}"
        moved = ["–" if size is None else f"{size:,}" for size in (engine.shuffle_mb, engine.spill_mb)]
        spent = f"{statistics.median(engine.cpu_s):.1f}"
        yield f"| {engine.engine} | {seconds} | {spent} | {engine.peak_mb:,} | {' | '.join(moved)} |"
    yield ""


if __name__ == "__main__":
    raise SystemExit(main())
