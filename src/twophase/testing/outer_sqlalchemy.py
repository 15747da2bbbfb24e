"""Savepoints in a test's transaction on a SQLAlchemy Connection."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from twophase.barrier.adapters.sqlalchemy import ConnectionTransaction, SessionTransaction, dialect_of
from twophase.barrier.adapters.sqlalchemy_async import AsyncSqlAlchemyTransaction
from twophase.barrier.dialect import SQLITE, Dialect
from twophase.barrier.transaction import Row, Statement, Steps, perform
from twophase.core.errors import OpenTransaction
from twophase.testing.turns import Turns, left_out

_GIVE_SESSION = 'Make it as Session(bind=connection, join_transaction_mode="create_savepoint").'


def outer_on(outer: Any) -> SqlAlchemyOuter | None:
    """Return the outer transaction of a Connection or AsyncConnection.

    None for anything else.

    Raises:
        OpenTransaction: no transaction is open on it.
    """
    if isinstance(outer, AsyncConnection) and outer.sync_connection is not None:
        return SqlAlchemyOuter(outer.sync_connection, outer)
    return SqlAlchemyOuter(outer) if isinstance(outer, Connection) else None


class SqlAlchemyOuter:
    """A Connection in a transaction; see `barrier.outer.Outer`."""

    def __init__(self, connection: Connection, host: AsyncConnection | None = None) -> None:
        """Look at it; raises OpenTransaction when it is in no transaction."""
        if not connection.in_transaction():
            raise OpenTransaction(
                "The connection is in no transaction that the test could roll back.",
                remedy="Begin one before: `transaction = connection.begin()`.",
            )
        self.connection = connection
        self._host = host
        self._root = connection.get_transaction()
        self._nested = connection.get_nested_transaction()
        self.turns = Turns()

    def covers(self, engine: Any) -> bool:
        """See `Outer`."""
        if isinstance(engine, Connection | Engine):
            return engine is self.connection or engine is self.connection.engine
        if isinstance(engine, AsyncConnection | AsyncEngine):
            return self._host is not None and (
                engine is self._host or getattr(engine, "sync_engine", None) is self.connection.engine
            )
        session = self._session(engine)
        if session is None:
            return False
        try:
            return session.get_bind() is self.connection
        except SQLAlchemyError:
            return False  # bound by class; to whatever

    def require_idle(self, engine: Any) -> None:
        """Do as `Outer` describes.

        An engine would lend another connection, whatever is under way on this one.
        """
        session = self._session(engine)
        if session is not None:
            if session.in_transaction():
                raise OpenTransaction
        elif isinstance(engine, Connection | AsyncConnection):
            nested = self.connection.get_nested_transaction()
            if nested is not None and nested is not self._nested:
                raise OpenTransaction("A savepoint is open on the connection.")

    def open(self, engine: Any, lock_timeout_ms: int | None) -> ConnectionTransaction | SessionTransaction:
        """See `Outer`."""
        # A check-back may still read its outcome; nothing may begin.
        if lock_timeout_ms is None and self.connection.get_transaction() is not self._root:
            raise OpenTransaction("The test's outer transaction has ended; nothing could roll this one back.")
        self.require_idle(engine)
        self.turns.take(lock_timeout_ms)
        try:
            dialect = dialect_of(self.connection)
            if dialect is SQLITE:
                _begin_on_sqlite(self.connection)
            session = self._session(engine)
            if session is not None:
                return _SessionSavepoint(session, dialect, self.turns)
            return _Savepoint(self.connection, dialect, self.turns)
        except BaseException:
            self.turns.give_back()
            raise

    async def aopen(self, engine: Any, lock_timeout_ms: int | None) -> AsyncSqlAlchemyTransaction:
        """See `Outer`."""
        host = engine if isinstance(engine, AsyncSession) else self._host
        assert host is not None, "covers() has seen it"
        inner = await host.run_sync(lambda _: self.open(engine, lock_timeout_ms))
        return AsyncSqlAlchemyTransaction(host, inner, owned=False)

    def _session(self, engine: Any) -> Session | None:
        if isinstance(engine, scoped_session):
            engine = engine()
        if isinstance(engine, AsyncSession):
            engine = engine.sync_session
        return engine if isinstance(engine, Session) else None


def _begin_on_sqlite(connection: Connection) -> None:
    """Begin the transaction on SQLite.

    Its drivers begin late, and a savepoint outside a transaction would be a transaction, and commit.
    """
    driver: Any = connection.connection.driver_connection
    if not driver.in_transaction:
        connection.exec_driver_sql(SQLITE.sql("begin"))


class _Savepoint(ConnectionTransaction):
    """A savepoint on the connection itself."""

    def __init__(self, connection: Connection, dialect: Dialect, turns: Turns) -> None:
        self.dialect = dialect
        self.handle = connection
        self._connection = connection
        self._turns = turns
        self._left_out = left_out(dialect)
        self._nested = connection.begin_nested()

    def execute(self, statement: Statement) -> list[Row]:
        return [] if statement.sql in self._left_out else super().execute(statement)

    def is_open(self) -> bool:
        return self._nested.is_active and self._connection.in_transaction()

    def commit(self, last: Steps[None] | None = None) -> None:
        if last is not None:
            perform(last, self)
        self._nested.commit()

    def rollback(self) -> None:
        if self._nested.is_active:
            self._nested.rollback()

    def close(self) -> None:
        self._turns.give_back()


class _SessionSavepoint(SessionTransaction):
    """A Session's own transaction, which on such a Session is a savepoint."""

    def __init__(self, session: Session, dialect: Dialect, turns: Turns) -> None:
        mode = session.join_transaction_mode
        connection = session.get_bind()
        nested = isinstance(connection, Connection) and connection.in_nested_transaction()
        if mode != "create_savepoint" and not (mode == "conditional_savepoint" and nested):
            raise OpenTransaction(
                f"The Session joins the test's transaction as {mode!r}, and could not roll back alone.",
                remedy=_GIVE_SESSION,
            )
        self.dialect = dialect
        self.handle = session
        self._session = session
        self._turns = turns
        self._left_out = left_out(dialect)
        self._root = session.begin()
        session.connection()  # this sets the savepoint

    def execute(self, statement: Statement) -> list[Row]:
        return [] if statement.sql in self._left_out else super().execute(statement)

    def commit(self, last: Steps[None] | None = None) -> None:
        if last is not None:
            perform(last, self)
        self._root.commit()

    def rollback(self) -> None:
        self._session.rollback()

    def close(self) -> None:
        self._turns.give_back()
