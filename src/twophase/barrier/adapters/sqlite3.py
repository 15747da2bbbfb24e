"""Transactions on a connection of Python's own `sqlite3`.

Threads, or with aiosqlite tasks, may share a connection, which has one transaction at a time. A transaction ends only
what it began: another one may stand in its place.
"""

from __future__ import annotations

import contextlib
import sqlite3
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from twophase.barrier.adapters.sqlite_settings import SqliteSettings
from twophase.barrier.dialect import SQLITE
from twophase.barrier.transaction import Row, Statement, Steps, perform
from twophase.core.errors import AutocommitRefused, OpenTransaction, TransactionLost

_BEGIN = SQLITE.sql("begin")
_under_way: Final = WeakValueDictionary[int, "Sqlite3Transaction"]()
"""The transaction that began last on a connection, by the connection's id.

SQLite names no transaction, and a savepoint's name is the same in all of them. A connection takes no weak reference,
but its transaction keeps it alive.
"""


def peek_identity(connection: sqlite3.Connection, table: str) -> str | None:
    """Read the identity of a barrier table outside a transaction.

    So it takes no lock that others wait for. It returns None when it finds none, or cannot read now.
    """
    factory, connection.text_factory = connection.text_factory, str  # as `_fetch`, without another call
    try:
        cursor = connection.cursor()
        cursor.row_factory = None
        rows = cursor.execute(SQLITE.sql("read_identity", table)).fetchall()
    except sqlite3.Error:
        return None
    finally:
        connection.text_factory = factory
    return str(rows[0][0]) if rows and rows[0][0] else None


def _fetch(connection: sqlite3.Connection, cursor: sqlite3.Cursor, sql: str) -> list[Row]:
    """Return the rows of a statement, with texts as `str`.

    The application's `text_factory` belongs to the connection, so it is put back. Its converters (`detect_types`)
    belong to declared columns, so the statements return casts.
    """
    factory, connection.text_factory = connection.text_factory, str
    try:
        return cursor.execute(sql).fetchall()
    finally:
        connection.text_factory = factory


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
        self._cursor = connection.cursor()
        self._cursor.row_factory = None  # the application's factory may turn a row into anything
        self._rows = partial(_fetch, connection, self._cursor)
        self._settings = SqliteSettings(self._rows)
        self._is_open = False
        try:
            self._settings.prepare(lock_timeout_ms)
            self._rows(_BEGIN)
        except BaseException as error:
            # A signal's handler raises behind a BEGIN that has waited for the lock, and got it.
            self._is_open = not isinstance(error, sqlite3.Error)
            self.close()
            raise
        former = _under_way.get(id(connection))
        if former is not None:
            former._is_open = False  # noqa: SLF001 -- of this class; another task or thread may have ended it
        _under_way[id(connection)] = self
        self._is_open = True

    def execute(self, statement: Statement) -> list[Row]:
        if not self._is_open:
            raise TransactionLost
        connection = self._connection
        factory, connection.text_factory = connection.text_factory, str  # as `_fetch`, without another call
        try:
            return self._cursor.execute(statement.sql, statement.parameters).fetchall()
        finally:
            connection.text_factory = factory

    def commit(self, last: Steps[None] | None = None) -> None:
        if not self._is_open:
            raise TransactionLost
        if last is not None:
            perform(last, self)
        self._connection.execute("commit")
        self._is_open = False

    def rollback(self) -> None:
        if self._is_open and self._connection.in_transaction:
            try:
                self._connection.rollback()
            except sqlite3.Error:  # as after `interrupt`, while a statement of the application's is under way
                self._connection.close()
        self._is_open = False

    def close(self) -> None:
        if self._is_open:  # an unclear commit, such as SQLITE_BUSY: no transaction may stay open
            self.rollback()
        with contextlib.suppress(sqlite3.Error):  # inside another one the stronger setting stays; or it is closed
            self._settings.restore()
            self._cursor.close()
