"""The opening of one transaction on an application's engine, of any library.

This is the only module that knows all the libraries. They are extras, so no library is imported before one of its
objects is given.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from twophase.barrier.outer import outer_of
from twophase.barrier.transaction import AsyncTransaction, SyncTransaction
from twophase.core.errors import UnsupportedEngine


def _is(engine: Any, module: str, *names: str) -> bool:
    """Return True when `engine` is an instance of one of a module's classes.

    It never imports the module.
    """
    return _derives(engine.__class__, module, names)


@functools.lru_cache(maxsize=256)
def _derives(kind: type, module: str, names: tuple[str, ...]) -> bool:
    """Return True when a class derives from one of a module's classes.

    It is asked nine times for a message, so the answer is remembered: the bases of an existing class are imported.
    """
    loaded = sys.modules.get(module)
    classes = tuple(getattr(loaded, name) for name in names if hasattr(loaded, name))
    return bool(classes) and issubclass(kind, classes)


def _is_asyncpg(engine: Any) -> bool:
    # A pool's lent connection passes for an instance of Connection, but is not a subclass of it.
    return _is(engine, "asyncpg", "Pool", "Connection") or _is(engine, "asyncpg.pool", "PoolConnectionProxy")


def is_async(engine: Any) -> bool:
    """Return True when `engine` is for `aopen_transaction`.

    >>> import sqlite3
    >>> is_async(sqlite3.connect(":memory:"))
    False
    """
    return (
        _is(engine, "sqlalchemy.ext.asyncio", "AsyncEngine", "AsyncConnection", "AsyncSession")
        or _is_asyncpg(engine)
        or _is(engine, "psycopg", "AsyncConnection")
        or _is(engine, "aiosqlite", "Connection")
    )


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
    if outer is not None and not is_async(engine):
        return outer.open(engine, lock_timeout_ms)
    if _is(engine, "sqlalchemy", "Engine", "Connection"):
        from twophase.barrier.adapters.sqlalchemy import ConnectionTransaction  # noqa: PLC0415 -- an extra

        return ConnectionTransaction(engine, lock_timeout_ms)
    if _is(engine, "sqlalchemy.orm", "Session", "scoped_session"):
        from twophase.barrier.adapters.sqlalchemy import SessionTransaction  # noqa: PLC0415 -- an extra

        session = engine() if _is(engine, "sqlalchemy.orm", "scoped_session") else engine
        return SessionTransaction(session, lock_timeout_ms)
    if _is(engine, "sqlite3", "Connection"):
        from twophase.barrier.adapters.sqlite3 import Sqlite3Transaction  # noqa: PLC0415 -- only what is used

        return Sqlite3Transaction(engine, lock_timeout_ms)
    if _is(engine, "psycopg", "Connection"):
        from twophase.barrier.adapters.psycopg import PsycopgTransaction  # noqa: PLC0415 -- an extra

        return PsycopgTransaction(engine)
    if _is(engine, "pymysql.connections", "Connection"):
        from twophase.barrier.adapters.pymysql import PymysqlTransaction  # noqa: PLC0415 -- an extra

        return PymysqlTransaction(engine)
    if isinstance(engine, str) and "://" in engine:
        # Not shown: it may hold a password.
        raise UnsupportedEngine("A URL is no engine; give `sqlalchemy.create_engine(url)`.")
    if isinstance(engine, str) and "django.db" in sys.modules:
        from twophase.barrier.adapters.django import DjangoTransaction  # noqa: PLC0415 -- an extra

        return DjangoTransaction(engine, lock_timeout_ms)
    if is_async(engine):
        raise UnsupportedEngine("This is an async engine: use the async form (`async with`, `await`).")
    raise UnsupportedEngine(f"{type(engine).__module__}.{type(engine).__qualname__} is not known here.")


async def aopen_transaction(engine: Any, *, lock_timeout_ms: int | None = None) -> AsyncTransaction:
    """`open_transaction` for asyncio.

    Arguments:
        engine: a SQLAlchemy AsyncEngine, idle AsyncConnection or idle AsyncSession; asyncpg's Pool; an idle connection
            of asyncpg, psycopg 3 or aiosqlite.
        lock_timeout_ms: as for `open_transaction`.
    """
    outer = outer_of(engine)
    if outer is not None and is_async(engine):
        return await outer.aopen(engine, lock_timeout_ms)
    if _is(engine, "sqlalchemy.ext.asyncio", "AsyncEngine", "AsyncConnection", "AsyncSession"):
        from twophase.barrier.adapters import sqlalchemy_async  # noqa: PLC0415 -- an extra

        return await sqlalchemy_async.open_on(engine, lock_timeout_ms)
    if _is_asyncpg(engine):
        from twophase.barrier.adapters import asyncpg  # noqa: PLC0415 -- an extra

        return await asyncpg.open_on(engine)
    if _is(engine, "psycopg", "AsyncConnection"):
        from twophase.barrier.adapters.psycopg_async import AsyncPsycopgTransaction  # noqa: PLC0415 -- an extra

        return AsyncPsycopgTransaction(engine)
    if _is(engine, "aiosqlite", "Connection"):
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
    if not _is(session, "sqlalchemy.orm", "Session", "scoped_session"):
        raise UnsupportedEngine("Only a SQLAlchemy Session can be joined.")
    from twophase.barrier.adapters.sqlalchemy import JoinedTransaction  # noqa: PLC0415 -- an extra

    return JoinedTransaction(session() if _is(session, "sqlalchemy.orm", "scoped_session") else session)


def ask_engine(engine: Any) -> Any:
    """Return what to ask the barrier on after a failure: the pool if there is one.

    The connection that failed may be dead, or still hold the very lock that the question waits for.
    """
    if _is(engine, "sqlalchemy", "Connection") or _is(engine, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        return engine.engine
    if _is(engine, "sqlalchemy.orm", "scoped_session"):
        engine = engine()
    if _is(engine, "sqlalchemy.orm", "Session"):
        return ask_engine(engine.get_bind())
    if _is(engine, "sqlalchemy.ext.asyncio", "AsyncSession"):
        from sqlalchemy.ext.asyncio import AsyncEngine  # noqa: PLC0415 -- an extra

        return AsyncEngine(ask_engine(engine.sync_session.get_bind()))
    return engine
