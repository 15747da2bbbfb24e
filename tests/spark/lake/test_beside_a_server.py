"""An archive beside a store at work: neither disturbs the other.

The store deletes what the lake has, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.lake.archiving import DAY_MS, Archive, StoppedClock
from tests.spark.source.stores import BORN_MS, SqliteUnderTest, finish, history_row
from twophase.core.lifecycle import State
from twophase.core.message import Message, encode
from twophase.stores.batch import Batch, Insert
from twophase.stores.sqlite import SqliteStore

pytestmark = pytest.mark.spark
LATE_MS = BORN_MS + 10 * DAY_MS


async def test_the_store_forgets_what_the_lake_has_and_no_more(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 30)
    store = SqliteStore(sqlite_store.path, clock=StoppedClock(LATE_MS))
    await store.start()
    try:
        archive.run(sqlite_store)
        marks = f"{', '.join('?' * 12)}, null"
        sqlite_store.many(f"insert into history values ({marks})", [_later_row(seq) for seq in range(31, 41)])
        sqlite_store.many("update node set seq = ?", [(40,)])
        body = encode(Message("order-1", ()))
        await store.flush(Batch([Insert("order-1", State.PREPARED, 35_000, body)], []))

        removed = await store.purge(LATE_MS, 1000)

        assert removed.history == 30
        assert removed.horizon_ms == BORN_MS + 30 + 20 + 1, "just behind the end of the last row that went"
        assert archive.run(sqlite_store).history == 10
        assert await store.get("order-1") is not None
    finally:
        await store.stop()
    assert [seq for _, seq in archive.places()] == list(range(1, 41))


async def test_nothing_is_forgotten_while_the_first_archive_is_at_work(
    sqlite_store: SqliteUnderTest, archive: Archive
) -> None:
    finish(sqlite_store, 1, 1, 30)
    removed: list[int] = []

    with pytest.raises(_Stopped):
        archive.run(sqlite_store, reached=_stop_at("claimed"))
    store = SqliteStore(sqlite_store.path, clock=StoppedClock(LATE_MS))
    await store.start()
    try:
        removed.append((await store.purge(LATE_MS, 1000)).history)
    finally:
        await store.stop()

    assert removed == [0]


def _later_row(seq: int) -> tuple[object, ...]:
    """Return a row that finished three days later, so it is not released.

    Its values are in the order of the table's columns.
    """
    node, number, gid, state, born, decided, finished, decided_by, reason, attempts, done, body = history_row(1, seq)
    times = (born, decided, finished + 3 * DAY_MS)
    return (node, number, gid, state, *times, decided_by, reason, attempts, done, body)


class _Stopped(Exception):
    pass


def _stop_at(point: str) -> Callable[[str], None]:
    def reached(name: str) -> None:
        if name == point:
            raise _Stopped

    return reached


def test_a_lake_elsewhere_is_named_by_its_whole_path(
    sqlite_store: SqliteUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors have other working folders."""
    monkeypatch.chdir(tmp_path)
    finish(sqlite_store, 1, 1, 3)
    Archive(Path("here")).run(sqlite_store)
    assert Archive(tmp_path / "here").places() == [(1, 1), (1, 2), (1, 3)]
