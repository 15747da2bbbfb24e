"""The event loop's own thread writes a flush where that is safe.

It is safe where the flush can neither block the loop nor meet the writing thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.items import prepare
from twophase.core.errors import StoreError
from twophase.stores.batch import Batch
from twophase.stores.sqlite import SqliteStore, connection, writer
from twophase.stores.sqlite.purge import Removable
from twophase.stores.sqlite.writer import Writer, Written

PATIENT_MS = 60_000
"""Time for which the loop would stand still.

It is longer than a busy machine keeps a process from running.
"""


async def test_a_flush_waits_for_another_programs_transaction_without_stopping_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", PATIENT_MS)
    monkeypatch.setattr(writer, "_WAIT_AGAIN", f"pragma busy_timeout = {PATIENT_MS}")
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.start()
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("begin immediate")
        started_s = time.monotonic()
        flush = asyncio.ensure_future(store.flush(Batch([prepare("g")], [])))
        for _ in range(3):
            await asyncio.sleep(0)
        assert time.monotonic() - started_s < PATIENT_MS / 2000
        assert not flush.done()
        other.execute("rollback")
        assert (await flush).refused == {}
    finally:
        other.close()
        await store.stop()


class _Faulty:
    """The writer's connection, on which statements with a given beginning fail once."""

    def __init__(self, connection: sqlite3.Connection, fails: str, code: int) -> None:
        self._connection, self._fails, self._code = connection, fails, code

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        if self._fails and statement.startswith(self._fails):
            self._fails = ""
            error = sqlite3.OperationalError("no luck")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(statement, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _break(store: SqliteStore, fails: str, code: int) -> None:
    writer: Any = store._writer
    writer._connection = _Faulty(writer._connection, fails, code)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY, sqlite3.SQLITE_BUSY_SNAPSHOT])
async def test_every_kind_of_busy_is_left_to_the_thread_which_waits(tmp_path: Path, code: int) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    try:
        _break(store, "begin immediate", code)
        assert (await store.flush(Batch([prepare("g")], []))).refused == {}
        assert await store.get("g") is not None
    finally:
        await store.stop()


async def test_a_connection_that_would_not_wait_any_more_is_thrown_away(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    try:
        _break(store, f"pragma busy_timeout = {connection.BUSY_TIMEOUT_MS}", sqlite3.SQLITE_NOMEM)
        with pytest.raises(StoreError):
            await store.flush(Batch([prepare("refused")], []))
        assert (await store.flush(Batch([prepare("g")], []))).refused == {}
        assert await store.get("refused") is None
        assert await store.get("g") is not None
    finally:
        await store.stop()


async def test_a_flush_keeps_out_of_a_cleaning_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaning, may_end, written = threading.Event(), threading.Event(), threading.Event()
    forget, write = Writer.forget, Writer.write

    def held(self: Writer, found: Removable) -> int:
        cleaning.set()
        assert may_end.wait(30)
        assert not written.is_set()
        return forget(self, found)

    def noted(self: Writer, batch: Batch) -> Written:
        written.set()
        return write(self, batch)

    monkeypatch.setattr(Writer, "forget", held)
    monkeypatch.setattr(Writer, "write", noted)
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    try:
        purge = asyncio.create_task(store.purge(1, 10))
        assert await asyncio.to_thread(cleaning.wait, 30)
        flush = asyncio.ensure_future(store.flush(Batch([prepare("g")], [])))
        await asyncio.sleep(0)
        may_end.set()
        await purge
        assert (await flush).refused == {}
    finally:
        may_end.set()
        await store.stop()


def _note_writes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list to which each write adds whether the event loop wrote."""
    in_the_loop: list[bool] = []
    loops, write = threading.current_thread(), Writer.write

    def noted(self: Writer, batch: Batch) -> Written:
        in_the_loop.append(threading.current_thread() is loops)
        return write(self, batch)

    monkeypatch.setattr(Writer, "write", noted)
    return in_the_loop


@pytest.mark.parametrize("slow", ["_SLOW_HERE_S", "_SLOW_S"])
async def test_the_thread_writes_for_a_second_behind_a_slow_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    now_s = 100.0
    in_the_loop = _note_writes(monkeypatch)
    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=lambda: now_s))
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    try:
        with monkeypatch.context() as every_write_is_slow:
            every_write_is_slow.setattr(writer, slow, -1.0)
            await store.flush(Batch([prepare("slow")], []))
        for wait_s in (0.0, 0.9, 0.2):
            now_s += wait_s
            await store.flush(Batch([prepare(f"at {now_s}")], []))
    finally:
        await store.stop()
    assert in_the_loop == [True, False, False, True]


@pytest.mark.parametrize(("items", "in_the_loop"), [(3, True), (600, False)])
async def test_a_large_batch_is_the_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, items: int, in_the_loop: bool
) -> None:
    written = _note_writes(monkeypatch)
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    try:
        await store.flush(Batch([prepare(f"g{number}") for number in range(items)], []))
    finally:
        await store.stop()
    assert written == [in_the_loop]
