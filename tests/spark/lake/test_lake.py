"""The tables of a lake are durable, of one archive at a time, and private."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.spark.lake.archiving import Archive
from tests.spark.source.stores import SqliteUnderTest, finish
from twophase.core.errors import ArchiveRefused
from twophase_spark.lake import marks
from twophase_spark.lake.tables import Extent, Lake, Snapshot, node_mark
from twophase_spark.locations import Location
from twophase_spark.source.schema.tables import Kind

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("size", [0, 2**20 - 1, 2**20, 5 * 2**20 + 1])
def test_a_file_of_any_size_is_written(archive: Archive, size: int) -> None:
    lake, content = Lake(archive.folder), os.urandom(size)
    lake.create()

    lake.put(Kind.HISTORY, "dt=2026-11-20/one.parquet", io.BytesIO(content))

    assert (archive.folder / "history" / "dt=2026-11-20" / "one.parquet").read_bytes() == content


def test_what_a_killed_run_left_goes_after_a_week(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 5)
    archive.run(sqlite_store)
    [whole] = archive.folder.glob("history/dt=*/*.parquet")
    old, young = whole.with_name("old.parquet"), whole.with_name("young.parquet")
    for left in (old, young):
        shutil.copy(whole, left)
    os.utime(old, (0, 0))
    os.utime(whole, (0, 0))

    archive.run(sqlite_store)

    assert [path.exists() for path in (whole, old, young)] == [True, False, True]
    assert archive.places() == [(1, seq) for seq in range(1, 6)]
    assert archive.verify().faults == ()


@pytest.mark.parametrize(
    ("table", "why"),
    [("history", "Parquet files, and no Delta log"), ("attempt", "the lake has lost the last commits")],
)
def test_a_lake_without_a_log_is_no_new_lake(
    sqlite_store: SqliteUnderTest, archive: Archive, table: str, why: str
) -> None:
    finish(sqlite_store, 1, 1, 3)
    archive.run(sqlite_store)
    shutil.rmtree(archive.folder / table / "_delta_log")

    with pytest.raises(ArchiveRefused, match=why):
        archive.run(sqlite_store)


def test_a_lake_that_lost_its_last_commits_is_not_released(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 3)
    archive.run(sqlite_store)
    max((archive.folder / "attempt" / "_delta_log").glob("*.json")).unlink()

    with pytest.raises(ArchiveRefused, match="the lake has lost the last commits"):
        archive.run(sqlite_store)


@pytest.mark.parametrize("point", ["claimed", "copied", "checked", "committed"])
def test_the_second_archive_at_once_is_refused(sqlite_store: SqliteUnderTest, archive: Archive, point: str) -> None:
    """One of two adds the rows, and the other none, wherever they meet."""
    finish(sqlite_store, 1, 1, 175)  # three commits of history
    passed: list[str] = []

    def reached(name: str) -> None:
        passed.append(name)
        if passed.count(point) == 1 and name == point:
            Archive(archive.folder).run(sqlite_store)

    with pytest.raises(ArchiveRefused, match="another archive is at work"):
        archive.run(sqlite_store, reached=reached)

    assert archive.places() == [(1, seq) for seq in range(1, 176)]
    assert archive.run(sqlite_store).history == 0


def test_two_commits_at_one_instant_are_one(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    """Delta refuses the second, though both saw the same marks."""
    finish(sqlite_store, 1, 1, 5)
    archive.run(sqlite_store)
    lake = Lake(archive.folder)
    snapshots = [lake.snapshot() for _ in range(8)]
    together = threading.Barrier(len(snapshots))
    taken: list[bool] = []

    def commit(snapshot: Snapshot) -> None:
        together.wait()
        try:
            snapshot.commit(Kind.HISTORY, [], {node_mark(1): 9}, 0, {})
        except ArchiveRefused:
            taken.append(False)
        else:
            taken.append(True)

    threads = [threading.Thread(target=commit, args=[snapshot]) for snapshot in snapshots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken) == [False] * 7 + [True]


def test_all_that_is_released_is_on_the_disk_before(
    sqlite_store: SqliteUnderTest, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library leaves files to the kernel, which a loss of power would take."""
    finish(sqlite_store, 1, 1, 25)
    synced: set[str] = set()
    unsynced: list[set[str]] = []
    fsync, release = os.fsync, marks.release

    def sync(descriptor: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def released(location: Location, lake: int, extent: Extent) -> None:
        there = {str(path) for path in archive.folder.rglob("*") if path.suffix != ".crc"}
        unsynced.append(there - synced)
        release(location, lake, extent)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(marks, "release", released)

    archive.run(sqlite_store)

    assert unsynced == [set(), set()]
    assert any(path.endswith(".parquet") for path in synced)


def test_a_damaged_file_is_found(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 25)
    archive.run(sqlite_store)
    files = sorted(archive.folder.glob("history/*/*.parquet"))
    assert archive.verify().faults == ()

    whole = bytearray(files[0].read_bytes())
    whole[len(whole) // 3] ^= 1
    files[0].write_bytes(whole)
    files[1].unlink()
    size = files[2].stat().st_size
    files[2].write_bytes(files[2].read_bytes() + b"x")

    assert {fault.why for fault in archive.verify().faults} == {
        "its bytes are not those that were written",
        "it is gone",
        f"it has {size + 1} bytes, and was written with {size}",
    }


def test_a_table_that_another_program_changed_is_no_proof(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 15)
    archive.run(sqlite_store)
    DeltaTable(archive.folder / "history").optimize.compact()

    assert {fault.why for fault in archive.verify().faults} == {
        "no archive wrote it: another program has changed the table"
    }


def test_only_the_owner_reads_a_lake(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    """No other user gets past these folders, whatever lies in them."""
    finish(sqlite_store, 1, 1, 3)
    archive.run(sqlite_store)
    folders = [archive.folder, *archive.folder.iterdir()]

    assert {path.name for path in folders} == {"lake", "history", "attempt", "audit_log", "queue_entry"}
    assert {path.stat().st_mode & 0o077 for path in folders} == {0}


WITHOUT_RIGHTS = """
import os, sys
from twophase.core.errors import ArchiveRefused
from twophase_spark.lake.tables import Lake

def refusal(place):
    try:
        Lake(place).snapshot()
    except ArchiveRefused as error:
        return error.message

refusal(sys.argv[2])  # imports every library, because the user without rights may not read them
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(refusal(sys.argv[1]), refusal(sys.argv[2]), sep=os.linesep)
"""


def test_a_lake_of_another_user_is_not_called_none() -> None:
    """Another user's lake is hidden, and looks like an empty folder."""
    with tempfile.TemporaryDirectory() as made:  # pytest's own are closed to other users
        everybodys = Path(made)
        everybodys.chmod(0o755)
        lake = Lake(everybodys / "lake")
        lake.create()
        (everybodys / "lake").chmod(0o000)  # for a run that is not root's
        try:
            command = [sys.executable, "-c", WITHOUT_RIGHTS, lake.place, str(everybodys / "none")]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        finally:
            (everybodys / "lake").chmod(0o700)
    assert ["is closed to this user" in line for line in said] == [True, False]
    assert ["is not a lake" in line for line in said] == [False, True]
