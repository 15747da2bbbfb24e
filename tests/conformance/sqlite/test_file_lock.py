"""One server a file, whatever the file is called, until the process is dead."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.items import flush, prepare
from twophase.core.errors import ConfigurationError, StoreFenced, StoreLocked
from twophase.stores.sqlite import SqliteStore

HOLDER = """
import asyncio, sys
from twophase.stores.sqlite import SqliteStore

async def hold():
    await SqliteStore(sys.argv[1]).start()
    print("started", flush=True)
    await asyncio.sleep(3600)

asyncio.run(hold())
"""


def _hold(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


async def test_a_second_process_is_refused_with_the_holder_of_the_file(tmp_path: Path) -> None:
    holder = _hold(tmp_path / "store.db")
    try:
        second = SqliteStore(tmp_path / "store.db")
        with pytest.raises(StoreLocked, match=f"process {holder.pid} "):
            await second.start()
    finally:
        _end(holder)


async def test_kill_9_frees_the_file_at_once(tmp_path: Path) -> None:
    _end(_hold(tmp_path / "store.db"))

    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    await store.stop()


async def test_a_symbolic_link_leads_to_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(tmp_path / "store.db")
    first, second = SqliteStore(tmp_path / "store.db"), SqliteStore(link)
    await first.start()

    with pytest.raises(StoreLocked, match=f"process {os.getpid()} "):
        await second.start()

    await first.stop()
    await second.start()
    await second.stop()


async def test_a_second_name_of_the_file_is_refused(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "store.db")
    await first.start()
    await first.stop()
    (tmp_path / "second.db").hardlink_to(tmp_path / "store.db")

    with pytest.raises(ConfigurationError, match="second name"):
        await SqliteStore(tmp_path / "second.db").start()


async def test_the_lock_is_free_after_a_stop_and_after_a_failed_start(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is no database" * 100)
    for _ in range(2):
        with pytest.raises(Exception, match="not a database"):
            await SqliteStore(path).start()
    path.unlink()
    for _ in range(2):
        store = SqliteStore(path)
        await store.start()
        await store.stop()


async def test_without_the_lock_the_epoch_still_fences_the_first_server(tmp_path: Path) -> None:
    first, second = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
    await first.start()
    (tmp_path / "store.db-lock").unlink()
    await second.start()

    with pytest.raises(StoreFenced):
        await flush(first, prepare("g"))
    assert (await flush(second, prepare("g"))).refused == {}
    await second.stop()
    await first.stop()


async def test_readers_look_on_while_the_server_runs(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    reader = sqlite3.connect(f"file:{tmp_path}/store.db?mode=ro", uri=True)

    for number in range(3):
        await flush(store, prepare(f"g{number}"))
        assert reader.execute("select count(*) from message").fetchone() == (number + 1,)

    reader.close()
    await flush(store, prepare("g3"))
    await store.stop()
