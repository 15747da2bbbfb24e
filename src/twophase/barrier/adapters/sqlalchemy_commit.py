"""The last statements before a SQLAlchemy COMMIT.

They run behind all of the application's code.

A Session's `before_commit` listeners, its last flush and a Connection's `commit` listeners all run between the end of
the block and COMMIT. One that swallows an error leaves a transaction which PostgreSQL aborts and MariaDB may have
rolled back, and COMMIT does not report it. Therefore the look (correctness rule 2) runs behind all `commit` listeners,
and no listener is notified of it, because a listener could spoil the transaction behind it.

From the look to COMMIT the connection is this task's or thread's alone. A forgotten one that executes, commits or
rolls back on it is refused: several drivers would do that between the look and COMMIT, or believe that they had, and
then send no COMMIT. A thread may have been waiting for psycopg's or psycopg2's own lock before: therefore COMMIT's tag
is read, or what can be known right before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import sqlalchemy
from sqlalchemy import Connection, TextClause, event
from sqlalchemy.exc import InvalidRequestError, StatementError
from sqlalchemy.orm import Session

from twophase.barrier.adapters.sqlalchemy_beside import ALLOWED
from twophase.barrier.dialect import Dialect
from twophase.barrier.transaction import COMMITTED, Row, Statement, Steps, perform
from twophase.core.errors import OpenTransaction, TransactionLost, UnsupportedEngine

T = TypeVar("T")
_IDLE: Final = 0
"""libpq's status outside of a transaction."""
_IN_TRANSACTION: Final = 2
"""libpq's status of a transaction that is usable.

It is neither aborted nor in the middle of a statement.
"""


_OPTIONS: Final = {
    ALLOWED: True,  # a block may be open around another one
    # Given with each call, because a statement's own options yield to those of its Connection. A cursor of the server
    # takes no statement that writes.
    "stream_results": False,
    "yield_per": None,
}


@functools.cache
def _text(sql: str) -> TextClause:
    return sqlalchemy.text(sql)


def execute(connection: Connection, statement: Statement) -> list[Row]:
    """Execute one statement.

    Its parameters are in no error's text, because branches' payloads are among them.
    """
    try:
        result = connection.execute(_text(statement.sql), statement.parameters, execution_options=_OPTIONS)
        return list(result.fetchall()) if result.returns_rows else []
    except StatementError as error:
        error.hide_parameters = True
        raise


class LastStatements:
    """Statements on a Connection whose COMMIT is about to be sent.

    No listener of the Engine is notified of them.
    """

    def __init__(self, connection: Connection, dialect: Dialect) -> None:
        self.dialect = dialect
        self.handle: Any = connection

    def execute(self, statement: Statement) -> list[Row]:
        attributes = vars(self.handle)
        dispatch = attributes.pop("dispatch")  # SQLAlchemy makes another, without listeners
        try:
            return execute(self.handle, statement)
        finally:
            attributes["dispatch"] = dispatch

    def commit(self, last: Steps[None] | None = None) -> None:  # noqa: ARG002 -- of the protocol
        raise AssertionError("this transaction is being ended")

    def rollback(self) -> None:
        raise AssertionError("this transaction is being ended")

    def close(self) -> None:
        """Do nothing: the connection is another's."""


def look(steps: Steps[T], connection: Connection, dialect: Dialect) -> T:
    """Perform `steps` inside a `commit` listener.

    When they raise, the transaction is rolled back.
    """
    try:
        return perform(steps, LastStatements(connection, dialect))
    except BaseException:
        roll_back_below(connection)
        raise


def roll_back_below(connection: Connection) -> None:
    """Roll back below SQLAlchemy.

    It takes a transaction for ended as soon as its commit was refused.
    """
    try:
        connection.connection.rollback()
    except Exception:  # noqa: BLE001 -- a dead connection: the database rolls back
        connection.invalidate()


def is_left_open(connection: Connection) -> bool:
    """Return True where asyncpg is in a transaction and its adapter has forgotten it."""
    if connection.dialect.driver != "asyncpg" or connection.closed or connection.invalidated:
        return False
    return bool(driver_of(connection).is_in_transaction())


def driver_of(connection: Connection) -> Any:
    """Return the driver's own connection, also of a detached Connection."""
    adapted: Any = connection.connection.dbapi_connection
    return connection.dialect.get_driver_connection(adapted)


class _Dispatch:
    """A Connection's dispatch that performs a look behind all `commit` listeners.

    The listeners' time of adding does not matter. A listener of this library could not be the last one: the Engine's
    listeners run behind all of the Connection's.
    """

    __slots__ = ("inner", "last")

    def __init__(self, inner: Any, last: Callable[[Connection], None]) -> None:
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "last", last)

    def __getattribute__(self, name: str) -> Any:
        inner = object.__getattribute__(self, "inner")
        if name == "__class__":
            return type(inner)  # `event.listen` on the Connection looks for it
        return _Commit(inner, object.__getattribute__(self, "last")) if name == "commit" else getattr(inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "inner"), name, value)


class _Commit:
    """The `commit` listeners, and the look behind them."""

    __slots__ = ("_inner", "_last")

    def __init__(self, inner: Any, last: Callable[[Connection], None]) -> None:
        self._inner = inner
        self._last = last

    def __call__(self, connection: Connection) -> None:
        _hold(connection)
        try:
            self._inner.commit(connection)
            self._last(connection)
        except BaseException:
            _release(connection)
            raise

    def for_modify(self, _dispatch: _Dispatch) -> Any:
        """Return the collection that `event.listen` adds to."""
        return self._inner.commit.for_modify(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner.commit, name)


