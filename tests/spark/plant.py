"""Databases with messages planted in them, made with the real schemas.

The schemas are those of the coordinator's store and of the barrier.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from tests.spark.cases import BRANCH, IDENTITY, QUEUED, Case
from twophase.barrier.installing import install
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message, encode
from twophase.core.options import Options
from twophase.core.redirect import Redirection, redirect
from twophase.stores.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION, schema
from twophase_spark.schemas import BRANCHES_UNKNOWN

LEDGER = "create table ledger (id integer primary key, gid text, branch_id text, account text, amount integer)"
_MESSAGE = "insert into message values (?, ?, 1, 1, 1, 0, ?, ?, ?, 0, ?, 0, ?, null)"
_HISTORY = "insert into history values (1, ?, ?, ?, ?, ?, ?, ?, '', 0, 1, ?, null)"
_BARRIER = "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason, prepared_at) values "


class System(msgspec.Struct, frozen=True):
    """The files of a coordinator and its two banks."""

    folder: Path

    @property
    def coordinator(self) -> Path:
        return self.folder / "tp.db"

    @property
    def bank_a(self) -> Path:
        return self.folder / "a.db"

    @property
    def bank_b(self) -> Path:
        return self.folder / "b.db"

    @property
    def arguments(self) -> list[str]:
        """Return the command's arguments."""
        return [
            f"--coordinator=sqlite:///{self.coordinator}",
            f"--producer=bank-a=sqlite:///{self.bank_a}",
            f"--consumer=bank-b=sqlite:///{self.bank_b}",
            f"--ledger=bank-b=sqlite:///{self.bank_b}#ledger?gid=gid&branch=branch_id",
        ]

    def execute(self, file: Path, sql: str, *parameters: object) -> None:
        """Change one of the databases."""
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(sql, parameters)


def make_system(folder: Path) -> System:
    """Make empty databases."""
    system = System(folder)
    with closing(sqlite3.connect(system.coordinator)) as connection:
        connection.executescript(schema())
        connection.execute("pragma journal_mode = wal")
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute(f"pragma user_version = {SCHEMA_VERSION}")
    for bank in (system.bank_a, system.bank_b):
        install(f"sqlite:///{bank}")
    system.execute(system.bank_a, "update twophase_meta set value = ? where name = 'identity'", IDENTITY)
    system.execute(system.bank_b, LEDGER)
    return system


def plant(system: System, cases: list[Case]) -> None:
    """Write each side's rows about these messages."""
    with closing(sqlite3.connect(system.coordinator)) as connection, connection:
        [(last,)] = connection.execute("select coalesce(max(seq), 0) from history")
        for seq, case in enumerate((case for case in cases if case.state is not None), last + 1):
            _plant_message(connection, seq, case)
        [(first,)] = connection.execute("select coalesce(max(next_number), 0) from queue_counter")
        entries = [entry for case in cases for entry in entries_of(case, case.gid)]
        plant_queue(connection.executemany, entries, horizon_of(cases), first=first)
    with closing(sqlite3.connect(system.bank_a)) as connection, connection:
        rows = [(case.gid, case.producer, case.prepared_ms) for case in cases if case.producer is not None]
        connection.executemany(_BARRIER + "('msg', ?, '00', 'msg', '01', ?, ?)", rows)
        connection.execute("update barrier set reason = 'msg', body = x'' where reason = ?", (BRANCHES_UNKNOWN,))
    with closing(sqlite3.connect(system.bank_b)) as connection, connection:
        effects = [(case.gid, branch) for case in cases for _, branch in case.barriers]
        connection.executemany(_BARRIER + "('msg', ?, ?, 'action', '01', 'action', null)", effects)
        booked = [(case.gid, branch) for case in cases for branch in case.ledger]
        connection.executemany("insert into ledger (gid, branch_id, account, amount) values (?, ?, 'B', 30)", booked)


def _plant_message(connection: sqlite3.Connection, seq: int, case: Case) -> None:
    if case.state is None:
        return
    body = body_of(case)
    created, decided = case.created_ms, case.created_ms + 10
    decided_by = "" if case.state is State.PREPARED else case.decided_by
    known: tuple[Any, ...]
    if case.state in {State.PREPARED, State.SUBMITTED}:
        known = (case.gid, int(case.state), created, decided, decided_by, int(case.parked), body)
        connection.execute(_MESSAGE, known)
    else:
        known = (seq, case.gid, int(case.state), created, decided, decided + 10, decided_by, body)
        connection.execute(_HISTORY, known)


def entries_of(case: Case, gid: str) -> list[tuple[str, int, int]]:
    """Return (gid, branch, stored_ms) of a case's entries."""
    return [(gid, branch, case.created_ms + 10) for branch in case.entries]


def horizon_of(cases: Iterable[Case]) -> int:
    """Return the time before which entries are cleaned; 0 for none."""
    return max((case.created_ms + 11 for case in cases if case.entries_cleaned), default=0)


def plant_queue(
    executemany: Any, entries: Sequence[tuple[str, int, int]], horizon_ms: int, sign: str = "?", first: int = 0
) -> None:
    """Write one queue, and its end.

    The index that refuses an entry twice goes where one is.
    """
    if len({entry[:2] for entry in entries}) < len(entries):
        executemany("drop index queue_entry_gid", [()])
        executemany("create index queue_entry_gid on queue_entry (gid, branch)", [()])
    rows = [("orders", 0, first + place, *entry) for place, entry in enumerate(entries)]
    signs = ", ".join([sign] * 6)
    if rows:
        executemany(f"insert into queue_entry (topic, queue, number, gid, branch, stored_ms) values ({signs})", rows)
    executemany("delete from queue_counter where queue = 0", [()])
    counter = f"insert into queue_counter (topic, queue, next_number) values ('orders', 0, {sign})"
    executemany(counter, [(first + len(rows),)])
    if horizon_ms:
        executemany("delete from store_meta where name = 'queue_horizon_ms'", [()])
        executemany(f"insert into store_meta (name, value) values ('queue_horizon_ms', {sign})", [(horizon_ms,)])


def body_of(case: Case) -> bytes:
    """Return the stored form of a case's message."""
    if case.checked is None:
        return b"\xc1 no message"
    check_url = "http://bank-a/check" if case.checked else ""
    if case.identity is not None:
        check_url += f"?barrier={case.identity}"
    first, *others = (url for _, url in case.branches)
    called = Branch(case.sent_to or first, b"{}", ("",) if case.by_dtm else None)
    branches = (called, *(Branch(url, b"{}") for url in others))
    message = Message(case.gid, branches, check_url, Options(delay_ms=case.delay_ms))
    if case.sent_to:
        message, _ = redirect(message, 0, Redirection(first, "01"))
    return encode(message)


def one_service(case: Case) -> bool:
    """Return True when a case fits a system whose only consumer is bank-b."""
    services = {service for service, _ in case.barriers} | {"bank-c" for _, url in case.branches if "bank-c" in url}
    return "bank-c" not in services and case.branches[0] in {
        BRANCH,
        ("01", "topic://rates"),
        QUEUED,
    }
