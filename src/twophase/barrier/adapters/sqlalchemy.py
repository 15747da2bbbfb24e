"""Transactions on SQLAlchemy's Engine, Connection and Session.

The async variants run these very classes inside SQLAlchemy's own greenlets (`sqlalchemy_async`).
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session
from sqlalchemy.util.concurrency import in_greenlet

from twophase.barrier.adapters.sqlalchemy_commit import (
    driver_of,
    execute,
    held_to_one_database,
    is_left_open,
    looking_last,
    require_one_database,
    require_plain_commit,
)
from twophase.barrier.adapters.sqlalchemy_sharing import claim, require_outside, require_unshared
from twophase.barrier.adapters.sqlite_settings import SqliteSettings
from twophase.barrier.dialect import MYSQL, SQLITE, Dialect, dialect_named
from twophase.barrier.open import GIVE_ASYNC_ENGINE, OF_ASYNC_ENGINE, bind_of
from twophase.barrier.transaction import Row, Statement, Steps
from twophase.core.errors import AutocommitRefused, BarrierError, OpenTransaction, TransactionLost, UnsupportedEngine

_DRIVERS: Final = frozenset({
    *("pysqlite", "aiosqlite"),
    *("psycopg", "psycopg_async", "psycopg2", "asyncpg", "pg8000"),
    *("pymysql", "asyncmy", "aiomysql", "mysqldb", "mysqlconnector"),
})  # fmt: skip
"""SQLAlchemy's names of the drivers whose errors `fault` understands."""


def dialect_of(bind: Engine | Connection) -> Dialect:
    """Return the barrier's dialect for a SQLAlchemy bind; raises UnsupportedEngine."""
    if bind.dialect.is_async and not in_greenlet():
        raise UnsupportedEngine(OF_ASYNC_ENGINE, remedy=GIVE_ASYNC_ENGINE)
    dialect = dialect_named(bind.dialect.name)
    if dialect is None:
        raise UnsupportedEngine(f"There is no barrier for {bind.dialect.name!r}.")
    if bind.dialect.driver not in _DRIVERS:
        raise UnsupportedEngine(
            f"The errors of the driver {bind.dialect.driver!r} are not known here, so a held row could not be told "
            "from a failure.",
            remedy=f"Connect with one of these drivers: {', '.join(sorted(_DRIVERS))}.",
        )
    return dialect


def _run_below(connection: Connection, sql: str) -> list[Row]:
    """Run a PRAGMA below SQLAlchemy, where a statement begins no transaction."""
    cursor = connection.connection.cursor()
    try:
        cursor.execute(sql)
        return list(cursor.fetchall())
    finally:
        cursor.close()


def _commits_by_itself(connection: Connection) -> bool:
    raw: Any = connection.connection.dbapi_connection
    detect = getattr(connection.dialect, "detect_autocommit_setting", None)  # from SQLAlchemy 2.1 on
    if detect is not None:
        return bool(detect(raw))
    for one in (raw, driver_of(connection)):  # asyncmy's adapter has no such method
        if hasattr(one, "get_autocommit"):
            return bool(one.get_autocommit())
    if hasattr(raw, "isolation_level") and connection.dialect.name == "sqlite":
        return raw.isolation_level is None
    return bool(getattr(raw, "autocommit", False))


def _is_spoilt(connection: Connection) -> bool:
    """Return True where a `set autocommit = 1` outlives the transaction.

    A pool's rollback does not undo it. Every later user of the pooled connection would be refused, a check-back too.
    """
    if connection.closed or connection.invalidated or dialect_of(connection) is not MYSQL:
        return False
    try:
        return _commits_by_itself(connection)
    except Exception:  # noqa: BLE001 -- of a driver that asks the server: the connection is dead
        return False


def _restore(connection: Connection) -> None:
    """Put back the settings of a connection whose transaction ends now."""
    try:
        with suppress(Exception):  # a dead connection does not come back
            cursor = connection.connection.cursor()
            cursor.execute(dialect_of(connection).sql("restore"))
            cursor.close()
    except BaseException:  # cancelled in the middle of the statement
        connection.invalidate()
        raise


def _restored_at_its_end(connection: Connection, dialect: Dialect) -> None:
    """Put back the settings at the end of the transaction.

    The application may end it, and then a Session's connection goes back to its pool.
    """
    if "restore" in dialect.statements and not event.contains(connection, "commit", _restore):
        event.listen(connection, "commit", _restore)
        event.listen(connection, "rollback", _restore)


