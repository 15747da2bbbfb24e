"""The driver is killed with -9, Java and all Python processes at once.

Each row arrives once. Some milliseconds of a batch's life decide how it continues, so it is killed at each of its
points. At the end the checkpoint is lost as well, and everything is read and published anew under another query. The
audit of all that finds it clean.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.crash.checker import rows
from tests.spark.sink.harness import Harness
from tests.spark.sink.publisher import Order
from tests.spark.sink.test_audited import audited
from tests.spark.soak import database_version
from tests.spark.source.test_killed import descendants
from twophase_spark.reports.report import Verdict
from twophase_spark.sink.naming import gid_of

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3_000)]
POINTS = (
    "spark.after_prepare",
    "spark.after_decision",
    "spark.amid_submit",
    "spark.before_published",
    "spark.after_published",
    "spark.before_decision",
    "spark.after_written_down",
)
KILLS = int(os.environ.get("TWOPHASE_SINK_KILLS", "5"))
"""Number of kills; each costs a start of Spark, so there are few by default.

The last two points differ least from the first, and a task's Python is killed at the last one below. `make soak` kills
21 times, at each point thrice.
"""
ENGINES = os.environ.get("TWOPHASE_SINK_ENGINES", "sqlite").split(",")
"""The engines of store and ledger: `make soak` names `sqlite,postgres`."""
ROWS_PER_BATCH = 200
START_SECONDS_MAX = 300


class Publisher:
    """The rows, the checkpoint, and the drivers, one after another."""

    def __init__(self, harness: Harness, folder: Path) -> None:
        self._scene = harness
        self._folder = folder
        self._rows = folder / "rows"
        self._rows.mkdir()
        self.checkpoint = folder / "checkpoint"
        self.last = 0

    def add(self, count: int) -> None:
        """Add a file of rows, which is one more batch."""
        lines = [msgspec.json.encode({"id": number, "name": f"o{number}"}) for number in self._more(count)]
        unseen = self._folder / "unseen"
        unseen.write_bytes(b"\n".join(lines))
        unseen.rename(self._rows / f"{self.last:08}.json")

    def _more(self, count: int) -> range:
        first, self.last = self.last + 1, self.last + count
        return range(first, self.last + 1)

    @property
    def stderr(self) -> str:
        return (self._folder / "stderr").read_text()[-3_000:]

    @contextlib.contextmanager
    def driver(self, point: str = "", *, kills_worker: bool = False) -> Iterator[subprocess.Popen[bytes]]:
        """Run a driver; at the end of the block it is killed with all that it started."""
        options = self._scene.options(rowsPerRequest="20", connections="1", checkAfter="5")
        order = Order(
            str(self._rows), str(self.checkpoint), options, point, str(self._folder / "at-point"), kills_worker
        )
        file = self._folder / "order.json"
        file.write_bytes(msgspec.json.encode(order))
        command = [sys.executable, "-m", "tests.spark.sink.publisher", str(file)]
        with (self._folder / "stderr").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    for pid in [process.pid, *descendants(process.pid)]:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)

    def run_until_killed(self, point: str) -> None:
        mark = self._folder / "at-point"
        mark.unlink(missing_ok=True)
        with self.driver(point) as process:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not mark.exists():
                assert process.poll() is None, self.stderr
                assert time.monotonic() < deadline, f"it never came to {point}"
                time.sleep(0.05)

    def run_to_end(self, worker_dies_at: str = "") -> None:
        with self.driver(worker_dies_at, kills_worker=True) as process:
            assert process.wait(START_SECONDS_MAX) == 0, self.stderr


MARKS = {"postgres": [pytest.mark.postgres]}


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, [])) for name in ENGINES])
def chosen_scene(request: pytest.FixtureRequest) -> Harness:
    """A harness on each engine that was asked for."""
    found: Harness = request.getfixturevalue(f"{request.param}_scene")
    return found


@pytest.mark.long
def test_each_row_once_wherever_the_driver_dies(
    spark: SparkSession, chosen_scene: Harness, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    publisher = Publisher(chosen_scene, tmp_path)
    for number in range(KILLS):
        publisher.add(ROWS_PER_BATCH)
        point = POINTS[number % len(POINTS)]
        publisher.run_until_killed(point)
        record_property("killed", point)
        print(f"kill {number + 1} of {KILLS}, at {point}", flush=True)
    publisher.add(ROWS_PER_BATCH)
    shutil.rmtree(publisher.checkpoint)

    publisher.run_to_end()

    wanted = {gid_of("orders", [number]) for number in range(1, publisher.last + 1)}
    record_property("database", database_version(chosen_scene.store))
    record_property("rows", len(wanted))
    chosen_scene.until_delivered(len(wanted))
    record_property("once", sum(chosen_scene.receiver.counted[gid] == 1 for gid in wanted))
    assert dict(chosen_scene.receiver.counted) == dict.fromkeys(wanted, 1)
    history = rows(chosen_scene.store, "select gid, state from history")
    assert sorted(history) == sorted((gid, 4) for gid in wanted)
    report = audited(spark, chosen_scene, tmp_path)
    record_property("audited", report.result.messages)
    assert (report.verdict, report.result.messages, report.result.clean) == (Verdict.CLEAN, len(wanted), len(wanted))


@pytest.mark.long
def test_a_task_whose_python_dies_is_tried_again(sqlite_scene: Harness, tmp_path: Path) -> None:
    publisher = Publisher(sqlite_scene, tmp_path)
    publisher.add(ROWS_PER_BATCH)

    publisher.run_to_end(worker_dies_at="spark.after_written_down")

    assert (tmp_path / "at-point").exists()
    runs = rows(sqlite_scene.ledger, "select won, count(*) from twophase_spark_writer group by won order by won")
    assert runs == [(0, 1), (1, 2)]
    wanted = {gid_of("orders", [number]) for number in range(1, publisher.last + 1)}
    sqlite_scene.until_delivered(len(wanted))
    assert dict(sqlite_scene.receiver.counted) == dict.fromkeys(wanted, 1)
