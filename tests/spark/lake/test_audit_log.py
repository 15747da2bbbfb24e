"""The audit log reaches the lake complete and once, and its chain is checked."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake.archiving import DAY_MS, Archive, StoppedClock
from tests.spark.lake.test_query import rows as query
from tests.spark.source.stores import BORN_MS, SqliteUnderTest, StoreUnderTest, finish
from twophase.core.audit_log import AuditEntry, AuditHead, chained
from twophase.core.errors import ArchiveRefused, HistoryGap
from twophase.stores.sqlite import SqliteStore
from twophase_spark.lake import marks
from twophase_spark.lake.workers import on

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
LATE_MS = BORN_MS + 10 * DAY_MS
MADE_MS = 1_700_000_000_000


def write(store: StoreUnderTest, number: int, head: AuditHead | None = None, apart_ms: int = 1) -> AuditHead:
    """Append rows to the audit log, and return its head."""
    before = head or AuditHead()
    after = before
    for _ in range(number):
        seq = after.seq
        [row] = chained(
            after, MADE_MS + seq * apart_ms, 1, [AuditEntry("eve", "::1", "stop", f"g{seq}", "söme", "", "")]
        )
        columns = "seq, at_ms, node, who, peer, act, target, reason, state_before, state_after, previous, hash"
        values = [getattr(row, name) for name in row.__struct_fields__]
        store.many(f"insert into audit_log ({columns}) values ({', '.join('?' * 12)})", [values])
        after = AuditHead(row.seq, row.hash)
    store.many("update audit_head set seq = ?, hash = ?", [(after.seq, after.hash)])
    return after


def seqs(archive: Archive) -> list[int]:
    return [row["seq"] for row in archive.rows("audit_log")]


def test_each_row_is_in_the_lake_once_whatever_its_day(store: StoreUnderTest, archive: Archive) -> None:
    head = write(store, 25, apart_ms=DAY_MS // 4)
    throughs = []
    first = archive.run(store)
    throughs.append(archive.extent.audit_through)
    write(store, 3, head)
    second = archive.run(store)
    third = archive.run(store)
    throughs.append(archive.extent.audit_through)

    assert (first.audit_rows, second.audit_rows, third.audit_rows) == (25, 3, 0)
    assert seqs(archive) == list(range(1, 29))
    assert throughs == [25, 28]
    row = archive.rows("audit_log")[4]
    assert (row["who"], row["act"], row["target"], row["reason"]) == ("eve", "stop", "g4", "söme")
    verified = archive.verify()
    assert (verified.faults, verified.audit_rows) == ((), 28)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("update audit_log set who = 'adam' where seq = 13", "row 13: it was changed: its columns give another hash"),
        ("update audit_log set previous = 'none' where seq = 11", "row 11: it does not follow the row before"),
    ],
)
def test_a_row_that_was_changed_in_the_store_is_found_in_the_lake(
    sqlite_store: SqliteUnderTest, archive: Archive, change: str, where: str
) -> None:
    write(sqlite_store, 25)
    sqlite_store.many(change, [()])
    archive.run(sqlite_store)
    [fault] = archive.verify().faults
    assert fault.path == "audit_log"
    assert fault.why.startswith(where)


def test_rows_removed_behind_the_archives_back_are_reported(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    head = write(sqlite_store, 3)
    archive.run(sqlite_store)
    write(sqlite_store, 3, head)
    sqlite_store.many("delete from audit_log where seq = ?", [(5,)])

    with pytest.raises(HistoryGap, match="1 rows of the audit log were removed before they were archived"):
        archive.run(sqlite_store)

    assert archive.run(sqlite_store, accept_gaps=True).missing == 1
    assert seqs(archive) == [1, 2, 3, 4, 6]
    assert [fault.why for fault in archive.verify().faults] == ["row 5: the rows from 5 to 5 are missing"]


def test_a_store_whose_audit_log_is_behind_the_lake_is_refused(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    write(sqlite_store, 5)
    archive.run(sqlite_store)
    sqlite_store.many("update audit_head set seq = ?", [(4,)])
    with pytest.raises(ArchiveRefused, match="up to row 5, and the store only to 4"):
        archive.run(sqlite_store)
    sqlite_store.many("delete from audit_log where seq > ?", [(3,)])
    write(sqlite_store, 4, AuditHead(3, "of another past"))  # restored, and grown beyond the lake
    with pytest.raises(ArchiveRefused, match="another message or act than the lake under row 5 of the audit log"):
        archive.run(sqlite_store)


def test_a_store_from_before_the_audit_log_is_archived(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 3)
    sqlite_store.many("drop table audit_log", [()])
    assert archive.run(sqlite_store).history == 3


async def test_the_server_removes_what_the_lake_has_and_no_more(
    sqlite_store: SqliteUnderTest, archive: Archive
) -> None:
    store = SqliteStore(sqlite_store.path, clock=StoppedClock(MADE_MS))
    await store.start()
    try:
        await store.append_audit([AuditEntry("eve", "::1", "stop", f"g{number}") for number in range(3)])
        archive.run(sqlite_store)
        await store.append_audit([AuditEntry("eve", "::1", "stop", "late")])
        await store.purge(LATE_MS, 1000)
        assert [row.target for row in await store.audit_chain(0, 10)] == ["late"]
        assert archive.run(sqlite_store).audit_rows == 1
        await store.purge(LATE_MS, 1000)
        assert await store.audit_chain(0, 10) == []
        await store.append_audit([AuditEntry("eve", "::1", "stop", "later")])
    finally:
        await store.stop()
    archive.run(sqlite_store)
    assert seqs(archive) == [1, 2, 3, 4, 5]
    assert archive.verify().faults == ()


def test_the_first_run_begins_where_cleaning_has_ended(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    write(sqlite_store, 9)
    sqlite_store.many("update audit_head set anchor_seq = 4", [()])
    sqlite_store.many("delete from audit_log where seq <= 4", [()])
    done = archive.run(sqlite_store)
    assert (done.audit_rows, done.missing, archive.verify().faults) == (5, 0, ())


def test_a_view_has_the_rows_of_lake_and_store(spark: SparkSession, store: StoreUnderTest, archive: Archive) -> None:
    head = write(store, 5)
    archive.run(store, on(spark))
    store.many("delete from audit_log where seq <= ?", [(2,)])
    write(store, 2, head)
    wanted = "select seq, target from audit_log order by seq"
    assert query(spark, wanted, archive, store) == [(seq, f"g{seq - 1}") for seq in range(1, 8)]
    assert query(spark, "select count(*) from audit_log", archive, None) == [(5,)]
    assert query(spark, "select count(*) from audit_log", None, store) == [(5,)]


def test_a_lake_that_is_given_up_leaves_no_mark(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    write(sqlite_store, 2)
    archive.run(sqlite_store)
    assert _mark(sqlite_store.path) == 2
    marks.detach(marks.store_at(sqlite_store.url))
    assert _mark(sqlite_store.path) is None


def _mark(path: Path) -> int | None:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("select value from store_meta where name = 'audit_archived_through'").fetchone()
    return None if found is None else int(found[0])
