"""Queues in an audit, over stores that wrote and cleaned them themselves."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.servers.database import Database
from tests.support.items import SetClock, prepare
from twophase.core.audit_log import AuditEntry
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message, encode
from twophase.stores.base import Store
from twophase.stores.batch import Batch, Complete, Decide, Insert, Item
from twophase.stores.postgres import PostgresStore
from twophase.stores.queue_rows import Append, Progress
from twophase.stores.sqlite import SqliteStore
from twophase_spark.auditing.run import look_into, run
from twophase_spark.inputs.increment import VerifiedPoint, read_state
from twophase_spark.inputs.plan import Plan
from twophase_spark.inputs.queues import Queue, queues_of, summed
from twophase_spark.locations import parse_coordinator
from twophase_spark.readers import rows
from twophase_spark.readers.probe import Source, probe
from twophase_spark.readers.rows import read_gids, read_slice
from twophase_spark.reports.report import Report, Verdict

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ORDERS = (Append("orders", 0, 0),)
QUEUE = Queue("coordinator", "orders", 0, first=4, end=9, entries=5, done={})


class Stored:
    """A store of one engine, which a coordinator's own code changes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = SetClock()

    @property
    def plan(self) -> Plan:
        return Plan((parse_coordinator(self.url),), grace_s=0)

    def source(self) -> Source:
        return probe(parse_coordinator(self.url), 2)

    def use(self, change: Callable[[Store], Any]) -> Any:
        async def changed() -> Any:
            store = self._store()
            await store.start()
            try:
                return await change(store)
            finally:
                await store.stop()

        return asyncio.run(changed())

    def put(self, *gids: str) -> None:
        """Send a message for each gid to the queue."""
        self.use(lambda store: store.flush(sent(gids)))

    def done(self, group: str, number: int) -> None:
        """Write that a group has done all below a number."""

        async def report(store: Store) -> None:
            term = await store.own_topic("orders")
            assert term is not None
            await store.flush(Batch([], [], progress=[Progress(group, "orders", 0, number, b"", term)]))

        self.use(report)

    def clean(self) -> int:
        """Remove every entry that no group needs."""
        self.clock.time_ms += 10_000
        removed: int = self.use(lambda store: store.purge_queues(self.clock.time_ms - 1, 100))
        return removed

    def execute(self, sql: str) -> None:
        """Damage the store."""
        if self.url.startswith("sqlite:"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection, connection:
                connection.execute(sql)
        else:
            with psycopg.connect(self.url) as server:
                server.execute(sql.encode())

    def _store(self) -> Store:
        if self.url.startswith("sqlite:"):
            return SqliteStore(self.url.removeprefix("sqlite:///"), clock=self.clock)
        return PostgresStore(self.url, clock=self.clock)


def sent(gids: Sequence[str]) -> Batch:
    """Return a flush of a message for each gid, which goes to the queue."""
    items: list[Item] = [Complete(gid, 1, body_of(gid)) for gid in gids]
    return Batch(items, [], {}, dict.fromkeys(range(len(items)), ORDERS))


def body_of(gid: str, *urls: str) -> bytes:
    """Return a stored message of a queue, or with these addresses."""
    return encode(Message(gid, tuple(Branch(url, b"{}") for url in urls or (f"queue://orders?id={gid}",))))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    """A store of each engine."""
    if request.param == "sqlite":
        return Stored(f"sqlite:///{tmp_path / 'tp.db'}")
    database: Database = request.getfixturevalue("postgres_database")
    return Stored(database.dsn)


def audited(spark: SparkSession, stored: Stored, state: Path | None = None) -> Report:
    plan = msgspec.structs.replace(stored.plan, state=state)
    return run(spark, plan, look_into(plan))


def flags_of(report: Report) -> dict[str, tuple[str, ...]]:
    return {one.gid: one.flags for one in report.result.samples}


def faults_of(report: Report) -> list[str]:
    return [fault for one in report.queues.shown for fault in one.faults]


def rows_in(batches: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_what_a_coordinator_sends_delivers_and_cleans_breaks_no_promise(spark: SparkSession, stored: Stored) -> None:
    """An entry that was cleaned is not lost; the next one is checked again."""
    stored.put("a", "b", "c")
    stored.use(lambda store: store.flush(Batch([prepare("half", body=body_of("half"))], [])))
    stored.done("billing", 2)
    before = audited(spark, stored)
    assert stored.clean() == 2
    stored.put("d")

    after = audited(spark, stored)

    assert (before.verdict, flags_of(before)) == (Verdict.CLEAN, {"half": ("late",)})
    assert (before.queues.queues, before.queues.entries, before.queues.broken) == (1, 3, 0)
    assert (after.verdict, faults_of(after)) == (Verdict.CLEAN, [])
    assert after.result.unknown == {"queue's entry cleaned": 2}

    stored.execute("delete from queue_entry where gid = 'd'")
    assert flags_of(audited(spark, stored))["d"] == ("lost",)


def test_entries_and_their_messages_that_are_damaged_are_found(spark: SparkSession, stored: Stored) -> None:
    """A message with other branches, too, is appended when it is decided."""
    stored.put(*"abcdef")
    urls = ("http://b/in", "queue://orders?id=7")
    items: list[Item] = [prepare(gid, body=body_of(gid, *urls)) for gid in ("appended", "forgotten")]
    stored.use(lambda store: store.flush(Batch(items, [])))
    decided = Decide("appended", 1, 0, decided_by="submit")
    appends: dict[int, tuple[Append, ...]] = {0: (Append("orders", 0, 1),)}
    stored.use(lambda store: store.flush(Batch([decided], [], {}, appends)))
    stored.execute("update message set state = 3, decided_ms = created_ms where gid = 'forgotten'")
    # One of a queue alone waits for its time, and what is no address of a queue is never appended.
    waiting: list[Item] = [
        Insert("delayed", State.SUBMITTED, 60_000, body_of("delayed")),
        Insert("nowhere", State.SUBMITTED, 0, body_of("nowhere", "http://b/in", "queue://no name")),
    ]
    stored.use(lambda store: store.flush(Batch(waiting, [])))
    stored.execute("delete from queue_entry where gid = 'b'")
    stored.execute("delete from history where gid = 'c'")
    stored.execute("update history set state = 5, decided_by = 'abort' where gid = 'd'")
    stored.execute("drop index queue_entry_gid")
    stored.execute("update queue_entry set gid = 'e' where gid = 'f'")

    report = audited(spark, stored)

    assert report.verdict is Verdict.VIOLATIONS
    assert flags_of(report) == {
        "b": ("lost",), "c": ("ghost",), "d": ("ghost",), "e": ("duplicate_effect",), "f": ("lost",),
        "appended": ("late",), "forgotten": ("lost", "late"), "delayed": ("late",), "nowhere": ("late",),
    }  # fmt: skip
    assert faults_of(report) == ["1 lost from 0 to 6"]
    assert report.sentence == "1 queue breaks a promise, and 6 of 10 messages."


def test_groups_behind_the_oldest_entry_or_before_the_next_are_found(spark: SparkSession, stored: Stored) -> None:
    stored.put("a", "b", "c")
    stored.done("billing", 2)
    stored.done("stock", 3)
    assert stored.clean() == 2
    assert queues_of([stored.source()]).broken == 0

    stored.done("billing", 1)
    stored.done("stock", 5)
    report = audited(spark, stored)

    assert report.verdict is Verdict.VIOLATIONS
    assert faults_of(report) == [
        "1 to 1 cleaned before group billing had done them",
        "group stock has done 3 to 4, which never were",
    ]


def test_a_topic_that_an_operator_removes_is_not_broken_meanwhile(stored: Stored) -> None:
    """Its entries go step by step, and what groups have done of it goes last."""
    stored.clock.time_ms = time.time_ns() // 1_000_000
    stored.put("a", "b", "c")
    stored.done("billing", 1)

    async def empty(store: Store) -> None:
        await store.append_audit([AuditEntry("eve", "::1", "empty-topic", "orders", "", "", "")])
        await store.empty_queue("orders", 0, 3, 2)

    stored.use(empty)
    assert queues_of([stored.source()]).broken == 0

    stored.execute("update audit_log set at_ms = at_ms - 3600001")
    [broken] = queues_of([stored.source()]).shown
    assert broken.faults == ("1 to 1 cleaned before group billing had done them",)


@pytest.mark.parametrize(
    ("queue", "faults"),
    [
        (msgspec.structs.replace(QUEUE, done={"billing": 4, "stock": 9}), []),
        (msgspec.structs.replace(QUEUE, first=9, entries=0, done={"billing": 9}), []),
        (
            msgspec.structs.replace(QUEUE, first=9, entries=0, done={"b": 8}),
            ["8 to 8 cleaned before group b had done them"],
        ),
        (msgspec.structs.replace(QUEUE, entries=3), ["2 lost from 4 to 8"]),
        (msgspec.structs.replace(QUEUE, end=8), ["1 too many: the next entry would have number 8"]),
    ],
)
def test_faults_of_a_queue(queue: Queue, faults: list[str]) -> None:
    assert queue.faults == faults


def test_dead_letters_are_counted_apart() -> None:
    dead = msgspec.structs.replace(QUEUE, topic="shop/%DLQ%billing")

    found = summed([QUEUE, dead])

    assert (found.queues, found.entries, found.dead_letters) == (2, 10, 5)


def test_a_run_with_little_new_finds_what_a_whole_one_would(
    spark: SparkSession, stored: Stored, tmp_path: Path
) -> None:
    """It reads new history, and new entries; what it found is carried on."""
    state = tmp_path / "state"
    stored.clock.time_ms = time.time_ns() // 1_000_000
    stored.put("a", "b")
    assert audited(spark, stored, state).verdict is Verdict.CLEAN

    stored.put("c", "d", "e")
    stored.execute("delete from queue_entry where gid = 'c'")
    stored.execute("delete from history where gid = 'd'")
    report = audited(spark, stored, state)

    assert (flags_of(report), report.result.messages) == ({"c": ("lost",), "d": ("ghost",)}, 3)
    point = read_state(state)
    assert isinstance(point, VerifiedPoint)
    assert point.carried == ("c", "d")


@pytest.mark.parametrize("driver", ["adbc", "python"])
def test_both_drivers_read_the_same(stored: Stored, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stored.put("a", "b", "c")
    stored.execute("delete from queue_entry where gid = 'b'")
    stored.execute("delete from history where gid = 'c'")
    monkeypatch.setattr(rows, "has_adbc", lambda _: driver == "adbc")
    source = stored.source()

    found = {row["gid"]: row for part in source.slices for row in rows_in(read_slice(source, part))}

    assert {
        gid: (row["state"], row["queued"], row["entries"], row["entries_cleaned"]) for gid, row in found.items()
    } == {
        "a": (State.SUCCEEDED, [0], [0], False),
        "b": (State.SUCCEEDED, [0], [], False),
        "c": (State.ABSENT, None, [0], False),
    }
    assert found == {row["gid"]: row for row in rows_in(read_gids(source, ["a", "b", "c"]))}


def test_a_message_that_commits_beside_a_read_is_whole_in_it(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read sees a message with its entry or neither, in any order of tables."""
    monkeypatch.setattr(rows, "has_adbc", lambda _: False)  # two SQLites in one process undo each other's locks
    stored.put("first")
    source = stored.source()
    reads = threading.Semaphore(0)
    stop = threading.Event()

    def write() -> None:
        async def beside_each_read(store: Store) -> None:
            for number in itertools.count(step=20):
                reads.acquire()
                if stop.is_set():
                    return
                await store.flush(sent([f"g{number + place}" for place in range(20)]))

        stored.use(beside_each_read)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(30):
            for table in ("history", "queue_entry", "message"):
                for part in source.slices:
                    if part.table == table:
                        reads.release()
                        for row in rows_in(read_slice(source, part)):
                            assert (row["state"], row["entries"]) == (State.SUCCEEDED, row["queued"])
            reads.release()
            assert queues_of([source]).broken == 0
    finally:
        stop.set()
        reads.release()
        writer.join(60)


def test_a_store_of_an_older_coordinator_has_no_queues(tmp_path: Path) -> None:
    stored = Stored(f"sqlite:///{tmp_path / 'tp.db'}")
    stored.put("a")
    for table in ("queue_entry", "queue_counter", "queue_progress"):
        stored.execute(f"drop table {table}")

    source = stored.source()

    [row] = [row for part in source.slices for row in rows_in(read_slice(source, part))]
    assert (row["entries"], row["entries_cleaned"]) == ([], True)
    assert queues_of([source]).queues == 0
