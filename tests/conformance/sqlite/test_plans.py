"""Every statement is served by the index that its file names.

The tables have 50 000 rows and more.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.items import SetClock, abort, failed_call, flush, prepare
from twophase.stores.batch import Batch, Park
from twophase.stores.sqlite import SqliteStore, statements
from twophase.stores.sqlite.connection import open_writer
from twophase.stores.sqlite.statements import RowsStatement

TABLES = {"message", "history", "attempt", "node", "store_meta", "audit_log", "audit_head", "queue_entry"}
ROWS, A_BATCH = 50_000, 10_000
WALL_S_MAX = 20
"""Bound on a start: far more than a busy machine adds to it.

It is less than an fsync for each of its rows takes.
"""

HOT = {
    statements.INSERT: {"history_gid", "message"},
    statements.BORN: {"message"},
    statements.DECIDE: {"message"},
    statements.DECIDE_EARLY: {"message"},
    statements.RESCHEDULE: {"message"},
    statements.PARK: {"message"},
    statements.REDIRECT: {"message"},
    statements.FINISH: {"message"},
    statements.ATTEMPT: set[str](),
    statements.TAKEN: {"message", "history_gid"},
    statements.UNMATCHED: {"message"},
    statements.COMPLETE: {"message"},
    statements.QUEUE_APPEND: set[str](),
    statements.QUEUE_REPORT: set[str](),
    statements.FORGET_HISTORY: {"history"},
    statements.FORGET_ATTEMPTS: {"attempt"},
}
SINGLE = {
    "fence": {"node"},
    "slot": {"node", "store_meta"},
    "nodes": {"node"},
    "correct_seq": {"node"},
    "take_slot": set[str](),
    "bump_epoch": {"node"},
    "get": {"message", "history_gid"},
    "due": {"message", "message_due"},
    "attempts": {"attempt_gid"},
    "horizon": {"store_meta"},
    "note_takeover": set(),
    "raise_horizon": {"store_meta"},
    "oldest_history": {"history", "queue_entry_gid"},
    "queue_advance": set[str](),
    "queue_next": {"queue_counter"},
    "queue_define": set[str](),
    "queue_page": {"entry", "message", "history_gid"},
    "queue_entries": {"entry", "message", "history_gid"},
    "queue_ends": {"queue_counter"},
    "queue_place": {"queue_entry_gid"},
    "queue_progress": {"queue_progress"},
    "queue_forget": {"queue_entry"},
    "queue_old": {"queue_entry", "reader", "own"},
    "queue_first": {"queue_entry"},
    "queue_weights": {"entry", "message", "history_gid"},
    "queue_keys": {"queue_entry"},
    "queue_redefine": {"queue_definition"},
    "queue_undefine": {"queue_definition"},
    "queue_horizon": set[str](),
    "oldest_attempts": {"attempt", "attempt_gid", "message"},
    "later": {"message", "message_due"},
    "search_live": {"message"},
    "search_live_floor": {"message"},
    "search_live_sizes": {"message"},
    "search_history": {"history"},
    "search_history_floor": {"history"},
    "search_history_sizes": {"history"},
    "topics": {"store_meta"},
    "bump_topics": {"store_meta"},
    "put_topic": set[str](),
    "remove_topic": {"topic"},
    "tokens": {"store_meta"},
    "bump_tokens": {"store_meta"},
    "put_token": set[str](),
    "remove_token": {"token_seen"},
    "audit_append": set[str](),
    "audit_advance": {"audit_head"},
    "audit_anchor": {"audit_head", "audit_log"},
    "audit_forget": {"audit_log"},
    "audit_oldest": {"audit_log"},
    "audit_head": {"audit_head"},
    "audit_chain": {"audit_log"},
    "audit_search": {"audit_log"},
}


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """A file with 50 000 rows in each table."""
    path = tmp_path_factory.mktemp("seeded") / "store.db"
    connection = _seed(path)
    yield connection
    connection.close()


def _seed(path: Path) -> sqlite3.Connection:
    import asyncio

    async def fill() -> None:
        store = SqliteStore(path, clock=SetClock())
        await store.start()
        for start in range(0, ROWS, A_BATCH):
            old = [f"old{number:06}" for number in range(start, start + A_BATCH)]
            new = [prepare(f"new{number:06}", due_in_ms=number % 977) for number in range(start, start + A_BATCH)]
            await store.flush(Batch([prepare(gid) for gid in old], [failed_call(gid) for gid in old]))
            await store.flush(Batch([*new, *(abort(gid) for gid in old)], []))
            await store.flush(Batch([Park(new[0].gid, 1, parked=True, due_ms=0)], []))
        await store.stop()

    asyncio.run(fill())
    return open_writer(path)


def _plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    parameters = [None] * max([sql.count("?"), *(int(number) for number in re.findall(r"\?(\d)", sql))])
    for count in range(len(parameters) + 1):
        try:
            return [row[3] for row in connection.execute("explain query plan " + sql, parameters[:count])]
        except sqlite3.ProgrammingError:
            continue
    raise AssertionError("some number of parameters fits")


def _served(plan: list[str], by: set[str]) -> None:
    used = set()
    for step in plan:
        assert "TEMP B-TREE" not in step, plan
        assert "AUTOMATIC" not in step, plan
        if step.startswith("SCAN"):
            assert step.split()[1] not in TABLES, plan
        if match := re.match(r"SEARCH (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", step):
            used.add(match[1] if match[2] is None or match[2].startswith("sqlite_") else match[2])
    assert by - {"message"} <= used | {"message"}, plan
    assert used <= by, plan


@pytest.mark.parametrize("size", [1, 64, 1024])
@pytest.mark.parametrize("statement", HOT, ids=lambda statement: statement.name)
def test_a_flush_reads_no_table_from_end_to_end(
    seeded: sqlite3.Connection, statement: RowsStatement, size: int
) -> None:
    _served(_plan(seeded, statement.text(size)), HOT[statement])


@pytest.mark.parametrize("name", SINGLE)
def test_every_other_statement_is_served_by_its_index(seeded: sqlite3.Connection, name: str) -> None:
    _served(_plan(seeded, statements.read(name)), SINGLE[name])


def test_a_page_of_due_rows_begins_behind_the_last_one(seeded: sqlite3.Connection) -> None:
    (step,) = _plan(seeded, statements.DUE)

    assert step.endswith("USING INDEX message_due ((due_ms,gid)>(?,?) AND due_ms<?)")


def test_the_overview_reads_two_covering_indexes_and_no_bodies(seeded: sqlite3.Connection) -> None:
    scans = [step for step in _plan(seeded, statements.OVERVIEW) if "message" in step]

    assert [step.split(" USING ")[1] for step in scans] == [
        "COVERING INDEX message_due",
        "COVERING INDEX message_parked",
    ]


def test_the_search_for_undecided_reads_bodies_of_its_page_only(seeded: sqlite3.Connection) -> None:
    steps = [step for step in _plan(seeded, statements.OLDEST_UNDECIDED) if "message" in step]

    assert steps[0] == "SEARCH message USING PRIMARY KEY (gid=?)"
    assert [
        " COVERING INDEX message_due" in step or " COVERING INDEX message_parked" in step for step in steps[1:]
    ] == [
        True,
        True,
    ]


def test_what_waits_of_each_owner_is_one_walk_over_the_live_rows(seeded: sqlite3.Connection) -> None:
    assert _plan(seeded, statements.WAITING_BY_OWNER)[0] == "SCAN message"


def test_every_statement_has_a_plan_test_and_names_its_index() -> None:
    folder = Path(statements.__file__).parent / "sql"
    names = {path.stem for path in folder.glob("*.sql")}

    assert names == {statement.name for statement in HOT} | set(SINGLE) | {
        "overview",
        "oldest_undecided",
        "waiting_by_owner",
        "queue_counters",
        "queue_definitions",
        "queue_ends_of",
        "queue_readers",
        "queue_unread",
        "size",
    }
    assert [path.name for path in folder.glob("*.sql") if "-- Served by:" not in path.read_text()] == []


async def test_a_start_over_100_000_live_rows_takes_less_than_three_seconds(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", clock=SetClock())
    await store.start()
    for start in range(0, 100_000, A_BATCH):
        items = [prepare(f"g{number:06}", body=bytes(300)) for number in range(start, start + A_BATCH)]
        await flush(store, *items)
    await store.stop()

    again = SqliteStore(tmp_path / "store.db", clock=SetClock())
    wall, began = time.monotonic(), time.process_time()  # other processes' use of this machine does not count
    await again.start()
    took, wall_took = time.process_time() - began, time.monotonic() - wall
    assert (await again.overview()).prepared == 100_000
    await again.stop()
    assert took < 3
    assert wall_took < WALL_S_MAX
