"""A task reads its range by an index, not the whole table once a task.

SQLite gives the plans of the very statements.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from tests.spark.source import reads
from tests.spark.source.stores import SqliteUnderTest, fail, finish, gid_of, live
from twophase.barrier.installing import install
from twophase.core.audit_log import AuditEntry, AuditHead, chained
from twophase_spark.source.options.choosing import schema_of, target_of
from twophase_spark.source.options.read_options import parse
from twophase_spark.source.partitions.parts import Part, Range
from twophase_spark.source.partitions.reading import Reader

MANY = 120
NUMBERS = "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
BEHIND = "history USING INDEX sqlite_autoindex_history_1 (node=? AND seq>?)"
SEQS = BEHIND.replace("seq>?", "seq>? AND seq<?")
GIDS_OF_MESSAGES = {"message USING PRIMARY KEY (gid<?)", "message USING PRIMARY KEY (gid>?)"}
GIDS = [gid_of(2, number) for number in range(MANY)]
AUDIT_LOG = f"insert into audit_log values ({', '.join('?' * 12)})"
BARRIER = (
    "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason) values ('msg', ?, '01', 'a', '1', 'a')"
)


@pytest.fixture
def full(sqlite_store: SqliteUnderTest) -> SqliteUnderTest:
    """A store and a bank in one file, each table large enough to be cut."""
    finish(sqlite_store, 1, 1, MANY)
    live(sqlite_store, GIDS)
    fail(sqlite_store, GIDS)
    acts = chained(AuditHead(), 5, 1, [AuditEntry("eve", "", "stop", gid) for gid in GIDS])
    sqlite_store.many(AUDIT_LOG, [msgspec.structs.astuple(act) for act in acts])
    install(sqlite_store.url)
    sqlite_store.many(BARRIER, [(gid,) for gid in GIDS])
    sqlite_store.many("create table booking (number integer, gid text, branch_id text)", [()])
    sqlite_store.many("create index booking_number on booking (number)", [()])
    sqlite_store.many("insert into booking values (?, ?, '01')", enumerate(GIDS))
    return sqlite_store


def statements(parts: list[Part], reader: Reader) -> Iterator[str]:
    """Yield the statements that the tasks run."""
    for part in parts:
        yield from (reader.statement(one) for one in part.ranges)
        if part.follow is not None:
            yield reader.statement(Range("history", ("node = 1", "seq > 7", *part.follow.conditions)))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("options", "served"),
    [
        ({"table": "history"}, {SEQS}),
        ({"table": "message"}, GIDS_OF_MESSAGES),
        ({"table": "journal"}, {SEQS, BEHIND, *GIDS_OF_MESSAGES}),
        ({"table": "attempt"}, {f"attempt USING {NUMBERS}"}),
        ({"table": "audit_log"}, {f"audit_log USING {NUMBERS}"}),
        ({"table": "barrier"}, {f"barrier USING {NUMBERS}"}),
        ({"table": "ledger", "tableName": "booking"}, {f"booking USING {NUMBERS}"}),
        (
            {"table": "ledger", "tableName": "booking", "keyColumn": "number"},
            {"booking USING INDEX booking_number (number>? AND number<?)"},
        ),
    ],
)
def test_an_index_serves_every_range(full: SqliteUnderTest, options: dict[str, Any], served: set[str]) -> None:
    options = {**options, "url": full.url, "partitions": "3"}
    wanted = parse(options)
    _, parts = reads.planned(**options)
    assert len(parts) > 1
    reader = Reader(wanted, target_of(wanted, schema_of(wanted)), "sqlite")

    with closing(sqlite3.connect(full.path)) as connection:
        found = {row[3] for one in statements(parts, reader) for row in connection.execute(f"explain query plan {one}")}

    assert found == {f"SEARCH {step}" for step in served}
