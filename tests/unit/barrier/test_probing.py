"""The route's answer to a probe.

The answer names each state of the database by a code, and never repeats a text of the database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import NoReturn

import pytest

from twophase.barrier.installing import install
from twophase.barrier.probing import probe
from twophase.core.errors import DatabaseIsReplica, UnsafeDatabase
from twophase.core.probe import ProbeState

WITHOUT_A_KEY = """
alter table barrier rename to complete;
create table barrier as select * from complete;
"""


@pytest.fixture
def bank() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        install(connection)
        yield connection


def identity_of(bank: sqlite3.Connection) -> str:
    [(identity,)] = bank.execute("select value from twophase_meta where name = 'identity'")
    return str(identity)


def test_a_database_that_is_ready_tells_its_clock_and_the_routes_bound(bank: sqlite3.Connection) -> None:
    report = probe(bank, identity_of(bank), "barrier", 700)
    assert (report.probe, report.message, report.lock_timeout_ms) == (ProbeState.READY, "", 700)
    assert report.now_ms > 10**12


def test_another_database_is_reported_without_its_name(bank: sqlite3.Connection) -> None:
    report = probe(bank, "another", "barrier", 700)
    assert report.probe is ProbeState.WRONG_DATABASE
    assert identity_of(bank) not in report.message


@pytest.mark.parametrize("damage", ["drop table barrier", "delete from twophase_meta", WITHOUT_A_KEY])
def test_a_barrier_that_cannot_keep_the_promises_is_reported(bank: sqlite3.Connection, damage: str) -> None:
    identity = identity_of(bank)
    bank.executescript(damage)
    report = probe(bank, identity, "barrier", 700)
    assert (report.probe, "twophase barrier install" in report.remedy) == (ProbeState.NO_BARRIER, True)


def test_a_database_that_may_forget_is_reported(bank: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> NoReturn:
        raise UnsafeDatabase("fsync = off.")

    monkeypatch.setattr("twophase.barrier.probing.require_durability", refused)
    assert probe(bank, None, "barrier", 700).probe is ProbeState.UNSAFE_DATABASE


def test_a_replica_is_reported_as_another_database(bank: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise DatabaseIsReplica("This database must not decide: it is a standby.")

    monkeypatch.setattr("twophase.barrier.probing.read_identity", refused)
    report = probe(bank, None, "barrier", 700)
    assert (report.probe, "standby" in report.message) == (ProbeState.WRONG_DATABASE, True)


def test_a_database_that_fails_is_reported_by_its_code_alone(bank: sqlite3.Connection) -> None:
    bank.close()
    report = probe(bank, None, "barrier", 700)
    assert (report.probe, report.message) == (ProbeState.DATABASE_FAILED, "the database failed (ProgrammingError)")


REFUSED = "create trigger full before insert on barrier begin select raise(abort, 'disk full'); end"


def test_a_barrier_that_takes_no_row_is_reported(bank: sqlite3.Connection) -> None:
    bank.execute(REFUSED)
    report = probe(bank, None, "barrier", 700)
    assert (report.probe, report.message) == (ProbeState.DATABASE_FAILED, "the database failed (SQLite error 1811)")


def test_a_probe_leaves_no_row(bank: sqlite3.Connection) -> None:
    assert probe(bank, None, "barrier", 700).probe is ProbeState.READY
    assert bank.execute("select count(*) from barrier").fetchall() == [(0,)]
