"""Transactions on a Django database alias.

The transaction is Django's own outermost `atomic`, so that `on_commit` hooks, nested `atomic` blocks and Django's
memory of failed statements work as everywhere else.
"""

from __future__ import annotations

from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error

from twophase.barrier.adapters.django_elsewhere import Elsewhere
from twophase.barrier.adapters.sqlite_settings import SqliteSettings
from twophase.barrier.dialect import SQLITE, Dialect, dialect_named
from twophase.barrier.placeholders import pyformat
from twophase.barrier.transaction import Row, Statement, Steps, perform
from twophase.core.errors import OpenTransaction, TransactionLost, UnsupportedEngine

OUTERMOST: Final = (
    "Make the block the outermost transaction of its alias: put `@transaction.non_atomic_requests` on a view under "
    "ATOMIC_REQUESTS, and open no `atomic` around the block"
)


def _is_alias(name: str) -> bool:
    """Return True when Django's settings name the database.

    Without settings no database has a name.
    """
    try:
        return name in connections
    except ImproperlyConfigured:
        return False


def _dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    dialect = dialect_named(connection.vendor)
    if dialect is None:
        raise UnsupportedEngine(f"There is no barrier for {connection.vendor!r}.")
    return dialect


def _execute(connection: BaseDatabaseWrapper, statement: Statement) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(pyformat(statement.sql), statement.parameters)
        return list(cursor.fetchall()) if cursor.description else []


class DjangoTransaction:
    """One outermost `atomic` block on an alias's connection of this thread."""

    def __init__(self, alias: str, lock_timeout_ms: int | None = None) -> None:
        """Open it.

        Raises:
            OpenTransaction: inside `atomic`, under ATOMIC_REQUESTS, or with autocommit switched off by hand.
            UnsupportedEngine: the alias is unknown, or is neither SQLite, PostgreSQL nor MySQL.
        """
        if not _is_alias(alias):
            raise UnsupportedEngine(
                f"There is no Django database alias {alias!r}.", remedy="Give the name of one in DATABASES."
            )
        connection: BaseDatabaseWrapper = connections[alias]
        dialect = _dialect_of(connection)
        if connection.in_atomic_block:
            raise OpenTransaction(
                remedy=f"{OUTERMOST}; in a test that rolls everything back, twophase.testing.outer_transaction."
            )
        if not connection.get_autocommit():
            raise OpenTransaction(remedy="Switch autocommit on again, in DATABASES or with `set_autocommit(True)`.")
        self.dialect = dialect
        self.handle: Any = connection
        self._connection = connection
        self._settings = SqliteSettings(lambda sql: self.execute(Statement(sql, {})))
        self._unclear = False
        self._entered = False
        self._atomic = transaction.atomic(using=alias, durable=True)
        self._elsewhere = Elsewhere(connection)
        try:
            if dialect is SQLITE:
                self._settings.prepare(lock_timeout_ms)
            self._atomic.__enter__()
            self._entered = True
        except BaseException:
            self.rollback()
            self.close()
            raise

    def execute(self, statement: Statement) -> list[Row]:
        return _execute(self._connection, statement)

    def commit(self, last: Steps[None] | None = None) -> None:
        if last is not None:
            self._look(last)
        # Leaving `atomic` would roll back without an error.
        if self._connection.needs_rollback:
            raise TransactionLost
        self._elsewhere.release()  # `on_commit` hooks may write anywhere
        self._unclear = True
        self._entered = False
        self._atomic.__exit__(None, None, None)
        self._unclear = False

    def _look(self, last: Steps[None]) -> None:
        # The application's `execute_wrapper` would run behind this statement, and could spoil the transaction.
        wrappers, self._connection.execute_wrappers = self._connection.execute_wrappers, []
        try:
            perform(last, self)
        finally:
            self._connection.execute_wrappers = wrappers

    def rollback(self) -> None:
        self._elsewhere.release()
        if not self._entered:
            return
        self._entered = False
        self._connection.needs_rollback = True
        try:
            self._atomic.__exit__(None, None, None)
        except Error:
            self._unclear = True

    def close(self) -> None:
        self._elsewhere.release()
        if not self._unclear:
            try:
                self._settings.restore()
                if "restore" in self.dialect.statements:
                    self.execute(Statement(self.dialect.sql("restore"), {}))
            except Error:
                self._unclear = True
        if self._unclear:
            self._connection.close()


class BorrowedConnection:
    """A connection in a transaction that its owner ends, as a migration's."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        """Borrow it; raises UnsupportedEngine."""
        self.dialect = _dialect_of(connection)
        self._connection = connection

    def execute(self, statement: Statement) -> list[Row]:
        return _execute(self._connection, statement)
