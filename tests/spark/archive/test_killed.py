"""Archives die by kill -9 at every point, and again.

The lake has every row once, whenever it is read.
"""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.spark.archive.archiving import ARCHIVING, Archive, StoreAt, fail_early
from tests.spark.source.stores import SqliteUnderTest, finish, gid_of
from tests.support.dying_child import exit_code_of
from twophase_spark.archive.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.crash]
POINTS = ("claimed", "taken", "copied", "checked", "linked", "committed", "moved", "published", "released")
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

    _cut_short(reached)
    Archive(folder).run(StoreAt(url), reached=reached)


def _cut_short(reached: Callable[[str], None]) -> None:
    """Add points inside a step of the lake.

    They lie between link and unlink, and between two moves of files, at either time.
    """
    unlink, rename = Path.unlink, Path.rename

    def unlink_later(self: Path, missing_ok: bool = False) -> None:
        reached("linked")
        unlink(self, missing_ok)

    def rename_and_tell(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        if self.suffix == ".parquet":
            reached("taken" if "_staging" in target.parts else "moved")
        return moved

    setattr(Path, "unlink", unlink_later)  # noqa: B010 -- in a process that is about to end
    setattr(Path, "rename", rename_and_tell)  # noqa: B010 -- the same


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
        assert len(set(seen)) == len(seen), "a reader of the plain folders saw a row twice"
        named = {file.path for manifest in archive.manifests for file in manifest.files}
        there = {str(path.relative_to(archive.folder)) for path in archive.folder.glob("[ha]*/*/*.parquet")}
        assert there <= named, "a file that no manifest names was to be seen"

    done = archive.run(sqlite_store)
    forget_released(sqlite_store)

    assert kills >= 1
    assert archive.places() == [(1, seq) for seq in range(1, last + 1)]
    assert len(archive.rows("attempt")) == 1
    assert done.through == {1: last}
    assert archive.verify().faults == ()
    assert not (archive.folder / "_staging").exists()
    assert [manifest.number for manifest in Lake(archive.folder).manifests()] == list(
        range(1, len(archive.manifests) + 1)
    )


@pytest.mark.parametrize("point", ["checked", "committed", "published"])
def test_a_task_that_outlives_a_killed_run_writes_into_no_other_runs_files(
    sqlite_store: SqliteUnderTest, archive: Archive, point: str
) -> None:
    finish(sqlite_store, 1, 1, 5)
    assert killed(archive, sqlite_store, "copied", 1)
    [outlived] = archive.folder.glob("_staging/*/history/*/*.parquet")

    def write_on(name: str) -> None:
        if name == point:
            outlived.parent.mkdir(parents=True, exist_ok=True)
            outlived.write_bytes(b"")

    archive.run(sqlite_store, reached=write_on)
    outlived.parent.mkdir(parents=True, exist_ok=True)
    outlived.write_bytes(b"")
    archive.run(sqlite_store)

    assert archive.places() == [(1, seq) for seq in range(1, 6)]
    assert archive.verify().faults == ()
    assert not (archive.folder / "_staging").exists()


def test_a_manifest_of_before_tries_had_names_is_published(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 5)
    assert killed(archive, sqlite_store, "committed", 1)
    [path] = archive.folder.glob("_manifests/*.json")
    manifest = msgspec.json.decode(path.read_bytes())
    (archive.folder / "_staging" / manifest.pop("staging")).rename(archive.folder / "_staging" / "00000001")
    path.write_bytes(msgspec.json.encode(manifest))

    archive.run(sqlite_store)

    assert archive.places() == [(1, seq) for seq in range(1, 6)]
    assert archive.verify().faults == ()
