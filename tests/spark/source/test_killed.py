"""The stream survives kill -9 of its driver, Java and Python both.

Every row of history arrives once, whatever was cut off. The sink is the one that Spark's guide recommends: a batch
overwrites the folder of its own number. So a batch that is repeated must hold the very rows that it held before,
although the store has grown meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spark.soak import database_version
from tests.spark.source.stores import StoreUnderTest, finish, remove

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(2_000)]
START_SECONDS_MAX = 300
POINTS = ("reading", "written", "before")
GONE = 100
"""Rows that retention removes after the first kill."""
KILLS = int(os.environ.get("TWOPHASE_STREAM_KILLS", "3"))
"""Number of kills; each costs a start of Spark, so there are few by default.

`make soak` kills 20 times.
"""
ENGINES = os.environ.get("TWOPHASE_STREAM_ENGINES", "sqlite").split(",")
"""The engines of the store: `make soak` names `sqlite,postgres`."""
MARKS = {"postgres": [pytest.mark.postgres]}


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`; Spark puts some into groups of their own."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


@contextlib.contextmanager
def follower(store: StoreUnderTest, folder: Path, point: str, batch: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program; at the end of the block it is killed with all that it started."""
    command = [sys.executable, "-m", "tests.spark.source.follower", store.url, str(folder), point, str(batch)]
    with (folder / "stderr").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                for pid in [process.pid, *descendants(process.pid)]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def run_until_killed(store: StoreUnderTest, folder: Path, point: str, batch: int) -> None:
    """Let it reach the point, then kill all of it at once."""
    mark = folder / "at-point"
    mark.unlink(missing_ok=True)
    with follower(store, folder, point, batch) as process:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not mark.exists():
            assert process.poll() is None, (folder / "stderr").read_text()
            assert time.monotonic() < deadline, f"it never came to {point} of batch {batch}"
            time.sleep(0.05)


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, [])) for name in ENGINES])
def chosen_store(request: pytest.FixtureRequest) -> StoreUnderTest:
    """A store on each engine that was asked for."""
    found: StoreUnderTest = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.mark.long
def test_every_row_once_whatever_is_killed(
    chosen_store: StoreUnderTest, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    last = 2_500
    finish(chosen_store, 1, 1, last)
    for number in range(KILLS):
        point = POINTS[number % len(POINTS)]
        run_until_killed(chosen_store, tmp_path, point, number)
        record_property("killed", point)
        print(f"kill {number + 1} of {KILLS}, at {point}", flush=True)
        finish(chosen_store, 1, last + 1, last + 1_000)  # a batch that is read again must not take these in
        last += 1_000
        if number == 0:
            remove(chosen_store, 1, 1, GONE)  # nor may the first one begin after what is gone now
    finish(chosen_store, 2, 1, 300)

    with follower(chosen_store, tmp_path, "none", -1) as process:
        assert process.wait(START_SECONDS_MAX) == 0, (tmp_path / "stderr").read_text()

    rows = pq.read_table(tmp_path / "rows", partitioning="hive").select(["node", "seq", "gap_rows"]).to_pylist()
    found = Counter((row["node"], row["seq"]) for row in rows if not row["gap_rows"])
    record_property("database", database_version(getattr(chosen_store, "dsn", chosen_store.url)))
    record_property("rows", last + 300 - GONE)
    record_property("once", sum(count == 1 for count in found.values()))
    assert sorted((row["node"], row["seq"], row["gap_rows"] or 0) for row in rows) == [
        (1, GONE, GONE),
        *((1, seq, 0) for seq in range(GONE + 1, last + 1)),
        *((2, seq, 0) for seq in range(1, 301)),
    ]
