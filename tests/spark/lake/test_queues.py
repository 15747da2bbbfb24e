"""Entries of queues go into the lake before cleaning may remove them."""

from __future__ import annotations

import asyncio

import pytest

from tests.spark.lake.archiving import DAY_MS, Archive
from tests.spark.source.stores import BORN_MS, PostgresUnderTest, SqliteUnderTest, StoreUnderTest, append, finish
from twophase.stores.base import Store
from twophase.stores.postgres.store import PostgresStore
from twophase.stores.sqlite import SqliteStore
from twophase_spark.lake.planning import SETTLING_MS

pytestmark = pytest.mark.spark
UNTIL_MS = BORN_MS + DAY_MS


@pytest.fixture(autouse=True)
def _one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set PostgreSQL's clock to the time of the planted rows, too."""
    monkeypatch.setattr("twophase_spark.lake.planning.store_now_ms", lambda *_: UNTIL_MS + SETTLING_MS)


def numbers(archive: Archive) -> list[tuple[str, int]]:
    return sorted((row["topic"], row["number"]) for row in archive.rows("queue_entry"))


def cleaned(store: StoreUnderTest) -> int:
    """Remove entries as a coordinator does, whatever their age; return how many."""

    async def clean() -> int:
        opened: Store = SqliteStore(store.path) if isinstance(store, SqliteUnderTest) else PostgresStore(_dsn(store))
        await opened.start()
        try:
            return await opened.purge_queues(UNTIL_MS + 2 * DAY_MS, 100)
        finally:
            await opened.stop()

    return asyncio.run(clean())


def _dsn(store: StoreUnderTest) -> str:
    assert isinstance(store, PostgresUnderTest)
    return store.dsn


def test_each_entry_is_in_the_lake_once(store: StoreUnderTest, archive: Archive) -> None:
    finish(store, 1, 1, 3)
    append(store, "orders", 0, 0, 24)
    append(store, "shop/bills", 3, 0, 1)

    first = archive.run(store)
    again = archive.run(store)

    assert (first.entries, again.entries) == (27, 0)
    assert numbers(archive) == [*(("orders", number) for number in range(25)), ("shop/bills", 0), ("shop/bills", 1)]
    assert archive.extent.entries_until_ms == UNTIL_MS
    found = archive.verify()
    assert (found.entries, found.faults) == (27, ())


def test_cleaning_removes_no_entry_that_is_not_in_the_lake(store: StoreUnderTest, archive: Archive) -> None:
    append(store, "orders", 0, 0, 4)
    archive.run(store)
    store.many("update queue_entry set stored_ms = ? where number >= ?", [(UNTIL_MS, 3)])

    assert cleaned(store) == 3

    assert len(numbers(archive)) == 5


def test_what_settles_still_is_left_to_the_next_run(store: StoreUnderTest, archive: Archive) -> None:
    append(store, "orders", 0, 0, 2)
    store.many("update queue_entry set stored_ms = ? where number = ?", [(UNTIL_MS, 2)])

    assert archive.run(store).entries == 2


def test_the_store_of_an_older_coordinator_is_archived(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 3)
    sqlite_store.many("drop table queue_entry", [()])

    assert (archive.run(sqlite_store).history, archive.extent.entries_until_ms) == (3, 0)