def _begin_on_driver(connection: Connection, dialect: Dialect) -> None:
    """Do what SQLAlchemy's `begin` leaves to the driver; raise AutocommitRefused.

    SQLite's drivers begin by themselves, late and deferred. An application that has taught SQLAlchemy to say BEGIN
    itself (the recipe for SAVEPOINT) has a transaction already, although its driver claims to be in autocommit.
    """
    if dialect is SQLITE and driver_of(connection).in_transaction:
        return
    if _commits_by_itself(connection):
        raise AutocommitRefused
    if dialect is SQLITE:
        connection.exec_driver_sql(dialect.sql("begin"))


class ConnectionTransaction:
    """One transaction on a Connection.

    The Connection is taken from an Engine, or is an idle one of the application's.
    """

    def __init__(
        self, bind: Engine | Connection, lock_timeout_ms: int | None = None, *, is_pooled: bool = False
    ) -> None:
        """Open it.

        Arguments:
            bind: what it is opened on.
            lock_timeout_ms: the longest wait for SQLite's write lock.
            is_pooled: the Connection was taken from its pool for this transaction, as one of an Engine always is.

        Raises:
            OpenTransaction: the Connection is in a transaction, which includes one begun by any statement before;
                or the pool shares one connection, which is in one.
            AutocommitRefused: the isolation level is AUTOCOMMIT.
            UnsupportedEngine: neither SQLite, PostgreSQL nor MySQL or MariaDB.
        """
        self.dialect = dialect_of(bind)
        if isinstance(bind, Connection) and bind.in_transaction():
            raise OpenTransaction
        require_unshared(bind)
        self._owned = isinstance(bind, Engine)
        self._is_pooled = is_pooled or self._owned
        self._connection = bind.connect() if isinstance(bind, Engine) else bind
        self.handle: Any = self._connection
        self._unclear = False
        self._settings = SqliteSettings(lambda sql: _run_below(self._connection, sql))
        try:
            if self.dialect is SQLITE:
                require_outside(self._connection)
                self._settings.prepare(lock_timeout_ms)
            self._root = self._connection.begin()
            claim(self._connection)
            _begin_on_driver(self._connection, self.dialect)
        except BaseException:
            self.rollback()
            self.close()
            raise

    def execute(self, statement: Statement) -> list[Row]:
        return execute(self._connection, statement)

    def commit(self, last: Steps[None] | None = None) -> None:
        if not self._root.is_active:
            raise TransactionLost
        self._unclear = True
        try:
            with nullcontext() if last is None else looking_last(last, self._connection, self.dialect):
                self._root.commit()
        except (BarrierError, TransactionLost):  # of the look: nothing was committed
            self._unclear = False
            raise
        self._unclear = False

    def rollback(self) -> None:
        was_unclear, self._unclear = self._unclear, True  # also where a cancellation cuts this off
        with suppress(Exception):  # a dead connection: the database rolls back, and close() discards it
            self._connection.rollback()
            self._unclear = was_unclear or is_left_open(self._connection)

    def close(self) -> None:
        try:
            if not self._unclear and not self._connection.closed and not self._connection.invalidated:
                self._restore()
                self._unclear = self._is_pooled and _is_spoilt(self._connection)
        except Exception:  # noqa: BLE001 -- a session whose settings cannot be put back is not given back
            self._unclear = True
        if self._unclear and not self._connection.closed:
            self._connection.invalidate()
            with suppress(Exception):  # of a listener
                self._connection.rollback()  # SQLAlchemy keeps the transaction of a discarded connection open
        if self._owned:
            self._connection.close()

    def _restore(self) -> None:
        self._settings.restore()
        if "restore" in self.dialect.statements:
            self._connection.exec_driver_sql(self.dialect.sql("restore"))
            self._connection.rollback()


