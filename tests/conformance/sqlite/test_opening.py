"""The files that are opened, and those that are refused.

A refused file stays as it was.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.items import flush, prepare
from twophase.core.errors import (
    ConfigurationError,
    NotAStore,
    SchemaTooNew,
    StoreCorrupt,
    StoreReadOnly,
    UnsafeDurability,
)
from twophase.stores.sqlite import SqliteStore, connection, schema
from twophase.stores.sqlite.store import version_of


async def _make(path: Path, messages: int = 0) -> None:
    store = SqliteStore(path)
    await store.start()
    await flush(store, *(prepare(f"g{number:05}", body=bytes(1000)) for number in range(messages)))
    await store.stop()


@pytest.mark.parametrize("name", ["", ":memory:", "file:x?mode=memory", "a\0b"])
def test_what_is_no_files_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="not a file's path"):
        SqliteStore(name)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"folder {tmp_path}/missing does not exist"):
        await SqliteStore(tmp_path / "missing" / "store.db").start()


async def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder"):
        await SqliteStore(tmp_path).start()


async def test_any_file_name_is_taken_literally(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=memory&x=%41#é .db"
    await _make(path)

    assert path.stat().st_size > 0


async def test_a_file_that_is_no_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"some text\n" * 1000)

    with pytest.raises(NotAStore, match="not a database"):
        await SqliteStore(path).start()

    assert path.read_bytes() == b"some text\n" * 1000


async def test_another_programs_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    other = sqlite3.connect(path)
    other.execute("create table customer (id)")
    other.close()
    before = path.read_bytes()

    with pytest.raises(NotAStore, match="another program"):
        await SqliteStore(path).start()

    assert path.read_bytes() == before


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    await _make(tmp_path / "store.db")

    raw = sqlite3.connect(tmp_path / "store.db")
    assert raw.execute("pragma application_id").fetchone() == (schema.APPLICATION_ID,)
    assert raw.execute("pragma user_version").fetchone() == (schema.SCHEMA_VERSION,)
    raw.close()


async def test_a_newer_schema_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await _make(path)
    raw = sqlite3.connect(path)
    raw.execute(f"pragma user_version = {schema.SCHEMA_VERSION + 1}")
    raw.close()
    before = path.read_bytes()

    with pytest.raises(SchemaTooNew, match=f"version {schema.SCHEMA_VERSION + 1}"):
        await SqliteStore(path).start()

    assert path.read_bytes() == before


async def test_a_damaged_page_is_found_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await _make(path, messages=500)
    content = bytearray(path.read_bytes())
    (page, *_) = [at for at in range(0, len(content), 8192) if b"g00250" in content[at : at + 8192]]
    content[page : page + 200] = bytes(200)
    path.write_bytes(content)

    with pytest.raises(StoreCorrupt, match="is damaged"):
        await SqliteStore(path).start()


async def test_a_truncated_file_is_found_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await _make(path, messages=500)
    path.write_bytes(path.read_bytes()[: 8192 * 20])

    with pytest.raises(StoreCorrupt):
        await SqliteStore(path).start()


async def test_damage_met_later_is_reported_by_the_read_and_by_the_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    await _make(path, messages=500)
    content = bytearray(path.read_bytes())
    raw = sqlite3.connect(path)
    (root,) = raw.execute("select rootpage from sqlite_master where name = 'message'").fetchone()
    raw.close()
    content[(root - 1) * 8192 : (root - 1) * 8192 + 100] = b"\xff" * 100
    path.write_bytes(content)
    monkeypatch.setattr(connection, "_QUICK_CHECK_BYTES_MAX", 0)
    store = SqliteStore(path)
    await store.start()

    with pytest.raises(StoreCorrupt) as caught:
        await store.get("g00001")
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    with pytest.raises(StoreCorrupt):
        await flush(store, prepare("new"))
    await store.stop()


async def test_a_file_replaced_while_it_is_served_takes_no_more_writes(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.start()
    path.rename(tmp_path / "moved.db")

    with pytest.raises(StoreCorrupt, match="was moved, replaced or removed"):
        await flush(store, prepare("g"))

    (tmp_path / "moved.db").rename(path)
    await flush(store, prepare("g"))
    await store.stop()


async def test_a_folder_that_is_closed_to_the_server_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.start()
    _close_to_this_user(tmp_path, monkeypatch)

    with pytest.raises(StoreReadOnly, match="may not look into its folder"):
        await flush(store, prepare("g"))

    monkeypatch.undo()
    await flush(store, prepare("g"))
    await store.stop()


async def test_a_start_in_a_folder_that_is_closed_to_the_server_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _close_to_this_user(tmp_path, monkeypatch)

    with pytest.raises(StoreReadOnly, match=r"store\.db: the server's user may not look into its folder"):
        await SqliteStore(tmp_path / "store.db").start()
    with pytest.raises(StoreReadOnly):
        version_of(tmp_path / "store.db")


def _close_to_this_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder as it is to a user without rights; root always has them."""
    stat = os.stat

    def refuse(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if Path(path).parent == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", refuse)


async def test_a_removed_log_takes_no_more_writes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    await flush(store, prepare("g"))
    (tmp_path / "store.db-wal").unlink()

    with pytest.raises(StoreCorrupt, match=r"store\.db-wal was moved"):
        await flush(store, prepare("h"))
    await store.stop()


@pytest.mark.parametrize(("pragma", "told"), [("synchronous = full", "synchronous is"), ("journal_mode = wal", "wal")])
async def test_a_start_without_durable_commits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pragma: str, told: str
) -> None:
    class Deaf(sqlite3.Connection):
        """A library that ignores one pragma."""

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql == f"pragma {pragma}":
                sql = "pragma synchronous = normal" if "sync" in sql else "pragma journal_mode"
            return super().execute(sql, parameters)

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, factory=Deaf, **k))

    with pytest.raises(UnsafeDurability, match=told):
        await SqliteStore(tmp_path / "store.db").start()


async def test_an_old_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 33, 0))

    with pytest.raises(ConfigurationError, match=r"3\.34\.0 or newer"):
        await SqliteStore(tmp_path / "store.db").start()


async def test_a_large_file_is_not_read_from_end_to_end_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    await _make(path, messages=2000)
    monkeypatch.setattr(connection, "_QUICK_CHECK_BYTES_MAX", 0)
    raw = connection.open_writer(path)
    asked: list[str] = []
    raw.set_trace_callback(asked.append)

    connection.check_damage(raw, path)

    raw.close()
    assert not [sql for sql in asked if "quick_check" in sql]


async def test_the_check_of_the_largest_file_that_is_read_whole_takes_less_than_a_second(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.start()
    for start in range(0, 50_000, 5_000):
        await flush(store, *(prepare(f"g{number:06}", body=bytes(1000)) for number in range(start, start + 5_000)))
    await store.stop()
    raw = connection.open_writer(path)
    wall, began = time.monotonic(), time.thread_time()  # other processes' use of this machine does not count

    connection.check_damage(raw, path)

    took, wall_took = time.thread_time() - began, time.monotonic() - wall
    raw.close()
    assert path.stat().st_size > 50e6
    assert took < 1
    assert wall_took < 10, "less than an fsync for each of 50 000 rows takes"
