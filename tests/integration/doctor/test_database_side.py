"""`twophase doctor --database` finds each planted fault of a real database.

Each finding has a remedy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
import sqlalchemy

from tests.integration.barrier.conftest import empty_bank
from tests.servers.database import Address
from tests.servers.pgbouncer import PgBouncer
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.support.business_databases import SYNC_DRIVERS, Bank
from twophase.barrier import install
from twophase.cli.doctor.clocks import compared
from twophase.cli.doctor.database_side import Database
from twophase.cli.findings import Finding, Level
from twophase.core.errors import UnsafeDatabase


def findings(url: str, table: str = "barrier") -> dict[str, Finding]:
    """Return the findings about a database, by the subject of each."""
    return {finding.what: finding for finding in Database(url, table).examine()}


def of(bank: Bank, table: str = "barrier") -> dict[str, Finding]:
    return findings(bank.url(SYNC_DRIVERS[bank.kind]), table)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database of this test's own, with a barrier."""
    path = tmp_path / "own.db"
    install(f"sqlite:///{path}")
    return path


def test_a_sound_database_has_nothing_to_mend_and_is_left_as_it_was(bank: Bank) -> None:
    before = bank.query("select * from barrier"), bank.query("select * from twophase_meta")
    found = of(bank)
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert {"database", "transactions", "durability", "barrier"} <= set(found)
    assert (bank.query("select * from barrier"), bank.query("select * from twophase_meta")) == before


def test_a_missing_barrier_is_found(bank: Bank) -> None:
    finding = of(bank, "absent")["barrier"]
    assert (finding.level, finding.found[:7]) == (Level.BAD, "TP-6001")
    assert "twophase barrier install" in finding.remedy


def test_a_barrier_of_another_sdk_without_our_columns_is_found(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("alter table barrier drop column token")
    assert findings(f"sqlite:///{file}")["barrier"].level is Level.BAD


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        pytest.param("mysql", "alter table barrier engine = Aria", marks=pytest.mark.mariadb, id="no transactions"),
        pytest.param("postgresql", "alter table barrier set unlogged", marks=pytest.mark.postgres, id="unlogged"),
        pytest.param(
            "postgresql",
            "alter table barrier drop constraint uniq_barrier",
            marks=pytest.mark.postgres,
            id="no unique key",
        ),
    ],
)
def test_a_barrier_that_cannot_keep_the_promises_is_found(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, damage: str
) -> None:
    for bank in empty_bank(request, kind, tmp_path):
        with bank.engine() as engine:
            install(engine)
        bank.query(damage)
        finding = of(bank)["barrier"]
        assert (finding.level, finding.found[:7]) == (Level.BAD, "TP-6006")
        assert "twophase barrier install" in finding.remedy


