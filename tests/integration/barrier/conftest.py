"""A clean bank for each test, on each database, through each library."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.business_databases import ASYNC_WAYS, SYNC_WAYS, Bank
from tests.support.patient_locks import patient_locks
from twophase.barrier.installing import install

__all__ = ["patient_locks"]

MARKS = {"sqlite": (), "postgresql": (pytest.mark.postgres,), "mysql": (pytest.mark.mariadb,)}
SERVERS = {"postgresql": "postgres_server", "mysql": "mariadb_server"}


def empty_bank(request: pytest.FixtureRequest, kind: str, folder: Path) -> Iterator[Bank]:
    """A database without any table."""
    name = f"bank_{secrets.token_hex(6)}"
    if kind == "sqlite":
        yield Bank("sqlite", str(folder / f"{name}.db"))
        return
    server = request.getfixturevalue(SERVERS[kind])
    yield Bank(kind, server.create_database(name).dsn.split("://", 1)[1])
    server.drop_database(name)


def _furnish(bank: Bank) -> Bank:
    with bank.plain() as connection:
        install(connection)
    bank.query("create table account (id varchar(8) primary key, balance int not null check (balance >= 0))")
    bank.query("insert into account values ('A', 100)")
    return bank


@pytest.fixture(scope="session")
def furnished_banks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Bank]]:
    """Yield the furnished banks of this run, made when first asked for.

    Creating one takes longer than most tests.
    """
    open_ones: list[Iterator[Bank]] = []

    class Banks(dict[str, Bank]):
        def __missing__(self, kind: str) -> Bank:
            empty = empty_bank(request, kind, tmp_path_factory.mktemp("banks"))
            open_ones.append(empty)
            bank = self[kind] = _furnish(next(empty))
            return bank

    yield Banks()
    for empty in open_ones:
        next(empty, None)


def clean(bank: Bank) -> Bank:
    """Return the bank as it was when it opened.

    One connection does all of it, since making a connection costs more than its work.
    """
    with bank.plain() as connection:
        install(connection)
        with closing(connection.cursor()) as cursor:
            cursor.execute("delete from barrier")
            cursor.execute("delete from twophase_meta where name <> 'identity'")
            cursor.execute("update account set balance = 100")
        connection.commit()
    return bank


@pytest.fixture
def banks(furnished_banks: dict[str, Bank]) -> dict[str, Bank]:
    """Return the banks by kind, each as it was when it opened.

    The changes of other tests are undone.
    """

    class CleanBanks(dict[str, Bank]):
        def __missing__(self, kind: str) -> Bank:
            bank = self[kind] = clean(furnished_banks[kind])
            return bank

    return CleanBanks()


@pytest.fixture(params=[pytest.param(kind, marks=MARKS[kind]) for kind in SYNC_WAYS])
def bank(request: pytest.FixtureRequest, banks: dict[str, Bank]) -> Bank:
    """Each database."""
    return banks[request.param]


def _ways(ways: dict[str, tuple[str, ...]]) -> list[object]:
    return [pytest.param((kind, way), marks=MARKS[kind], id=f"{kind}-{way}") for kind in ways for way in ways[kind]]


@pytest.fixture(params=_ways(SYNC_WAYS))
def bank_and_way(request: pytest.FixtureRequest, banks: dict[str, Bank]) -> tuple[Bank, str]:
    """Each database, through each sync library."""
    kind, way = request.param
    return banks[kind], way


@pytest.fixture(params=_ways(ASYNC_WAYS))
def bank_and_async_way(request: pytest.FixtureRequest, banks: dict[str, Bank]) -> tuple[Bank, str]:
    """Each database, through each async library."""
    kind, way = request.param
    return banks[kind], way


@pytest.fixture
def postgres_bank(banks: dict[str, Bank]) -> Bank:
    """PostgreSQL alone."""
    return banks["postgresql"]


@pytest.fixture
def mysql_bank(banks: dict[str, Bank]) -> Bank:
    """MariaDB alone."""
    return banks["mysql"]


@pytest.fixture
def sqlite_bank(banks: dict[str, Bank]) -> Bank:
    """SQLite alone."""
    return banks["sqlite"]
