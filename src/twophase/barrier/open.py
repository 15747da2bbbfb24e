"""The opening of one transaction on an application's engine, of any library.

This is the only module that knows all the libraries. They are extras, so no library is imported before one of its
objects is given.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from typing import Any, Final

from twophase.barrier.outer import outer_of
from twophase.barrier.transaction import AsyncTransaction, SyncTransaction
from twophase.core.errors import OpenTransaction, UnsupportedEngine


class _Kind(enum.Enum):
    """An object that a transaction is opened on.

    The value is a library's module, and the classes in it.
    """

    ENGINE = ("sqlalchemy", "Engine")
    CONNECTION = ("sqlalchemy", "Connection")
    SESSION = ("sqlalchemy.orm", "Session")
    SCOPED_SESSION = ("sqlalchemy.orm", "scoped_session")
    ASYNC_ENGINE = ("sqlalchemy.ext.asyncio", "AsyncEngine")
    ASYNC_CONNECTION = ("sqlalchemy.ext.asyncio", "AsyncConnection")
    ASYNC_SESSION = ("sqlalchemy.ext.asyncio", "AsyncSession")
    SQLITE3 = ("sqlite3", "Connection")
    AIOSQLITE = ("aiosqlite", "Connection")
    PSYCOPG = ("psycopg", "Connection")
    PSYCOPG_ASYNC = ("psycopg", "AsyncConnection")
    PYMYSQL = ("pymysql.connections", "Connection")
    ASYNCPG = ("asyncpg", "Pool", "Connection")
    ASYNCPG_LENT = ("asyncpg.pool", "PoolConnectionProxy")
    """A connection that a pool lent.

    It passes for an instance of Connection, but is not a subclass of it.
    """


_ASYNC: Final = frozenset(
    {
        _Kind.ASYNC_ENGINE,
        _Kind.ASYNC_CONNECTION,
        _Kind.ASYNC_SESSION,
        _Kind.AIOSQLITE,
        _Kind.PSYCOPG_ASYNC,
        _Kind.ASYNCPG,
        _Kind.ASYNCPG_LENT,
    }
)


_SESSION_MAKERS: Final = (
    ("sqlalchemy.orm", "sessionmaker"),
    ("sqlalchemy.ext.asyncio", "async_sessionmaker"),
    ("sqlalchemy.ext.asyncio", "async_scoped_session"),
)
"""Classes that give out sessions and are taken for none, by module and name."""
_CONNECTIONS_OF_DJANGO: Final = (
    ("django.utils.connection", "ConnectionProxy"),
    ("django.utils.connection", "BaseConnectionHandler"),
    ("django.db.backends.base.base", "BaseDatabaseWrapper"),
)
"""Classes of Django's connections, by module and name."""
OF_ASYNC_ENGINE: Final = (
    "This is the sync side of an async engine, whose driver only works inside SQLAlchemy's greenlet."
)
GIVE_ASYNC_ENGINE: Final = (
    "Give the AsyncEngine or AsyncSession itself, with the async form (`async with`, `await`); or an engine of "
    "`sqlalchemy.create_engine`."
)
_FUNCTIONS: Final = frozenset({types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial})
_ENGINES: Final = frozenset({_Kind.ENGINE, _Kind.ASYNC_ENGINE})


@functools.lru_cache(maxsize=256)
def _kind_of(of: type) -> _Kind | None:
    """Return the kind that a class derives from; None for a class of no known library.

    It never imports a module: the bases of an existing class are imported. So the answer is remembered, which is needed
    several times for a message.
    """
    for kind in _Kind:
        module, *names = kind.value
        loaded = sys.modules.get(module)
        if issubclass(of, tuple(getattr(loaded, name) for name in names if hasattr(loaded, name))):
            return kind
    return None


def is_async(engine: Any) -> bool:
    """Return True when `engine` is for `aopen_transaction`.

    >>> import sqlite3
    >>> is_async(sqlite3.connect(":memory:"))
    False
    """
    return _kind_of(engine.__class__) in _ASYNC


def is_outside(value: object, handle: Any) -> bool:
    """Return True for a connection or session that is not in a transaction.

    It may be one of any library.

    Arguments:
        value: anything; what is no connection is not outside.
        handle: what the transaction's business is given.

    >>> import sqlite3; one, other = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    >>> is_outside(other, one), is_outside(one, one), is_outside(7, one)
    (True, False, False)
    """
    class_: Any = type(value)  # not its `__class__`, which evaluates a lazy object
    kind = _kind_of(class_)
    if value is handle or kind is None or kind in _ENGINES or hasattr(value, "acquire"):  # asyncpg's pool
        return False
    return _below(value) is not _below(handle)


