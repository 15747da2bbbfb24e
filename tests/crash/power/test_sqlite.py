"""An acknowledged commit of SQLite is on the disk, in each journal mode.

The coordinator's own store is tested, too.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from examples.banks.processes import ROOT
from tests.crash.power.disk import Disk
from tests.crash.power.sqlite_life import JOURNAL_MODES, LIVES, STORED, place
from tests.support.recording_coordinator import RecordingCoordinator
from twophase.barrier.installing import install
from twophase.stores.sqlite import SqliteStore

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of all databases after a loss of power at the last acknowledgement."""
    folder = tmp_path_factory.mktemp("disk").resolve() / "data"
    (folder / "store").mkdir(parents=True)
    for journal_mode in JOURNAL_MODES:
        for life in LIVES:
            _make_bank(place(folder, life, journal_mode))
    disk = Disk(folder)
    with RecordingCoordinator().running() as coordinator:
        command = [sys.executable, "-m", "tests.crash.power.sqlite_life", str(folder), coordinator.url]
        environment = {**os.environ, **disk.environment, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == b"acknowledged\n"
            disk.lose_power(victim.kill)
    return folder


def _make_bank(file: Path) -> None:
    file.parent.mkdir()
    install(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("create table account (balance integer)")
        connection.execute("insert into account values (100)")


def test_an_acknowledged_transaction_is_on_the_disk_in_every_journal_mode(survived: Path) -> None:
    found: dict[str, tuple[int, int]] = {}
    for file in (place(survived, life, journal_mode) for journal_mode in JOURNAL_MODES for life in LIVES):
        with closing(sqlite3.connect(file)) as connection:
            rows = connection.execute("select (select balance from account), count(*) from barrier").fetchone()
        found[file.parent.name] = rows

    assert found == dict.fromkeys(found, (70, 1))
    assert len(found) == len(JOURNAL_MODES) * len(LIVES)


def test_an_acknowledged_message_is_on_the_coordinator_s_disk(survived: Path) -> None:
    async def find() -> bool:
        store = SqliteStore(survived / "store" / "coordinator.db")
        await store.start()
        found = await store.get(STORED)
        await store.stop()
        return found is not None

    assert asyncio.run(find())