def test_a_database_that_confirms_before_the_disk_is_found(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the report is planted: no server is made to confirm early for one test."""

    def refused(*_: object) -> NoReturn:
        raise UnsafeDatabase("PostgreSQL runs with fsync = off.")

    monkeypatch.setattr("twophase.cli.doctor.database_side.require_durability", refused)
    finding = findings(f"sqlite:///{file}")["durability"]
    assert (finding.level, finding.found) == (Level.BAD, "TP-6003: PostgreSQL runs with fsync = off.")


@pytest.mark.mariadb
def test_a_url_that_commits_every_statement_is_found(banks: dict[str, Bank]) -> None:
    finding = findings(f"{banks['mysql'].url('pymysql')}&autocommit=true")["transactions"]
    assert (finding.level, finding.found[:7]) == (Level.BAD, "TP-5006")


@pytest.mark.postgres
def test_a_database_that_takes_no_writes_is_found(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    for bank in empty_bank(request, "postgresql", tmp_path):
        with bank.engine() as engine:
            install(engine)
        name = sqlalchemy.make_url(bank.url("psycopg")).database
        bank.query(f"alter database {name} set default_transaction_read_only = on")
        assert of(bank)["writes"].level is Level.BAD


@pytest.mark.postgres
def test_a_role_without_rights_at_the_barrier_is_told_to_get_them(postgres_bank: Bank) -> None:
    url = sqlalchemy.make_url(postgres_bank.url("psycopg"))
    role = f"{url.database}_reader"
    postgres_bank.query(f"create role {role} login password 'secret'")
    try:
        own = url.set(username=role, password="secret").render_as_string(hide_password=False)
        finding = findings(own)["barrier"]
    finally:
        postgres_bank.query(f"drop role {role}")
    assert (finding.level, "permission denied" in finding.found) == (Level.BAD, True)
    assert "grant the role" in finding.remedy


@pytest.fixture(scope="module")
def pooled(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """A pool in transaction mode."""
    with running(PgBouncer(postgres_server, {"default_pool_size": "2"})) as one:
        yield one


@pytest.mark.postgres
def test_a_pool_that_shares_sessions_is_found(postgres_bank: Bank, pooled: PgBouncer) -> None:
    name = sqlalchemy.make_url(postgres_bank.url("psycopg")).database
    assert name is not None
    found = findings(pooled.database(name).dsn)
    assert (found["pooling"].level, found["barrier"].level) == (Level.WARNING, Level.OK)
    assert "prepare_threshold" in found["pooling"].remedy


@pytest.mark.postgres
def test_a_pool_that_takes_turns_is_found(postgres_bank: Bank, postgres_server: PostgresServer) -> None:
    name = sqlalchemy.make_url(postgres_bank.url("psycopg")).database
    assert name is not None
    with running(PgBouncer(postgres_server, {"default_pool_size": "2", "server_round_robin": "1"})) as pool:
        found = [findings(pool.database(name).dsn)["pooling"].level for _ in range(3)]
    assert found == [Level.WARNING] * 3


@pytest.mark.postgres
def test_a_pool_of_whole_sessions_is_no_fault(postgres_bank: Bank, postgres_server: PostgresServer) -> None:
    name = sqlalchemy.make_url(postgres_bank.url("psycopg")).database
    assert name is not None
    with running(PgBouncer(postgres_server, {"pool_mode": "session"})) as pool:
        assert findings(pool.database(name).dsn)["pooling"].level is Level.OK


class OfStatements(PgBouncer):
    """A pool in statement mode, which refuses every transaction."""

    def try_connection(self, address: Address) -> bool:
        url = f"postgresql://{address.user}:{address.password}@{address.host}:{address.port}/{address.own_database}"
        try:
            psycopg.connect(url, autocommit=True).close()
        except psycopg.Error:
            return False
        return True


@pytest.mark.postgres
def test_a_pool_that_takes_no_transactions_is_found(postgres_bank: Bank, postgres_server: PostgresServer) -> None:
    name = sqlalchemy.make_url(postgres_bank.url("psycopg")).database
    assert name is not None
    with running(OfStatements(postgres_server, {"pool_mode": "statement"})) as pool:
        [finding] = Database(pool.database(name).dsn, "barrier").examine()
    assert (finding.level, finding.what) == (Level.BAD, "transactions")
    assert "the pool behind it" in finding.remedy


def test_a_database_whose_write_lock_is_held_is_reported(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase.cli.doctor.database_side.LOCK_TIMEOUT_MS", 50)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("begin immediate")
        assert findings(f"sqlite:///{file}")["transactions"].level is Level.WARNING


def test_an_unreachable_database_is_found_and_its_password_is_not_shown() -> None:
    [finding] = Database("postgresql://me:very-secret@127.0.0.1:1/bank", "barrier").examine()
    assert (finding.level, finding.what) == (Level.BAD, "database")
    assert "127.0.0.1:1" in finding.found
    assert "very-secret" not in str(finding)


def test_a_sqlite_file_that_is_not_there_is_found_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    assert findings(f"sqlite:///{path}")["database"].level is Level.BAD
    assert not path.exists()


@pytest.mark.parametrize(
    ("apart_ms", "level"),
    [(0, Level.OK), (-9_000, Level.OK), (20_000, Level.WARNING), (-300_000, Level.BAD), (300_000, Level.BAD)],
)
def test_clocks_that_lie_apart_are_found(apart_ms: int, level: Level) -> None:
    assert compared("its", 10**12 + apart_ms, "this machine's", 10**12).level is level
