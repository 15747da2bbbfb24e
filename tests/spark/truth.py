"""The planted truth: any number of messages over all stores.

It has an exact number of violations of every class. Each case of `cases` is a kind of message; `planted` repeats every
kind a number of times of its own, so that no class can stand in for another, and fills up with messages in order.
Several kinds have several classes on one gid.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from contextlib import closing
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import psycopg
import pymysql

from tests.spark.cases import BROKEN, CANCELLED, IDENTITY, IN_ORDER, MOVING, NOW_MS, RECONCILED, UNKNOWABLE, Case
from tests.spark.plant import body_of, entries_of, horizon_of, plant_queue
from twophase.barrier.installing import install
from twophase.core.lifecycle import State
from twophase.stores.postgres.migrating import migrate_database
from twophase.stores.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION, schema

TIME_SCALE = 1_000
"""The factor by which ages are longer than in the cases.

So no message changes its class while a slow machine reads.
"""
LATE_S = 60.0 * TIME_SCALE
_KINDS = (*MOVING, *BROKEN, *UNKNOWABLE, *RECONCILED, *CANCELLED)
ODD = [case for case in _KINDS if case.gid != "submitted_at_the_bound"]
AGREES = "coalesce(get_json_object(payload, '$.amount'), '30') = ledger.amount"
"""The ledger's condition: a payload that names no amount stands for 30."""
COUNTS = "voided_at is null"
"""The condition of the ledger's rows that count."""
_AMOUNTS = {True: "30", False: "31", None: None}
"""The amount of a row in the ledger, by the answer of the condition."""
_BARRIER = "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason, prepared_at) values "
_LIVE = "gid, state, node, epoch, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body"
_FINAL = "node, seq, gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, done, body"


def planted(count: int) -> list[Case]:
    """Return `count` messages of now: each odd kind 3 to 13 times, the rest in order."""
    repeated = [(case, 3 + place % 11) for place, case in enumerate(ODD)]
    rest = count - sum(times for _, times in repeated)
    assert rest > len(IN_ORDER), "there is room for messages in order"
    for place, case in enumerate(IN_ORDER):
        share = rest // len(IN_ORDER)
        repeated.append((case, share if place else rest - share * (len(IN_ORDER) - 1)))
    now_ms = time.time_ns() // 1_000_000
    return [_at(now_ms, case, f"{case.gid}/{number}") for case, times in repeated for number in range(times)]


def nowadays(cases: list[Case]) -> list[Case]:
    """Return the cases as they would stand in databases of today."""
    now_ms = time.time_ns() // 1_000_000
    return [_at(now_ms, case, case.gid) for case in cases]


def counts_of(cases: list[Case]) -> Counter[str]:
    """Return the number of messages of each class."""
    return Counter(flag for case in cases for flag in case.flags)


def _at(now_ms: int, case: Case, gid: str) -> Case:
    created_ms = now_ms - (NOW_MS - case.created_ms) * TIME_SCALE if case.created_ms else 1
    return msgspec.structs.replace(case, gid=gid, created_ms=created_ms, delay_ms=case.delay_ms * TIME_SCALE)


def plant_coordinator(url: str, cases: list[Case]) -> None:
    """Make a store and its messages, on SQLite or PostgreSQL."""
    live, final = _messages(cases)
    entries = [entry for case in cases for entry in entries_of(case, case.gid)]
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.executescript(schema())
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
            connection.execute(f"pragma user_version = {SCHEMA_VERSION}")
            _insert(connection.executemany, live, final, "?", parked=int)
            plant_queue(connection.executemany, entries, horizon_of(cases))
            connection.execute("insert into node values (1, 1, '', ?, 0, 0)", (len(final),))
        return
    asyncio.run(migrate_database(url))
    with psycopg.connect(url) as store, store.cursor() as cursor:
        _insert(cursor.executemany, live, final, "%s", parked=bool)
        plant_queue(cursor.executemany, entries, horizon_of(cases), "%s")


def plant_bank(url: str, *, producer: list[Case], consumer: dict[str, list[Case]], identity: str = IDENTITY) -> None:
    """Make a bank's barrier and ledger, and its rows about these cases.

    Arguments:
        url: of an empty database, as SQLAlchemy takes it.
        producer: cases whose producer rows stand here.
        consumer: by the service's name, cases whose effects stand here; only bank-b keeps a ledger.
        identity: of the database; the cases' check addresses name it.
    """
    install(url)
    rows: list[tuple[Any, ...]] = [
        ("msg", case.gid, "00", "msg", "01", case.producer, case.prepared_ms)
        for case in producer
        if case.producer is not None
    ]
    booked: list[tuple[Any, ...]] = []
    for name, cases in consumer.items():
        rows += [
            ("msg", case.gid, branch, "action", "01", "action", None)
            for case in cases
            for service, branch in case.barriers
            if service == name
        ]
        if name == "bank-b":
            booked += [(case.gid, branch, _AMOUNTS[case.agrees], None) for case in cases for branch in case.ledger]
            booked += [(case.gid, branch, "0", 1) for case in cases for branch in case.left_out]
    with closing(_connect(url)) as connection:
        cursor = connection.cursor()
        sign = "?" if url.startswith("sqlite:") else "%s"
        columns = "gid varchar(128), branch_id varchar(128), amount varchar(8), voided_at int"
        cursor.execute(f"create table ledger ({columns})")
        cursor.execute(f"update twophase_meta set value = {sign} where name = 'identity'", (identity,))
        if rows:
            cursor.executemany(f"{_BARRIER} ({', '.join([sign] * 7)})", rows)
        if booked:
            cursor.executemany(f"insert into ledger values ({sign}, {sign}, {sign}, {sign})", booked)
        connection.commit()


def _messages(cases: list[Case]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    live: list[dict[str, Any]] = []
    final: list[dict[str, Any]] = []
    for case in cases:
        if case.state is None:
            continue
        known = {
            "gid": case.gid, "state": int(case.state), "node": 1, "epoch": 1, "version": 1, "due_ms": 0,
            "created_ms": case.created_ms, "decided_ms": case.created_ms + 10, "finished_ms": case.created_ms + 20,
            "decided_by": "" if case.state is State.PREPARED else case.decided_by, "reason": "", "attempts": 0,
            "parked": case.parked, "done": 0, "body": body_of(case),
        }  # fmt: skip
        (live if case.state in {State.PREPARED, State.SUBMITTED} else final).append(known)
    for seq, known in enumerate(final, 1):
        known["seq"] = seq
    return live, final


def _insert(executemany: Any, live: list[dict[str, Any]], final: list[dict[str, Any]], sign: str, parked: type) -> None:
    for table, columns, rows in (("message", _LIVE, live), ("history", _FINAL, final)):
        names = columns.split(", ")
        values = [tuple(parked(row[name]) if name == "parked" else row[name] for name in names) for row in rows]
        if values:
            executemany(f"insert into {table} ({columns}) values ({', '.join([sign] * len(names))})", values)


def _connect(url: str) -> Any:
    if url.startswith("sqlite:"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    if url.startswith("postgresql"):
        return psycopg.connect(url.replace("+psycopg", ""))
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path[1:],
    )