class SessionTransaction:
    """One transaction on an idle Session.

    Pending objects are flushed before each statement of this library.
    """

    def __init__(self, session: Session, lock_timeout_ms: int | None = None) -> None:
        """Open it.

        Raises:
            OpenTransaction: the Session, or the Connection it is bound to, is in a transaction.
            UnsupportedEngine: as `ConnectionTransaction`, and for a Session with `twophase=True`.
            AutocommitRefused: as `ConnectionTransaction`.
        """
        require_plain_commit(session)
        bind = bind_of(session)
        if session.in_transaction() or (isinstance(bind, Connection) and bind.in_transaction()):
            raise OpenTransaction
        self.dialect = dialect_of(bind)
        require_unshared(bind)
        self.handle: Any = session
        self._session = session
        self._bind = bind
        self._unclear = False
        self._settings = SqliteSettings(lambda sql: _run_below(self._connection, sql))
        self._is_pooled = False
        self._root = session.begin()
        try:
            self._connection = session.connection()
            self._is_pooled = isinstance(bind, Engine)
            claim(self._connection)
            _restored_at_its_end(self._connection, self.dialect)
            if self.dialect is SQLITE:
                if lock_timeout_ms is not None:
                    self._settings.bound_wait(lock_timeout_ms)
                if not driver_of(self._connection).in_transaction:
                    self._settings.make_durable()
            _begin_on_driver(self._connection, self.dialect)
        except BaseException:
            self.rollback()
            self.close()
            raise

    def execute(self, statement: Statement) -> list[Row]:
        self._session.flush()
        return execute(self._session.connection(), statement)

    def commit(self, last: Steps[None] | None = None) -> None:
        if not self._root.is_active:
            raise TransactionLost
        self._session.flush()  # here, because it may begin on another database
        require_one_database(self._session)
        self._settings.restore()  # before the end, with which a Session gives its connection back
        looking = nullcontext() if last is None else looking_last(self._look(last), self._connection, self.dialect)
        self._unclear = True
        try:
            with held_to_one_database(self._session, self._connection), looking:
                self._root.commit()
        except (BarrierError, TransactionLost):  # of the look: nothing was committed
            self._unclear = False
            raise
        self._unclear = False

    def _look(self, last: Steps[None]) -> Steps[None]:
        require_one_database(self._session)  # a listener may have begun on another
        yield from last

    def rollback(self) -> None:
        is_unclear, self._unclear = self._unclear and self._is_cut_off(), True
        try:
            self._settings.restore()
            if self._is_pooled and _is_spoilt(self._connection):
                self._connection.invalidate()
            self._session.rollback()
            self._unclear = is_unclear
        except Exception:  # noqa: BLE001 -- a dead connection: the database rolls back
            self._session.invalidate()

    def close(self) -> None:
        """Leave the Session open: it is the application's, and idle again.

        A Connection that it is bound to is discarded in doubt: a Session forgets a transaction whose rollback failed,
        and whatever comes next on that Connection, such as a question, would be committed with it.
        """
        if self._unclear and isinstance(self._bind, Connection) and not self._bind.closed:
            self._bind.invalidate()

    def _is_cut_off(self) -> bool:
        """Return True where a COMMIT of the bound Connection has failed.

        SQLAlchemy sends no ROLLBACK behind it.
        """
        root = self._bind.get_transaction() if isinstance(self._bind, Connection) else None
        return root is not None and not root.is_active


class JoinedTransaction:
    """Statements in a transaction of the application's Session (decision 4).

    The Session has it open, and ends it itself.
    """

    def __init__(self, session: Session) -> None:
        """Join; raises AutocommitRefused, OpenTransaction, UnsupportedEngine."""
        self.dialect = dialect_of(bind_of(session))
        self.handle: Any = session
        self._session = session
        self._connection = session.connection()
        claim(self._connection)
        _restored_at_its_end(self._connection, self.dialect)
        if self.dialect is SQLITE and not driver_of(self._connection).in_transaction:
            SqliteSettings(lambda sql: _run_below(self._connection, sql)).make_durable()
        _begin_on_driver(self._connection, self.dialect)
        session.flush()  # an error of the application's pending objects must not look like the barrier's
        self._root = session.get_transaction()

    def execute(self, statement: Statement) -> list[Row]:
        self._session.flush()
        return execute(self._session.connection(), statement)

    def commit(self, last: Steps[None] | None = None) -> None:  # noqa: ARG002 -- of the protocol
        raise AssertionError("a joined transaction is ended by whoever began it")

    def rollback(self) -> None:
        self._session.rollback()

    def close(self) -> None:
        """Do nothing: the Session and its connection are the application's."""


class BorrowedConnection:
    """A Connection in a transaction that its owner ends, as a migration's."""

    def __init__(self, connection: Connection) -> None:
        """Borrow it; raises UnsupportedEngine."""
        self.dialect = dialect_of(connection)
        self._connection = connection

    def execute(self, statement: Statement) -> list[Row]:
        return execute(self._connection, statement)
