"""The business databases as an outsider reads them.

A driver's own connection in autocommit reads them, without twophase.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from pymysql.connections import Connection

from tests.servers.database import Database
from twophase.barrier.asking import CheckBackAnswer, check_back
from twophase.barrier.installing import install

CREATE = "create table account (id varchar(8) primary key, balance integer not null)"
RESET = (
    "delete from barrier",
    "delete from account",
    "insert into account values ('A', 100), ('B', 0)",
)
TRANSFER = "update account set balance = balance - 30 where id = 'A'"
WRONG_STATEMENT = "insert into account values ('A', 0)"


class Ledger:
    """One database with two accounts and a barrier."""

    kind: str

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.run(CREATE)
        self._install()
        self.reset()

    def reset(self) -> None:
        """Restore the state with which every test begins."""
        for statement in RESET:
            self.run(statement)

    def run(self, statement: str) -> list[Any]:
        """Run one statement, committed at once, and return its rows."""
        cursor = self._connection.cursor()
        cursor.execute(statement)
        rows = list(cursor.fetchall()) if cursor.description else []
        cursor.close()
        return rows

    def balance(self, account: str = "A") -> int:
        """Return the committed balance."""
        (row,) = self.run(f"select balance from account where id = '{account}'")
        return int(row[0])

    def barrier(self) -> list[tuple[str, str]]:
        """Return gid and reason of every barrier row."""
        return [(row[0], row[1]) for row in self.run("select gid, reason from barrier")]

    def check_back(self, gid: str) -> CheckBackAnswer:
        """Return the answer that this database's check-back route would give now.

        Any thread may ask.
        """
        with contextlib.closing(self._open()) as connection:
            return check_back(connection, gid)

    def _install(self) -> None:
        with contextlib.closing(self._open()) as connection:
            install(connection)

    def _open(self) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Close the outsider's connection."""
        self._connection.close()


class SqliteLedger(Ledger):
    """A SQLite file."""

    kind = "sqlite"

    def __init__(self, directory: Path) -> None:
        self.path = directory / "bank.db"
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("pragma journal_mode = wal")
        super().__init__(connection)

    def _open(self) -> Any:
        return sqlite3.connect(self.path)


class PostgresLedger(Ledger):
    """A real server's database."""

    kind = "postgresql"

    def __init__(self, database: Database) -> None:
        self.database = database
        super().__init__(psycopg.connect(database.dsn, autocommit=True))

    def _open(self) -> Any:
        return psycopg.connect(self.database.dsn)

    def terminate_others(self) -> None:
        """End every other session of this database.

        An administrator or a failover may do so.
        """
        self.run(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )


class MariadbLedger(Ledger):
    """A real server's database."""

    kind = "mysql"

    def __init__(self, database: Database) -> None:
        self.database = database
        super().__init__(mariadb_connection(database, autocommit=True))
        self.run("set session innodb_lock_wait_timeout = 10")

    def _open(self) -> Any:
        return mariadb_connection(self.database)


def mariadb_connection(database: Database, *, port: int | None = None, autocommit: bool = False) -> Connection[Any]:
    """Open PyMySQL's connection, perhaps through a proxy's port."""
    return pymysql.connect(
        host=database.host,
        port=port or database.port,
        user=database.user,
        password=database.password,
        database=database.name,
        autocommit=autocommit,
        ssl_disabled=True,  # otherwise it reads this machine's certificates for every connection
    )
