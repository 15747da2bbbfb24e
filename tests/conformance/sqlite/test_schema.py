"""Schema versions only rise, each step complete or not done."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.support.items import flush, prepare
from twophase.stores.migrations import Migration
from twophase.stores.sqlite import SqliteStore, schema

NEXT = schema.SCHEMA_VERSION + 1
ENDED = "insert into history values (1, ?, ?, 5, 0, 0, 0, '', '', 0, 0, x'', null)"


@pytest.fixture
def file() -> sqlite3.Connection:
    """A new file of the newest version."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(connection, schema.identify(connection, Path("x")))
    return connection


def _version(connection: sqlite3.Connection) -> tuple[int, int]:
    (header,) = connection.execute("pragma user_version").fetchone()
    (row,) = connection.execute("select value from store_meta where name = 'schema_version'").fetchone()
    return header, row


def test_a_new_file_has_the_newest_version(file: sqlite3.Connection) -> None:
    assert _version(file) == (schema.SCHEMA_VERSION, schema.SCHEMA_VERSION)
    assert 1 + len(schema.migrations()) == schema.SCHEMA_VERSION
    file.close()


def test_steps_behind_the_files_version_are_taken_in_order(file: sqlite3.Connection) -> None:
    steps = (
        Migration(schema.SCHEMA_VERSION, "this one was taken long ago"),
        Migration(NEXT, "alter table attempt add column more text; create table later (x);"),
        Migration(NEXT + 1, "insert into later values (1)"),
    )

    schema.migrate(file, schema.identify(file, Path("x")), steps)

    assert _version(file) == (NEXT + 1, NEXT + 1)
    assert file.execute("select x from later").fetchall() == [(1,)]
    file.close()


def test_a_step_that_fails_leaves_the_version_before_it(file: sqlite3.Connection) -> None:
    steps = (Migration(NEXT, "create table later (x)"), Migration(NEXT + 1, "drop table later; drop table missing"))

    with pytest.raises(sqlite3.OperationalError, match="missing"):
        schema.migrate(file, schema.identify(file, Path("x")), steps)

    assert _version(file) == (NEXT, NEXT)
    assert file.execute("select count(*) from later").fetchone() == (0,)
    file.close()


async def test_nothing_can_stand_in_live_rows_and_history_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    await flush(store, prepare("g"))
    await store.stop()
    raw = sqlite3.connect(tmp_path / "store.db")

    raw.execute(ENDED, (1, "g"))

    assert raw.execute("select count(*) from message").fetchone() == (0,)
    raw.close()


@pytest.mark.parametrize(("seq", "gid"), [(1, "h"), (2, "g")])
def test_history_has_each_number_and_each_gid_once(file: sqlite3.Connection, seq: int, gid: str) -> None:
    file.execute(ENDED, (1, "g"))

    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        file.execute(ENDED, (seq, gid))
    file.close()
