"""Rows that the lake has are deleted from the store, and no others.

The store reports what it can no longer answer.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.spark.lake.archiving import (
    ARCHIVING,
    DAY_MS,
    ROWS_PER_TASK,
    Archive,
    StoppedClock,
    StoreAt,
    fail_early,
)
from tests.spark.source import reads
from tests.spark.source.stores import (
    BORN_MS,
    PostgresUnderTest,
    SqliteUnderTest,
    StoreUnderTest,
    add_history,
    finish,
    history_row,
    live,
)
from tests.support.dying_child import exit_code_of
from twophase.core.errors import ArchiveRefused, ConfigurationError, HistoryGap
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.lifecycle import State
from twophase.core.message import Message, encode
from twophase.stores.batch import Batch, Forgotten, Insert
from twophase.stores.postgres.store import PostgresStore
from twophase.stores.sqlite import SqliteStore
from twophase_spark.lake import planning, purging
from twophase_spark.lake.planning import SETTLING_MS
from twophase_spark.lake.purging import Purged, PurgeSettings, _Purge, purge

pytestmark = pytest.mark.spark
HOUR_MS = 3_600_000
NOW_MS = BORN_MS + DAY_MS + SETTLING_MS


@pytest.fixture(autouse=True)
def _one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set PostgreSQL's clock to the time of the planted rows, too."""
    for module in ("planning", "purging"):
        monkeypatch.setattr(f"twophase_spark.lake.{module}.store_now_ms", lambda *_: NOW_MS)


def purged(store: StoreUnderTest | StoreAt, archive: Archive, **settings: Any) -> Purged:
    known: dict[str, Any] = {"clock": StoppedClock(NOW_MS), "older_than_ms": 2 * HOUR_MS, "pause": lambda _: None}
    return purge(store.url, archive.folder, PurgeSettings(**{**known, **settings}))


