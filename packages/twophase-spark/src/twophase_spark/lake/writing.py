"""The few writes of an archive into a coordinator's store, of either engine.

They are made one transaction at a time. On SQLite this connection never checkpoints: that is the server's work, because
two that do so at one instant may damage the file before SQLite 3.51.3 (https://sqlite.org/wal.html#walresetbug).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from twophase.core.errors import ConfigurationError
from twophase_spark.locations import Location
from twophase_spark.readers.database import BUSY_SECONDS_MAX, CONNECT_SECONDS_MAX, reported

Row = Sequence[object]


class Transaction(Protocol):
    """An open transaction. Parameters stand as `?`."""

    def rows(self, statement: str, parameters: Row = ()) -> list[Sequence[Any]]:
        """Run a statement; return its rows, an empty list for one without rows."""
        ...

    def many(self, statement: str, rows: Sequence[Row]) -> int:
        """Run a statement for each row; return how many rows of the table it changed."""
        ...


def statement(name: str) -> str:
    """Return the statement in `sql/NAME.sql`, without its comment.

    A question mark in a comment is no parameter.
    """
    lines = (files("twophase_spark.lake") / "sql" / f"{name}.sql").read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


@contextlib.contextmanager
def changing(location: Location) -> Iterator[Transaction]:
    """Open a transaction that writes, and commit it at the end of the block.

    Raises:
        CannotRead: no such store, or it cannot be written to.
    """
    if location.engine not in _OPEN:
        raise ConfigurationError(f"A coordinator's store is SQLite or PostgreSQL, not {location.engine}.")
    with reported(location), _OPEN[location.engine](location) as transaction:
        yield transaction


class _Sqlite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, parameters: Row = ()) -> list[Sequence[Any]]:
        return self._connection.execute(statement, parameters).fetchall()

    def many(self, statement: str, rows: Sequence[Row]) -> int:
        return self._connection.executemany(statement, rows).rowcount if rows else 0


@contextlib.contextmanager
def _sqlite(location: Location) -> Iterator[Transaction]:
    path = quote(str(Path(location.path)))
    with contextlib.closing(
        sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_SECONDS_MAX)
    ) as connection:
        connection.execute("pragma synchronous = full")
        connection.execute("pragma wal_autocheckpoint = 0")
        connection.execute("begin immediate")
        yield _Sqlite(connection)
        connection.execute("commit")


class _Postgresql:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, statement: str, parameters: Row = ()) -> list[Sequence[Any]]:
        cursor = self._connection.execute(_command(statement), parameters)
        return list(cursor) if cursor.description else []

    def many(self, statement: str, rows: Sequence[Row]) -> int:
        with self._connection.cursor() as cursor:
            cursor.executemany(_command(statement), rows)
            changed: int = cursor.rowcount if rows else 0
            return changed


def _command(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


@contextlib.contextmanager
def _postgresql(location: Location) -> Iterator[Transaction]:
    import psycopg  # noqa: PLC0415 -- only who archives PostgreSQL needs its driver

    with psycopg.connect(location.url, connect_timeout=CONNECT_SECONDS_MAX) as connection:
        yield _Postgresql(connection)


_OPEN = {"sqlite": _sqlite, "postgresql": _postgresql}