def _below(value: Any) -> Any:
    """Return the Connection that a Session is bound to; else `value`.

    An async object stands for the one inside it.
    """
    match _kind_of(value.__class__):
        case _Kind.ASYNC_CONNECTION:
            return value.sync_connection
        case _Kind.ASYNC_SESSION:
            return _below(value.sync_session)
        case _Kind.SCOPED_SESSION if value.registry.has():
            return _below(value())
        case _Kind.SESSION if _kind_of(value.bind.__class__) is _Kind.CONNECTION:
            return value.bind
    return value


def refuse_no_engine(engine: Any) -> None:
    """Refuse what is plainly no engine, such as a URL or a maker of sessions.

    A route calls it when it is made; otherwise the error would appear only after a crash, at the first check-back. An
    object of another type passes: a proxy may have no engine behind it yet.

    Raises:
        UnsupportedEngine: it is a URL, None, a class, a function, a maker of sessions, a connection of Django or an
            async engine's sync side.
    """
    class_: Any = type(engine)  # not isinstance, which opens a proxy (`flask.current_app`'s database)
    # Types cannot distinguish a URL from a Django alias. It is not shown: it may hold a password.
    if issubclass(class_, str) and "://" in engine:
        raise UnsupportedEngine("A URL is not an engine; give `sqlalchemy.create_engine(url)`.")
    if engine is None or class_ in _FUNCTIONS or issubclass(class_, type):
        what = "None" if engine is None else "A class" if issubclass(class_, type) else "A function"
        raise UnsupportedEngine(f"{what} is not an engine; give the engine itself.")
    if _is_of(class_, *_SESSION_MAKERS):
        raise UnsupportedEngine(f"{class_.__name__} makes sessions and is not an engine; give the engine they use.")
    if _is_of(class_, *_CONNECTIONS_OF_DJANGO):
        raise UnsupportedEngine(
            f"Django's {class_.__name__} is not an engine.", remedy='Give the name of its alias, such as "default".'
        )
    if _is_of(class_, _Kind.ENGINE.value) and _is_sync_side(engine):
        raise UnsupportedEngine(OF_ASYNC_ENGINE, remedy=GIVE_ASYNC_ENGINE)


def _is_sync_side(engine: Any) -> bool:
    # Below the class, because a route is made without touching its engine.
    dialect = object.__getattribute__(engine, "__dict__").get("dialect")
    return bool(getattr(dialect, "is_async", False))


def _is_of(class_: type, *names: tuple[str, str]) -> bool:
    """Return True for a class that derives from one of these, by module and name.

    No module is imported.
    """
    loaded = [getattr(sys.modules.get(module), name, None) for module, name in names]
    return issubclass(class_, tuple(one for one in loaded if one is not None))


def require_idle(engine: Any) -> None:
    """Refuse a connection or session in a transaction (rule 2).

    It is refused before anything is sent, as far as this is known without a statement.

    Raises:
        OpenTransaction: it reports that it is in one.
        AutocommitRefused, UnsupportedEngine: of psycopg, as its transaction raises them.
    """
    outer = outer_of(engine)
    if outer is not None:
        outer.require_idle(engine)
        return
    match _kind_of(engine.__class__):
        case _Kind.SQLITE3 | _Kind.AIOSQLITE:
            is_open = engine.in_transaction
        case _Kind.CONNECTION | _Kind.ASYNC_CONNECTION:
            is_open = engine.in_transaction()
        case _Kind.SESSION | _Kind.ASYNC_SESSION | _Kind.SCOPED_SESSION as kind:
            session = engine() if kind is _Kind.SCOPED_SESSION else engine
            is_open = session.in_transaction() or _below(session).in_transaction()  # of the Connection it is bound to
        case _Kind.ASYNCPG | _Kind.ASYNCPG_LENT:
            is_open = not hasattr(engine, "acquire") and engine.is_in_transaction()
        case _Kind.PSYCOPG | _Kind.PSYCOPG_ASYNC:
            from twophase.barrier.adapters.psycopg import require_usable  # noqa: PLC0415 -- an extra

            require_usable(engine)
            return
        case _Kind.PYMYSQL:
            from twophase.barrier.adapters.pymysql import is_in_transaction  # noqa: PLC0415 -- an extra

            is_open = is_in_transaction(engine)
        case _:
            return
    if is_open:
        raise OpenTransaction