def look_last(connection: Connection, last: Callable[[Connection], None]) -> None:
    """Call `last` behind all `commit` listeners of the Connection from now on.

    When it raises, no COMMIT is sent. `last` is called inside SQLAlchemy's commit: it executes by `look`.
    """
    anything: Any = connection
    anything.dispatch = _Dispatch(anything.dispatch, last)
    anything._has_events = True  # noqa: SLF001 -- SQLAlchemy asks this first


@contextlib.contextmanager
def looking_last(steps: Steps[None], connection: Connection, dialect: Dialect) -> Iterator[None]:
    """Perform `steps` right before the COMMIT that the block sends on the Connection."""
    anything: Any = connection
    before = anything.dispatch
    look_last(connection, lambda committing: look(steps, committing, dialect))
    try:
        yield
    finally:
        anything.dispatch = before


def _hold(connection: Connection) -> None:
    """Keep the connection for this task or thread until its transaction ends."""
    pooled: Any = connection.connection
    user = _user()
    if vars(pooled).setdefault(_HOLDER, user) != user:
        raise _held_by_another()

    def by_the_holder(call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any, **options: Any) -> Any:
            if _user() != user:
                raise _held_by_another()
            return call(*args, **options)

        return checked

    own = {name: getattr(pooled.dbapi_connection, name) for name in _HELD}
    own["commit"] = functools.partial(_commit, connection)
    vars(pooled).update({name: by_the_holder(call) for name, call in own.items()})


def _held_by_another() -> OpenTransaction:
    return OpenTransaction(
        "the transaction on this connection is being committed, by another task or thread.",
        remedy="Await every task that uses the connection before the block ends.",
    )


def _release(connection: Connection) -> None:
    if not connection.closed and not connection.invalidated:
        for name in (_HOLDER, *_HELD):
            vars(connection.connection).pop(name, None)


def _user() -> tuple[int, Any]:
    """Return the current user of a connection: the thread, and its task."""
    try:
        return threading.get_ident(), asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        return threading.get_ident(), None


def _commit(connection: Connection) -> None:
    pooled: Any = connection.connection
    try:
        commit = _COMMITS.get(connection.dialect.driver)
        pooled.dbapi_connection.commit() if commit is None else commit(connection)
    except TransactionLost:
        roll_back_below(connection)
        raise
    finally:
        _release(connection)


def _commit_by_statement(connection: Connection) -> None:
    """Send COMMIT as a statement, whose tag psycopg keeps.

    Its own commit would then send nothing, because no transaction is open.
    """
    if driver_of(connection).info.transaction_status == _IDLE:
        raise TransactionLost  # psycopg would begin another one first
    cursor: Any = connection.connection.cursor()
    try:
        ended = cursor.execute("commit").statusmessage
    finally:
        cursor.close()
    if ended != COMMITTED:
        raise TransactionLost


def _commit_unless_aborted(connection: Connection) -> None:
    """Commit by psycopg2, unless the transaction is aborted.

    Its commit keeps no tag, and behind a COMMIT that was sent as a statement it would send another one.
    """
    driver = driver_of(connection)
    if driver.get_transaction_status() != _IN_TRANSACTION:
        raise TransactionLost
    driver.commit()


_HOLDER: Final = "twophase_holder"
_HELD: Final = ("cursor", "commit", "rollback")
_COMMITS: Final[dict[str, Callable[[Connection], None]]] = {
    "psycopg": _commit_by_statement,
    "psycopg_async": _commit_by_statement,
    "psycopg2": _commit_unless_aborted,
}
"""The commit of a pooled connection, by driver."""


def require_one_database(session: Session) -> None:
    """Refuse a Session's transaction on several connections.

    One could commit and another fail.

    Raises:
        TransactionLost: there are several.
    """
    transaction: Any = session.get_transaction()
    # No event reports connections from before this transaction's beginning, and no public method lists them.
    known: dict[Any, Any] = transaction._connections if transaction is not None else {}  # noqa: SLF001 -- as above
    connections = {id(entry[0]) for entry in known.values()}
    if len(connections) > 1:
        raise several_databases(len(connections))


def require_plain_commit(session: Session) -> None:
    """Refuse a Session that prepares its commits.

    SQLAlchemy announces no COMMIT of it, so nothing could look before.

    Raises:
        UnsupportedEngine: it has `twophase=True`.
    """
    if session.twophase:
        raise UnsupportedEngine("The Session prepares its commits (twophase=True), which twophase does not see.")


def several_databases(databases: int) -> TransactionLost:
    """Make the refusal of a Session's transaction on several connections."""
    return TransactionLost(
        f"the Session's transaction works on {databases} databases; one may commit and another fail.",
        remedy="Work on one engine inside the block; make a change in another database a branch.",
    )


@contextlib.contextmanager
def held_to_one_database(session: Session, connection: Connection) -> Iterator[None]:
    """Refuse another connection that the commit begins on.

    A listener to the commit, or to a flush, may write to another database, whose COMMIT might be the first one sent.
    """
    refused: list[TransactionLost] = []

    def refuse(_session: Session, _transaction: Any, begun: Connection) -> None:
        if begun is not connection:
            begun.rollback()  # so that it commits nothing for a listener that swallows this and continues
            refused.append(several_databases(2))
            raise refused[0]

    event.listen(session, "after_begin", refuse)
    try:
        yield
    except InvalidRequestError as error:
        if refused:  # the commit of what was rolled back there
            raise refused[0] from error
        raise
    finally:
        event.remove(session, "after_begin", refuse)
