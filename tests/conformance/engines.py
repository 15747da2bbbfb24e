"""The engines against which the suite runs.

A new one appends itself to `ENGINES`; nothing else changes.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psycopg
from psycopg import sql

from tests.servers.database import Address, Database
from tests.servers.plugin import RUN_VARIABLE
from twophase.core.hooks import Clock
from twophase.stores.base import Store
from twophase.stores.postgres import PostgresStore
from twophase.stores.sqlite import SqliteStore

TAKEN_OVER_SQL = "select max(value) from store_meta where name = 'taken_over_ms'"


class Engine(Protocol):
    """The suite's needs of an engine beyond the store itself."""

    name: str
    server: str
    """The fixture that starts what the engine needs; empty for nothing."""

    def make(self, folder: Path, clock: Clock) -> Store:
        """Return a store, not started; two made for one folder share their data."""
        ...

    def usurp(self, folder: Path) -> None:
        """Take the node slot of the running node.

        A process that believes the node dead would do so.
        """
        ...

    def bury(self, folder: Path) -> None:
        """Free the node slot of a process that was killed.

        Other nodes do this when its lease is over.
        """
        ...

    def finished(self, folder: Path, after_seq: int) -> list[tuple[int, str]]:
        """Return history after `after_seq`, (seq, gid) in order.

        The reader follows history, and has a connection of its own.
        """
        ...

    def archived(self, folder: Path, until_ms: int, audit_through: int | None = None) -> None:
        """Write how far an archive has history and the audit log, where `purge` reads it.

        It stands in `store_meta`.
        """
        ...

    def taken_over_ms(self, folder: Path) -> int | None:
        """Return the noted time of the last takeover, as an audit reads it."""
        ...


class SqliteEngine:
    """The embedded engine."""

    name = "sqlite"
    server = ""

    def make(self, folder: Path, clock: Clock) -> Store:
        return SqliteStore(folder / "store.db", clock=clock)

    def usurp(self, folder: Path) -> None:
        connection = sqlite3.connect(folder / "store.db")
        with connection:
            connection.execute("update node set epoch = epoch + 1, owner = 'another'")
        connection.close()

    def bury(self, folder: Path) -> None:
        assert folder, "the lock on the file has ended with the process"

    def finished(self, folder: Path, after_seq: int) -> list[tuple[int, str]]:
        connection = sqlite3.connect(f"file:{folder / 'store.db'}?mode=ro", uri=True)
        try:
            return connection.execute(
                "select seq, gid from history where node = 1 and seq > ? order by seq", (after_seq,)
            ).fetchall()
        finally:
            connection.close()

    def archived(self, folder: Path, until_ms: int, audit_through: int | None = None) -> None:
        connection = sqlite3.connect(folder / "store.db")
        with connection:
            connection.executemany(
                "insert into store_meta (name, value) values (?, ?)", _marks(until_ms, audit_through)
            )
        connection.close()

    def taken_over_ms(self, folder: Path) -> int | None:
        connection = sqlite3.connect(f"file:{folder / 'store.db'}?mode=ro", uri=True)
        try:
            value: int | None = connection.execute(TAKEN_OVER_SQL).fetchone()[0]
            return value
        finally:
            connection.close()


class PostgresEngine:
    """The shared engine: a schema for each folder, on the run's server."""

    name = "postgres"
    server = "postgres_server"

    def make(self, folder: Path, clock: Clock) -> Store:
        with self.connect(folder) as connection:
            connection.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(_schema(folder))))
        return PostgresStore(self.url(folder), clock=clock)

    def usurp(self, folder: Path) -> None:
        with self.connect(folder) as connection:
            connection.execute("update node set epoch = epoch + 1, fence = fence + 1, owner = 'another'")

    def bury(self, folder: Path) -> None:
        with self.connect(folder) as connection:
            connection.execute("update node set epoch = epoch + 1, fence = fence + 1, owner = ''")

    def finished(self, folder: Path, after_seq: int) -> list[tuple[int, str]]:
        with self.connect(folder) as connection:
            return connection.execute(
                "select seq, gid from history where node = 1 and seq > %s order by seq", (after_seq,)
            ).fetchall()

    def archived(self, folder: Path, until_ms: int, audit_through: int | None = None) -> None:
        with self.connect(folder) as connection:
            for mark in _marks(until_ms, audit_through):
                connection.execute("insert into store_meta (name, value) values (%s, %s)", mark)

    def taken_over_ms(self, folder: Path) -> int | None:
        with self.connect(folder) as connection:
            found = connection.execute(TAKEN_OVER_SQL).fetchone()
            assert found is not None
            return found[0] if isinstance(found[0], int) else None

    def connect(self, folder: Path) -> psycopg.Connection[Any]:
        """Open a connection of the test's own.

        It has no transaction around every statement.
        """
        return psycopg.connect(self.url(folder), autocommit=True)

    def url(self, folder: Path) -> str:
        """Return the store's URL.

        The processes that a test starts find the run's server by its environment.
        """
        address = (Path(os.environ[RUN_VARIABLE]) / "postgresql.address").read_bytes()
        server = msgspec.json.decode(address, type=Address)
        return f"{Database(server, server.own_database).dsn}?options=-csearch_path%3D{_schema(folder)}"


def _marks(until_ms: int, audit_through: int | None) -> list[tuple[str, int]]:
    marks = {"archived_until_ms": until_ms, "audit_archived_through": audit_through}
    return [(name, value) for name, value in marks.items() if value is not None]


def _schema(folder: Path) -> str:
    return "t" + hashlib.sha256(str(folder).encode()).hexdigest()[:24]


ENGINES: tuple[Engine, ...] = (SqliteEngine(), PostgresEngine())