def open_transaction(engine: Any, *, lock_timeout_ms: int | None = None) -> SyncTransaction:
    """Open a transaction that this library alone ends.

    Arguments:
        engine: a SQLAlchemy Engine, idle Connection or idle Session; an idle connection of sqlite3, psycopg 3 or
            PyMySQL; a Django database alias.
        lock_timeout_ms: the longest wait for SQLite's write lock; other databases get it by a statement.

    Raises:
        OpenTransaction: a transaction is open already.
        AutocommitRefused: every statement would commit by itself.
        UnsupportedEngine: none of these.
    """
    outer = outer_of(engine)
    kind = _kind_of(engine.__class__)
    if outer is not None and kind not in _ASYNC:
        return outer.open(engine, lock_timeout_ms)
    match kind:
        case _Kind.ENGINE | _Kind.CONNECTION:
            from twophase.barrier.adapters.sqlalchemy import ConnectionTransaction  # noqa: PLC0415 -- an extra

            return ConnectionTransaction(engine, lock_timeout_ms)
        case _Kind.SESSION | _Kind.SCOPED_SESSION:
            from twophase.barrier.adapters.sqlalchemy import SessionTransaction  # noqa: PLC0415 -- an extra

            return SessionTransaction(engine() if kind is _Kind.SCOPED_SESSION else engine, lock_timeout_ms)
        case _Kind.SQLITE3:
            from twophase.barrier.adapters.sqlite3 import Sqlite3Transaction  # noqa: PLC0415 -- only what is used

            return Sqlite3Transaction(engine, lock_timeout_ms)
        case _Kind.PSYCOPG:
            from twophase.barrier.adapters.psycopg import PsycopgTransaction  # noqa: PLC0415 -- an extra

            return PsycopgTransaction(engine)
        case _Kind.PYMYSQL:
            from twophase.barrier.adapters.pymysql import PymysqlTransaction  # noqa: PLC0415 -- an extra

            return PymysqlTransaction(engine)
    refuse_no_engine(engine)
    if isinstance(engine, str) and "django.db" in sys.modules:
        from twophase.barrier.adapters.django import DjangoTransaction  # noqa: PLC0415 -- an extra

        return DjangoTransaction(engine, lock_timeout_ms)
    if kind in _ASYNC:
        raise UnsupportedEngine("This is an async engine: use the async form (`async with`, `await`).")
    raise UnsupportedEngine(f"{type(engine).__module__}.{type(engine).__qualname__} is not known here.")


async def aopen_transaction(
    engine: Any, *, lock_timeout_ms: int | None = None, pool_timeout_ms: int | None = None
) -> AsyncTransaction:
    """`open_transaction` for asyncio.

    Arguments:
        engine: a SQLAlchemy AsyncEngine, idle AsyncConnection or idle AsyncSession; asyncpg's Pool; an idle connection
            of asyncpg, psycopg 3 or aiosqlite.
        lock_timeout_ms: as for `open_transaction`.
        pool_timeout_ms: the longest wait for a connection of asyncpg's Pool, which has no bound of its own.
    """
    outer = outer_of(engine)
    kind = _kind_of(engine.__class__)
    if outer is not None and kind in _ASYNC:
        return await outer.aopen(engine, lock_timeout_ms)
    match kind:
        case _Kind.ASYNC_ENGINE | _Kind.ASYNC_CONNECTION | _Kind.ASYNC_SESSION:
            from twophase.barrier.adapters import sqlalchemy_async  # noqa: PLC0415 -- an extra

            return await sqlalchemy_async.open_on(engine, lock_timeout_ms)
        case _Kind.ASYNCPG | _Kind.ASYNCPG_LENT:
            from twophase.barrier.adapters import asyncpg  # noqa: PLC0415 -- an extra

            return await asyncpg.open_on(engine, pool_timeout_ms)
        case _Kind.PSYCOPG_ASYNC:
            from twophase.barrier.adapters.psycopg_async import AsyncPsycopgTransaction  # noqa: PLC0415 -- an extra

            return AsyncPsycopgTransaction(engine)
        case _Kind.AIOSQLITE:
            from twophase.barrier.adapters import aiosqlite  # noqa: PLC0415 -- an extra

            return await aiosqlite.open_on(engine, lock_timeout_ms)
    raise UnsupportedEngine(
        f"{type(engine).__module__}.{type(engine).__qualname__} is not an async engine; sync ones go without `async`."
    )


