"""The long part of `make soak`: Spark's drivers killed at every point.

    python -m tests.spark.soak [--sink 21] [--stream 20] [--engines sqlite,postgres] [--report FILE]

Both engines are tried, and a report for people is written. It runs the tests that `make test` runs with few kills; exit
code 1 when one of them failed, as its output then shows.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from tests.crash.checker import rows
from twophase_spark._java import find_java

SINK_KILLS, STREAM_KILLS = 21, 20
ENGINES = "sqlite,postgres"
REPORT = Path("docs/soak-spark-report.md")
TESTS = {
    "publishing": "tests/spark/sink/test_killed.py::test_each_row_once_wherever_the_driver_dies",
    "following": "tests/spark/source/test_killed.py::test_every_row_once_whatever_is_killed",
}
PROMISES = {
    "publishing": "each row's branch called exactly once, also after the checkpoint was lost",
    "following": "each row of history in exactly one batch; what was removed meanwhile reported as a gap",
}


class Played(msgspec.Struct, frozen=True):
    """One test on one engine.

    `points`: where drivers were killed, and how often. `rows`: their number; `once`: the number of rows found exactly
    once; both None where the test did not get that far. `database`: its program and version.
    """

    what: str
    engine: str
    points: Counter[str]
    seconds: float
    failed: bool
    rows: int | None = None
    once: int | None = None
    database: str = ""


def main() -> int:
    """Run, write the report, and print the result in one line."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="twophase-soak-") as folder:
        results = Path(folder) / "results.xml"
        code = _run(options, results)
        played = read(results) if results.exists() else []
    if not played:
        print("nothing was played")
        return code or 2
    options.report.write_text(report(played, _command(options)), encoding="utf-8")
    kills = sum(one.points.total() for one in played)
    verdict = "a promise was broken" if any(one.failed for one in played) else "every promise was kept"
    print(f"{kills} kills; {verdict}; the report is {options.report}")
    return code


def _command(options: argparse.Namespace) -> str:
    arguments = f"--sink {options.sink} --stream {options.stream} --engines {options.engines}"
    return f'make soak PARTS=spark ARGS="{arguments}"'


def _run(options: argparse.Namespace, results: Path) -> int:
    settings = {
        "TWOPHASE_SINK_KILLS": str(options.sink),
        "TWOPHASE_STREAM_KILLS": str(options.stream),
        "TWOPHASE_SINK_ENGINES": options.engines,
        "TWOPHASE_STREAM_ENGINES": options.engines,
        "TESTS_REQUIRE": "all",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:randomly", "-o", "junit_family=xunit1"]
    return subprocess.run(
        [*command, f"--junitxml={results}", *TESTS.values()], env=os.environ | settings, check=False
    ).returncode


def read(results: Path) -> list[Played]:
    """Return the results that the tests noted."""
    return [_played(case) for case in ET.parse(results).getroot().iter("testcase")]


def _played(case: ET.Element) -> Played:
    noted = [(one.get("name", ""), one.get("value", "")) for one in case.iter("property")]
    last = dict(noted)
    return Played(
        what=_job(case.get("name", "")),
        engine=case.get("name", "").partition("[")[2].rstrip("]"),
        points=Counter(value for name, value in noted if name == "killed"),
        seconds=float(case.get("time", "0")),
        failed=any(case.find(name) is not None for name in ("failure", "error", "skipped")),
        rows=int(last["rows"]) if "rows" in last else None,
        once=int(last["once"]) if "once" in last else None,
        database=last.get("database", ""),
    )


def _job(name: str) -> str:
    """Return the job of a test.

    A case that is not in the list, like a module that cannot be imported, keeps its own name.
    """
    return next((what for what, test in TESTS.items() if name.startswith(test.rpartition("::")[2])), name)


def database_version(url: str) -> str:
    """Return program and version of a database, for the report.

    `url` is `sqlite:///file` or `postgresql://…`.
    """
    if url.startswith("sqlite:"):
        return f"SQLite {sqlite3.sqlite_version}"
    return str(rows(url, "select version()")[0][0]).partition(" on ")[0]


def _versions(played: list[Played]) -> str:
    with tempfile.TemporaryDirectory(prefix="twophase-soak-") as folder:
        java = find_java(Path(folder)).version
    packages = (f"{name} {version(package)}" for name, package in (("twophase", "twophase"), ("PySpark", "pyspark")))
    databases = dict.fromkeys(one.database for one in played if one.database)
    return ", ".join((*packages, f"Java {java}", f"Python {platform.python_version()}", *databases))


def report(played: list[Played], command: str) -> str:
    """Return the report as a page."""
    broken = [one for one in played if one.failed]
    verdict = "**A promise was broken, or a test could not be run:**" if broken else "Every promise was kept."
    lines = [
        "# Soak report of Spark's drivers",
        "",
        "A driver was killed with -9, Java and all its Python processes at once, as soon as it came to a point; then",
        "the next one went on from its checkpoint.",
        *_shorter(command),
        "",
        verdict,
        *[f"* {one.what}, {one.engine}" for one in broken],
        "",
        "| | |",
        "|---|---|",
        f"| command | `{command}` |",
        f"| when | {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())} |",
        f"| machine | {os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.machine()} |",
        f"| versions | {_versions(played)} |",
        "",
        "| Job | Engine | Kills | Rows | Exactly once | Seconds | At the end |",
        "|---|---|---|---|---|---|---|",
        *[
            f"| {one.what} | {one.engine} | {one.points.total()} | {_shown(one.rows)} | {_shown(one.once)} | "
            f"{one.seconds:.0f} | "
            f"{'**not so**' if one.failed else PROMISES[one.what]} |"
            for one in played
        ],
        "",
        "| Job | Engine | Point | Kills |",
        "|---|---|---|---|",
        *[
            f"| {one.what} | {one.engine} | {point} | {count} |"
            for one in played
            for point, count in sorted(one.points.items())
        ],
        "",
    ]
    return "\n".join(lines)


def _shorter(command: str) -> list[str]:
    """Return a note about the kills or engines that a shorter run leaves out."""
    if command == _command(argparse.Namespace(sink=SINK_KILLS, stream=STREAM_KILLS, engines=ENGINES)):
        return []
    whole, engines = (SINK_KILLS + STREAM_KILLS) * len(ENGINES.split(",")), ENGINES.replace(",", " and ")
    return [f"This was not the whole of it: `make soak` by itself kills {whole} drivers, on {engines}."]


def _shown(count: int | None) -> str:
    return "not counted" if count is None else str(count)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak PARTS=spark", description="Spark's drivers, killed everywhere.")
    parser.add_argument("--sink", type=int, default=SINK_KILLS, help=f"kills while publishing (default {SINK_KILLS})")
    parser.add_argument("--stream", type=int, default=STREAM_KILLS, help=f"while following (default {STREAM_KILLS})")
    parser.add_argument("--engines", default=ENGINES, help=f"of {ENGINES} (default both)")
    parser.add_argument("--report", type=Path, default=REPORT, help=f"where to write it (default {REPORT})")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
