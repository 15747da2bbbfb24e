"""Archives die by kill -9 at every point, and again.

The lake has every row once, whenever it is read.
"""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO

import pytest

from tests.spark.lake.archiving import ARCHIVING, Archive, StoreAt, fail_early
from tests.spark.source.stores import SqliteUnderTest, finish, gid_of
from tests.support.dying_child import exit_code_of
from twophase_spark.lake.tables import Lake
from twophase_spark.source.schema.tables import Kind

pytestmark = [pytest.mark.spark, pytest.mark.crash]
POINTS = ("claimed", "put", "copied", "checked", "committed", "unsettled", "released")
PASSAGES = (1, 2)


def killed(archive: Archive, store: SqliteUnderTest, point: str, passage: int) -> bool:
    """Archive in a process of its own that kills itself at this point.

    False when it ended before.
    """
    code = exit_code_of(_archive_until, archive.folder, store.url, point, passage, imports=ARCHIVING)
    assert code in {0, -signal.SIGKILL}
    return code == -signal.SIGKILL


def _archive_until(folder: Path, url: str, point: str, passage: int) -> None:
    """Archive, and die when the point is reached for the `passage`-th time."""
    passed = itertools.count(1)

    def reached(name: str) -> None:
        if name == point and next(passed) == passage:
            os.kill(os.getpid(), signal.SIGKILL)

    cut_short(reached)
    Archive(folder).run(StoreAt(url), reached=reached)


def cut_short(reached: Callable[[str], None]) -> None:
    """Add points inside a round: behind each file, and behind each commit."""
    put, settle = Lake.put, Lake.settle

    def put_and_tell(self: Lake, kind: Kind, path: str, source: IO[bytes]) -> None:
        put(self, kind, path, source)
        reached("put")

    def settle_later(self: Lake) -> None:
        reached("unsettled")
        settle(self)

    setattr(Lake, "put", put_and_tell)  # noqa: B010 -- in a process that is about to end
    setattr(Lake, "settle", settle_later)  # noqa: B010 -- the same


def _archive_for(folder: Path, url: str, after_s: float) -> None:
    """Archive, and die a while after the first round was compared.

    That is in its commit, or behind it.
    """

    def die() -> None:
        time.sleep(after_s)
        os.kill(os.getpid(), signal.SIGKILL)

    def reached(name: str) -> None:
        if name == "checked" and not timers:
            timers.append(threading.Thread(target=die, daemon=True))
            timers[0].start()

    timers: list[threading.Thread] = []
    Archive(folder).run(StoreAt(url), reached=reached)


def forget_released(store: SqliteUnderTest) -> None:
    """Delete all that the coordinator's retention may delete."""
    with closing(sqlite3.connect(store.path)) as connection, connection:
        row = connection.execute("select value from store_meta where name = 'archived_until_ms'").fetchone()
        until_ms = 0 if row is None else row[0]
        connection.execute("delete from history where finished_ms < ?", (until_ms,))
        connection.execute("delete from attempt where at_ms < ?", (until_ms,))


@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_lost_and_nothing_is_there_twice(
    sqlite_store: SqliteUnderTest, archive: Archive, point: str
) -> None:
    last, kills = 0, 0
    for passage in PASSAGES:
        finish(sqlite_store, 1, last + 1, last + 175)  # more than two rounds
        fail_early(sqlite_store, [gid_of(1, last + 1)] if passage == 1 else [])
        last += 175
        kills += killed(archive, sqlite_store, point, passage)
        forget_released(sqlite_store)
        seen = archive.places()
        assert len(set(seen)) == len(seen), "a reader of the table saw a row twice"

    assert kills >= 1
    _is_whole_after_the_next(archive, sqlite_store, last)


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 5, 8, 13, 21])
def test_a_kill_within_a_commit_has_committed_all_of_it_or_nothing(
    sqlite_store: SqliteUnderTest, archive: Archive, after_ms: int
) -> None:
    finish(sqlite_store, 1, 1, 175)
    fail_early(sqlite_store, [gid_of(1, 1)])

    code = exit_code_of(_archive_for, archive.folder, sqlite_store.url, after_ms / 1000, imports=ARCHIVING)

    assert code in {0, -signal.SIGKILL}
    assert len(archive.places()) in {0, 80, 160, 175}
    forget_released(sqlite_store)
    _is_whole_after_the_next(archive, sqlite_store, 175)


def _is_whole_after_the_next(archive: Archive, store: SqliteUnderTest, last: int) -> None:
    done = archive.run(store)
    forget_released(store)

    assert archive.places() == [(1, seq) for seq in range(1, last + 1)]
    assert len(archive.rows("attempt")) == 1
    assert done.through == {1: last}
    assert archive.verify().faults == ()


def test_a_task_that_outlives_a_killed_run_writes_into_no_file_of_the_lake(
    sqlite_store: SqliteUnderTest, archive: Archive
) -> None:
    finish(sqlite_store, 1, 1, 5)
    assert killed(archive, sqlite_store, "copied", 1)
    [outlived] = archive.folder.glob("history/dt=*/*.parquet")

    archive.run(sqlite_store, reached=lambda _: outlived.write_bytes(b""))
    outlived.write_bytes(b"")
    archive.run(sqlite_store)

    assert outlived.name not in {Path(file.path).name for file in archive.files("history")}
    assert archive.places() == [(1, seq) for seq in range(1, 6)]
    assert archive.verify().faults == ()
