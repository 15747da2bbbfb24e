"""Transactions on a connection of Python's own `sqlite3`."""

from __future__ import annotations

import sqlite3
from typing import Any

from twophase.barrier.adapters.sqlite_settings import SqliteSettings
from twophase.barrier.dialect import SQLITE
from twophase.barrier.transaction import Row, Statement, Steps, perform
from twophase.core.errors import AutocommitRefused, OpenTransaction


class Sqlite3Transaction:
    """One transaction on an idle connection.

    The connection is in the module's default mode (`isolation_level=""`).
    """

    dialect = SQLITE

    def __init__(self, connection: sqlite3.Connection, lock_timeout_ms: int | None = None) -> None:
        """Open it, taking the write lock.

        Raises:
            AutocommitRefused: `isolation_level=None`, or from Python 3.12 on `autocommit=True`.
            OpenTransaction: a transaction is open; with `autocommit=False` (Python 3.12) one always is.
        """
        if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
            raise AutocommitRefused
        if connection.in_transaction:
            raise OpenTransaction
        self.handle: Any = connection
        self._connection = connection
        self._settings = SqliteSettings(self._rows)
        try:
            self._settings.prepare(lock_timeout_ms)
            self._rows(SQLITE.sql("begin"))
        except BaseException:
            self._settings.restore()
            raise

    def _rows(self, sql: str, parameters: dict[str, Any] | None = None) -> list[Row]:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # the application's factory may turn a row into anything
        try:
            return cursor.execute(sql, parameters or {}).fetchall()
        finally:
            cursor.close()

    def execute(self, statement: Statement) -> list[Row]:
        return self._rows(statement.sql, statement.parameters)

    def commit(self, last: Steps[None] | None = None) -> None:
        if last is not None:
            perform(last, self)
        self._connection.execute("commit")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.rollback()

    def close(self) -> None:
        if self._connection.in_transaction:  # an unclear commit, such as SQLITE_BUSY: no transaction may stay open
            self._connection.rollback()
        self._settings.restore()
