"""A full disk, a disk that fails, and a disk without the right to write.

The error names the cause, and nothing acknowledged is lost.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import twophase
from tests.servers.missing import not_tested
from tests.small_disk import fill, remount, small_disk
from tests.support.items import abort, flush, prepare
from twophase.core.errors import StoreFull, StoreReadOnly
from twophase.stores.rows import HistoryRow, LiveRow
from twophase.stores.sqlite import SqliteStore

DISK_BYTES = 6 * 1024 * 1024
BODY = os.urandom(20_000)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of 6 MiB."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        yield disk


async def _fill(store: SqliteStore, name: str) -> tuple[list[str], StoreFull]:
    """Flush until the disk is full; return what was acknowledged, and the error."""
    acknowledged: list[str] = []
    for number in range(2 * DISK_BYTES // len(BODY)):
        gid = f"{name}{number}"
        try:
            await flush(store, prepare(gid, body=BODY))
        except StoreFull as error:
            return acknowledged, error
        acknowledged.append(gid)
    raise AssertionError("the disk was never full")


async def test_a_full_disk_loses_nothing_that_was_acknowledged(disk: Path) -> None:
    store = SqliteStore(disk / "store.db")
    await store.start()

    acknowledged, error = await _fill(store, "g")
    unacknowledged = f"g{len(acknowledged)}"

    assert "full" in str(error.__cause__)
    assert len(acknowledged) > 50
    assert [gid for gid in acknowledged if not isinstance(await store.get(gid), LiveRow)] == []
    assert await store.get(unacknowledged) is None
    await store.stop()

    again = SqliteStore(disk / "store.db")
    try:
        await again.start()
    except StoreFull:
        (disk / "store.db-shm").unlink(missing_ok=True)
        remount(disk, f"size={4 * DISK_BYTES}")
        again = SqliteStore(disk / "store.db")
        await again.start()
    assert [gid for gid in acknowledged if not isinstance(await again.get(gid), LiveRow)] == []
    assert await again.get(unacknowledged) is None
    await again.stop()


async def test_the_next_flush_works_when_there_is_room_again(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(DISK_BYTES // 2))
    store = SqliteStore(disk / "store.db")
    await store.start()
    acknowledged, _ = await _fill(store, "g")
    with pytest.raises(StoreFull):
        await flush(store, prepare("still full", body=BODY * 10))

    ballast.unlink()

    assert (await flush(store, *map(abort, acknowledged[:10]), prepare("new", body=BODY))).refused == {}
    assert isinstance(await store.get(acknowledged[0]), HistoryRow)
    more, _ = await _fill(store, "h")
    assert len(more) > 10
    assert [gid for gid in acknowledged + more if await store.get(gid) is None] == []
    await store.stop()


async def test_a_start_on_a_full_disk_says_so(disk: Path) -> None:
    fill(disk)

    with pytest.raises(StoreFull):
        await SqliteStore(disk / "store.db").start()


async def test_a_read_only_disk_is_reported_at_the_start(disk: Path) -> None:
    store = SqliteStore(disk / "store.db")
    await store.start()
    await store.stop()
    remount(disk, "ro")

    with pytest.raises(StoreReadOnly):
        await SqliteStore(disk / "store.db").start()


AS_NOBODY = """
import asyncio, os, sys, tempfile
from twophase.core.errors import StoreError
from twophase.stores.sqlite import SqliteStore

async def once(path):
    store = SqliteStore(path)
    await store.start()
    await store.stop()

# Once before the rights go: nobody may be unable to read the libraries of this checkout.
with tempfile.TemporaryDirectory() as folder:
    asyncio.run(once(folder + "/warm.db"))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    asyncio.run(SqliteStore(sys.argv[1]).start())
except StoreError as error:
    print(error.code)
else:
    print("started")
"""


@pytest.fixture
def everybodys_folder() -> Iterator[Path]:
    """A folder that other users reach; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def _start_as_nobody(path: Path) -> str:
    with tempfile.TemporaryDirectory() as everybodys:
        Path(everybodys).chmod(0o755)
        shutil.copytree(Path(twophase.__file__).parent, Path(everybodys) / "twophase")
        return subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(path)],
            env={**os.environ, "PYTHONPATH": everybodys},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "told"),
    [(0o777, 0o444, "TP-4003"), (0o555, 0o666, "TP-4003"), (0o777, 0o666, "started")],
    ids=["file", "folder", "neither"],
)
async def test_a_file_or_folder_without_the_right_to_write_is_reported_at_the_start(
    everybodys_folder: Path, folder_mode: int, file_mode: int, told: str
) -> None:
    folder = everybodys_folder
    path = folder / "store.db"
    store = SqliteStore(path)
    await store.start()
    await flush(store, prepare("g"))
    await store.stop()
    for file in folder.iterdir():
        file.chmod(file_mode if file == path else 0o666)
    folder.chmod(folder_mode)

    try:
        assert _start_as_nobody(path) == told
    finally:
        folder.chmod(0o755)


UNDER_A_LIMIT = """
import asyncio, resource, sys
from twophase.core.errors import StoreError
from twophase.core.lifecycle import State
from twophase.stores.batch import Batch, Insert
from twophase.stores.sqlite import SqliteStore

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    store = SqliteStore(sys.argv[1])
    await store.start()
    limit(500_000)
    written = 0
    try:
        while written < 1000:
            await store.flush(Batch([Insert(f"g{written}", State.PREPARED, 0, bytes(10_000))], []))
            written += 1
    except StoreError as error:
        print(type(error.__cause__).__name__, "after", written > 5)
    assert await store.get(f"g{written}") is None
    limit(resource.RLIM_INFINITY)
    await store.flush(Batch([Insert(f"g{written}", State.PREPARED, 0, b"")], []))
    print((await store.overview()).prepared == written + 1)
    await store.stop()

asyncio.run(main())
"""


def test_a_write_the_system_refuses_is_an_error_and_the_next_flush_works(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hard != resource.RLIM_INFINITY:
        not_tested("a failing write", f"files are limited to {hard} bytes here")

    ended = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT, str(tmp_path / "store.db")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )

    assert ended.stdout.splitlines() == ["OperationalError after True", "True"], ended.stderr