def join_transaction(session: Any) -> SyncTransaction:
    """Join a transaction of the application's Session (decision 4).

    The Session has it open, and ends it itself; the result only executes statements in it.

    Raises:
        UnsupportedEngine: not a SQLAlchemy Session.
        AutocommitRefused: its engine commits every statement by itself.
    """
    kind = _kind_of(session.__class__)
    if kind not in {_Kind.SESSION, _Kind.SCOPED_SESSION}:
        raise UnsupportedEngine("Only a SQLAlchemy Session can be joined.")
    from twophase.barrier.adapters.sqlalchemy import JoinedTransaction  # noqa: PLC0415 -- an extra

    return JoinedTransaction(session() if kind is _Kind.SCOPED_SESSION else session)


def bind_of(session: Any) -> Any:
    """Return the engine or connection that a Session uses by default.

    Raises:
        UnsupportedEngine: it has binds of single classes alone, or none.
    """
    from sqlalchemy.exc import UnboundExecutionError  # noqa: PLC0415 -- an extra

    try:
        return session.get_bind()
    except UnboundExecutionError as error:
        raise UnsupportedEngine(
            "The Session has no engine by default, so nothing says in which database the barrier row belongs.",
            remedy="Make it as `Session(engine, …)`, with the engine whose database the message's transaction changes.",
        ) from error


def ask_engine(engine: Any) -> Any:
    """Return what to ask the barrier on after a failure: the pool if there is one.

    The connection that failed may be dead, or still hold the very lock that the question waits for.
    """
    match _kind_of(engine.__class__):
        case _Kind.CONNECTION | _Kind.ASYNC_CONNECTION:
            return engine.engine
        case _Kind.SCOPED_SESSION:
            return ask_engine(engine())
        case _Kind.SESSION:
            return ask_engine(bind_of(engine))
        case _Kind.ASYNC_SESSION:
            from sqlalchemy.ext.asyncio import AsyncEngine  # noqa: PLC0415 -- an extra

            return AsyncEngine(ask_engine(bind_of(engine.sync_session)))
    return engine


def identity_source(engine: Any) -> Any:
    """Return the object to read the barrier table's identity on.

    It is the given connection, where one is given: the application may have chosen a schema or a database on it. A
    Session is not used itself, because the end of a
    transaction expires its objects.
    """
    match _kind_of(engine.__class__):
        case _Kind.CONNECTION | _Kind.ASYNC_CONNECTION:
            return engine
        case _Kind.SCOPED_SESSION:
            return identity_source(engine())
        case _Kind.SESSION:
            return bind_of(engine)
        case _Kind.ASYNC_SESSION if _kind_of(bind_of(engine.sync_session).__class__) is _Kind.CONNECTION:
            from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine  # noqa: PLC0415 -- an extra

            bind = bind_of(engine.sync_session)
            return AsyncConnection(AsyncEngine(bind.engine), bind)
    return ask_engine(engine)


def asked_again(engine: Any) -> Any:
    """Return what to ask the barrier on when a transaction on `engine` has ended.

    A Connection of SQLAlchemy, or of a Session that is bound to one, is asked itself: it keeps its place in its pool,
    which may have no other. Where it is closed, discarded or still in a transaction, the pool is asked.
    """
    source = identity_source(engine)
    if _kind_of(source.__class__) in {_Kind.CONNECTION, _Kind.ASYNC_CONNECTION} and not (
        source.closed or source.invalidated or source.in_transaction()
    ):
        return source
    return ask_engine(engine)


def peek_identity(engine: Any, table: str) -> str | None:
    """Read a barrier table's identity on an idle connection, without a transaction.

    The connection is one of `sqlite3`. Every other engine gives None, and so does a table that cannot be read: then the
    transaction that proves the table reads the identity, or gives the reason.
    """
    if _kind_of(engine.__class__) is not _Kind.SQLITE3:
        return None
    from twophase.barrier.adapters.sqlite3 import peek_identity  # noqa: PLC0415 -- only what is used

    return peek_identity(engine, table)
