"""The planted truth in databases, at any size.

They have the kinds of `scale`, written as a stream. The coordinator, the producer and the consumer bank-c are SQLite
files, the consumer bank-b and its ledger stand in PostgreSQL: both readers of the audit are at work.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from hashlib import md5
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from tests.servers.postgres import PostgresServer
from tests.spark.cases import Case
from tests.spark.plant import System, body_of, entries_of, horizon_of, make_system, plant_queue
from tests.spark.scale import DELIVERED, times_of
from tests.spark.truth import LATE_S, nowadays
from tests.support.secret_files import secret_in
from twophase.barrier.installing import install
from twophase.core.lifecycle import State
from twophase_spark.inputs.plan import Plan, plan_of
from twophase_spark.locations import Role
from twophase_spark.rules.taxonomy import VIOLATIONS
from twophase_spark.schemas import BRANCHES_UNKNOWN

_VIOLATIONS = frozenset(flag.value for flag in VIOLATIONS)
_LIVE = (State.PREPARED, State.SUBMITTED)
_BARRIER = "barrier (trans_type, gid, branch_id, op, barrier_id, reason, prepared_at, body)"
_MOVES_WITH_THE_CLOCK = "submitted_at_the_bound"
Row = tuple[Any, ...]


class Planted(msgspec.Struct, frozen=True):
    """The databases and what stands in them.

    `locations`: as the command takes them; `expected`: messages by class; `violations`: messages that are broken.
    """

    locations: dict[Role, tuple[str, ...]]
    messages: int
    violations: int
    expected: Counter[str]

    @property
    def arguments(self) -> list[str]:
        """Return the command's arguments."""
        given = [f"--{role.value}={text}" for role, texts in self.locations.items() for text in texts]
        return [*given, f"--late={LATE_S:g}"]

    @property
    def plan(self) -> Plan:
        """Return the plan of an audit."""
        return plan_of({"late": LATE_S}, self.locations, None, cores=2)


def plant(folder: Path, server: PostgresServer, messages: int) -> Planted:
    """Make the databases of `messages` messages."""
    kinds = _kinds(messages)
    system = make_system(folder)
    _plant_store(system, kinds)
    with closing(sqlite3.connect(system.bank_a)) as connection, connection:
        connection.executemany(
            f"insert into {_BARRIER} values ('msg', ?, '00', 'msg', '01', ?, ?, ?)", _verdicts(kinds)
        )
    install(f"sqlite:///{folder / 'c.db'}")
    with closing(sqlite3.connect(folder / "c.db")) as connection, connection:
        effects = f"insert into {_BARRIER} values ('msg', ?, ?, 'action', '01', 'action', null, null)"
        connection.executemany(effects, _effects(kinds, "bank-c"))
    name = f"bank_b_{messages}"
    database = server.create_database(name)
    install(database.sqlalchemy_url("psycopg"))
    with psycopg.connect(database.dsn) as bank:
        _copy(
            bank,
            "barrier (trans_type, gid, branch_id, op, barrier_id, reason)",
            (("msg", gid, branch, "action", "01", "action") for gid, branch in _effects(kinds, "bank-b")),
        )
        bank.execute("create table ledger (id bigserial primary key, gid text, branch_id text, amount bigint)")
        _copy(
            bank,
            "ledger (gid, branch_id, amount)",
            ((gid, branch, 30) for case, gid in _each(kinds) for branch in case.ledger),
        )
        bank.commit()
        bank.autocommit = True
        bank.execute("vacuum analyze")
    bank_b = secret_in(folder / "bank-b-url", database.dsn)
    locations = {
        Role.COORDINATOR: (f"sqlite:///{system.coordinator}",),
        Role.PRODUCER: (f"bank-a=sqlite:///{system.bank_a}",),
        Role.CONSUMER: (f"bank-b={bank_b}", f"bank-c=sqlite:///{folder / 'c.db'}"),
        Role.LEDGER: (f"bank-b={bank_b}#ledger?gid=gid&branch=branch_id&key=id",),
    }
    expected: Counter[str] = Counter()
    for case, times in kinds:
        expected.update(dict.fromkeys(case.flags, times))
    broken = sum(times for case, times in kinds if _VIOLATIONS.intersection(case.flags))
    return Planted(locations, messages, broken, expected)


def _kinds(count: int) -> list[tuple[Case, int]]:
    """Return the kinds as of today, with their numbers.

    The kind whose class changes while it is read is left out.
    """
    kinds = [(case, times) for case, times in times_of(count) if case.gid not in {_MOVES_WITH_THE_CLOCK, DELIVERED.gid}]
    rest = count - sum(times for _, times in kinds)
    kinds.append((DELIVERED, rest))
    cases = nowadays([case for case, _ in kinds])
    return [(case, times) for case, (_, times) in zip(cases, kinds, strict=True)]


def _each(kinds: Iterable[tuple[Case, int]]) -> Iterator[tuple[Case, str]]:
    """Yield kind and gid of every message, in the order of no index."""
    number = 0
    for case, times in kinds:
        for _ in range(times):
            number += 1
            yield case, f"tp01{md5(str(number).encode(), usedforsecurity=False).hexdigest()[:24]}"


def _plant_store(system: System, kinds: list[tuple[Case, int]]) -> None:
    history = "insert into history values (1, ?, ?, ?, ?, ?, ?, ?, '', 0, 1, ?, null)"
    live = "insert into message values (?, ?, 1, 1, 1, 0, ?, ?, ?, 0, ?, 0, ?, null)"
    with closing(sqlite3.connect(system.coordinator)) as connection, connection:
        connection.executemany(live, _live(kinds))
        connection.executemany(history, _final(kinds))
        entries = [entry for case, gid in _each(kinds) for entry in entries_of(case, gid)]
        plant_queue(connection.executemany, entries, horizon_of(case for case, _ in kinds))
        connection.execute("insert into node select 1, 1, '', max(seq), 0, 0 from history")


def _live(kinds: list[tuple[Case, int]]) -> Iterator[Row]:
    for case, gid in _each(kinds):
        if case.state in _LIVE:
            assert case.state is not None
            by = "" if case.state is State.PREPARED else case.decided_by
            times = (case.created_ms, case.created_ms + 10)
            yield (gid, int(case.state), *times, by, int(case.parked), _body(case, gid))


def _final(kinds: list[tuple[Case, int]]) -> Iterator[Row]:
    seq = 0
    for case, gid in _each(kinds):
        if case.state is not None and case.state not in _LIVE:
            seq += 1
            times = (case.created_ms, case.created_ms + 10, case.created_ms + 20)
            yield (seq, gid, int(case.state), *times, case.decided_by, _body(case, gid))


def _body(case: Case, gid: str) -> bytes:
    return body_of(msgspec.structs.replace(case, gid=gid))


def _verdicts(kinds: list[tuple[Case, int]]) -> Iterator[Row]:
    for case, gid in _each(kinds):
        if case.producer == BRANCHES_UNKNOWN:
            yield (gid, "msg", case.prepared_ms, b"")
        elif case.producer is not None:
            yield (gid, case.producer, case.prepared_ms, None)


def _effects(kinds: list[tuple[Case, int]], service: str) -> Iterator[tuple[str, str]]:
    for case, gid in _each(kinds):
        for name, branch in case.barriers:
            if name == service:
                yield gid, branch


def _copy(connection: psycopg.Connection[Any], table: str, rows: Iterable[Row]) -> None:
    with connection.cursor().copy(f"copy {table} from stdin".encode()) as copy:
        for row in rows:
            copy.write_row(row)