def rows(store: StoreUnderTest, query: str) -> list[tuple[Any, ...]]:
    if isinstance(store, SqliteUnderTest):
        with closing(sqlite3.connect(store.path)) as connection:
            return connection.execute(query).fetchall()
    assert isinstance(store, PostgresUnderTest)
    with psycopg.connect(store.dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def places(store: StoreUnderTest) -> list[tuple[int, int]]:
    return [(node, seq) for node, seq in rows(store, "select node, seq from history order by node, seq")]


def horizon_ms(store: StoreUnderTest) -> int:
    [(value,)] = rows(store, "select value from store_meta where name = 'history_horizon_ms'")
    return int(value)


def aged(seq: int, *, gid: str = "", later_ms: int = 0) -> tuple[Any, ...]:
    """Return a planted row of node 1 that ended later, or has another gid."""
    node, number, its_gid, state, born, decided, finished, *rest = history_row(1, seq)
    return (node, number, gid or its_gid, state, born, decided, finished + later_ms, *rest)


def test_what_the_lake_has_goes_and_what_is_young_or_live_stays(store: StoreUnderTest, archive: Archive) -> None:
    finish(store, 1, 1, 25)
    finish(store, 2, 1, 3)
    add_history(store, aged(26, later_ms=DAY_MS + SETTLING_MS - 2 * HOUR_MS))  # ended two hours ago, all but 46 ms
    live(store, ["x-1"])
    fail_early(store, ["n1-0000001", "x-1"])
    archive.run(store)
    finish(store, 1, 27, 30)  # not in the lake

    tried = purged(store, archive, dry_run=True)
    assert (tried.history, tried.attempts, len(places(store)), horizon_ms(store)) == (28, 1, 33, 0)
    done = purged(store, archive, rows_per_step=7)

    assert (done.history, done.attempts, done.faults, done.before_ms) == (28, 1, (), NOW_MS - 2 * HOUR_MS)
    assert places(store) == [(1, seq) for seq in range(26, 31)]
    assert rows(store, "select gid from attempt") == [("x-1",)]
    assert horizon_ms(store) == done.before_ms
    assert len(archive.places()) == 29
    assert purged(store, archive).history == 0
    assert archive.run(store).history == 4


def test_a_message_stays_as_long_as_an_entry_of_a_queue_needs_it(store: StoreUnderTest, archive: Archive) -> None:
    finish(store, 1, 1, 3)
    entry = "insert into queue_entry (topic, queue, number, gid, branch, stored_ms) values ('orders', 0, ?, ?, 0, 1)"
    store.many(entry, [(0, "n1-0000002")])
    archive.run(store)

    assert purged(store, archive).history == 2
    assert places(store) == [(1, 2)]

    store.many("delete from queue_entry where number = ?", [(0,)])
    assert purged(store, archive).history == 1


def test_the_store_of_an_older_coordinator_is_purged(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 3)
    with closing(sqlite3.connect(sqlite_store.path)) as connection:
        connection.execute("drop table queue_entry")
    archive.run(sqlite_store)

    assert purged(sqlite_store, archive).history == 3


def test_attempts_are_looked_for_file_by_file(
    store: StoreUnderTest, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver must never hold a whole day of an outage."""
    fail_early(store, [f"o-{number:02}" for number in range(35)], apart_ms=700)
    fail_early(store, ["an-id-out-of-time's-order"])
    archive.run(store)
    seen: list[int] = []
    listed = _Purge._listed

    def counted(self: Any, file: Any, standing: Any) -> Any:
        seen.append(len(standing))
        return listed(self, file, standing)

    monkeypatch.setattr(_Purge, "_listed", counted)

    done = purged(store, archive)

    assert (done.attempts, rows(store, "select gid from attempt")) == (36, [])
    assert max(seen) <= ROWS_PER_TASK
    assert sum(seen) == 36, "each is looked at once"


def test_a_reader_that_was_not_there_yet_is_reported(store: StoreUnderTest, archive: Archive) -> None:
    finish(store, 1, 1, 12)
    archive.run(store)
    reader = reads.stream(url=store.url, columns="node,seq,gid", start="beginning")
    purged(store, archive)

    with pytest.raises(HistoryGap, match="12 rows of history were removed before the stream read them: node 1, seq 1"):
        reads.between(reader, {"1": 0}, {"1": 12})


async def test_a_gid_that_was_purged_gets_no_second_life(store: StoreUnderTest, archive: Archive) -> None:
    gid = make_gid(BORN_MS, bytes(RANDOM_BYTES))
    young = make_gid(NOW_MS - HOUR_MS, bytes(RANDOM_BYTES))
    add_history(store, aged(1, gid=gid))
    archive.run(store)
    assert purged(store, archive).history == 1

    coordinator = SqliteStore(store.path) if isinstance(store, SqliteUnderTest) else _postgres(store)
    await coordinator.start()
    try:
        inserts = [Insert(one, State.PREPARED, 35_000, encode(Message(one, ()))) for one in (gid, young)]
        outcome = await coordinator.flush(Batch(list(inserts), []))
    finally:
        await coordinator.stop()
    assert outcome.refused == {0: Forgotten(NOW_MS - 2 * HOUR_MS)}


def _postgres(store: StoreUnderTest) -> PostgresStore:
    assert isinstance(store, PostgresUnderTest)
    return PostgresStore(store.dsn)


def test_a_gid_that_says_it_was_made_later_stays(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    """Its producer's clock is ahead: no horizon of today would refuse it."""
    add_history(sqlite_store, aged(1, gid=make_gid(NOW_MS + DAY_MS, bytes(RANDOM_BYTES))))
    add_history(sqlite_store, aged(2))
    archive.run(sqlite_store)

    done = purged(sqlite_store, archive)

    assert (done.history, done.early, places(sqlite_store)) == (1, 1, [(1, 1)])


def test_a_message_that_ends_late_goes_when_it_is_old_enough(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    add_history(sqlite_store, aged(1))
    add_history(sqlite_store, aged(2, later_ms=DAY_MS))  # of the same age, ended a day later
    add_history(sqlite_store, aged(3))
    archive.run(sqlite_store)

    assert purged(sqlite_store, archive, older_than_ms=12 * HOUR_MS).history == 2
    assert places(sqlite_store) == [(1, 2)]
    assert purged(sqlite_store, archive, older_than_ms=2 * HOUR_MS, clock=StoppedClock(NOW_MS)).history == 0
    assert archive.run(sqlite_store, clock=StoppedClock(NOW_MS + DAY_MS)).history == 0


def test_rows_of_a_damaged_file_stay(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 25)
    archive.run(sqlite_store)
    files = sorted(archive.folder.glob("history/dt=*/*.parquet"))
    whole = bytearray(files[0].read_bytes())
    whole[len(whole) // 3] ^= 1
    files[0].write_bytes(whole)
    files[2].unlink()

    done = purged(sqlite_store, archive)

    assert [fault.why for fault in done.faults] == ["its bytes are not those that were written", "it is gone"]
    assert places(sqlite_store) == [(1, seq) for seq in (*range(1, 11), *range(21, 26))]


def test_a_store_with_other_messages_under_these_numbers_keeps_them(
    sqlite_store: SqliteUnderTest, archive: Archive
) -> None:
    finish(sqlite_store, 1, 1, 5)
    archive.run(sqlite_store)
    sqlite_store.many("update history set gid = ? where seq = ?", [("another", 3)])

    with pytest.raises(ArchiveRefused, match="other messages than the lake under node 1, seq 3"):
        purged(sqlite_store, archive)
    assert len(places(sqlite_store)) == 5


async def test_a_sqlite_server_at_work_is_left_to_clean_by_itself(
    sqlite_store: SqliteUnderTest, archive: Archive
) -> None:
    finish(sqlite_store, 1, 1, 5)
    archive.run(sqlite_store)
    server = SqliteStore(sqlite_store.path)
    await server.start()
    try:
        assert purged(sqlite_store, archive, dry_run=True).history == 5
        with pytest.raises(ArchiveRefused, match="A server uses"):
            purged(sqlite_store, archive)
    finally:
        await server.stop()
    assert purged(sqlite_store, archive).history == 5


def test_what_cannot_be_purged_is_refused(sqlite_store: SqliteUnderTest, archive: Archive, tmp_path: Path) -> None:
    finish(sqlite_store, 1, 1, 5)
    with pytest.raises(ArchiveRefused, match="is not a lake"):
        purged(sqlite_store, archive)
    archive.run(sqlite_store)
    with pytest.raises(ConfigurationError, match="two hours at least"):
        purged(sqlite_store, archive, older_than_ms=2 * HOUR_MS - 1)
    sqlite_store.many("update store_meta set value = ? where name = 'archive_lake'", [(7,)])
    with pytest.raises(ArchiveRefused, match="archived into another lake"):
        purged(sqlite_store, archive)
    assert len(places(sqlite_store)) == 5


def _purge_until(folder: Path, url: str, point: str) -> None:
    """Purge, and die when the point is reached for the second time."""
    passed: list[str] = []

    def reached(name: str) -> None:
        passed.append(name)
        if passed.count(point) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    for module in (planning, purging):
        setattr(module, "store_now_ms", lambda *_: NOW_MS)  # noqa: B010 -- in a process that is about to end
    purged(StoreAt(url), Archive(folder), rows_per_step=4, reached=reached)


@pytest.mark.crash
@pytest.mark.parametrize("point", ["verified", "removing", "removed"])
def test_a_purge_that_is_killed_is_finished_by_the_next(store: StoreUnderTest, archive: Archive, point: str) -> None:
    finish(store, 1, 1, 30)
    archive.run(store)

    code = exit_code_of(_purge_until, archive.folder, store.url, point, imports=ARCHIVING)

    assert code == -signal.SIGKILL
    left = len(places(store))
    assert 0 < left < 30
    assert horizon_ms(store) == NOW_MS - 2 * HOUR_MS
    done = purged(store, archive)
    assert (done.history, places(store)) == (left, [])
    assert archive.verify().faults == ()
