"""Business databases with a barrier table, and every library that reaches them.

The tests of this folder run on them.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiosqlite
import asyncpg
import msgspec
import psycopg
import pymysql
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from twophase.barrier.producer import begin_producer, verify_producer
from twophase.barrier.transaction import AsyncTransaction, SyncTransaction, aperform, perform

SYNC_DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg", "mysql": "pymysql"}
SYNC_WAYS: dict[str, tuple[str, ...]] = {
    "sqlite": ("engine", "connection", "session", "sqlite3"),
    "postgresql": ("engine", "connection", "session", "psycopg"),
    "mysql": ("engine", "connection", "session", "pymysql"),
}
ASYNC_WAYS: dict[str, tuple[str, ...]] = {
    "sqlite": ("aiosqlite engine", "aiosqlite connection", "aiosqlite session", "aiosqlite plain"),
    "postgresql": (
        *("asyncpg engine", "psycopg engine", "asyncpg session", "asyncpg pool", "asyncpg connection"),
        "psycopg plain",
    ),
    "mysql": ("asyncmy engine", "asyncmy connection", "asyncmy session"),
}


_LOCK_S = 60.0
"""Time that SQLite waits for a lock where nothing else bounds it.

The servers wait as long for theirs.
"""


class Bank(msgspec.Struct, frozen=True):
    """One database; `where` is a SQLite file or `user:password@host:port/name`."""

    kind: str
    where: str

    def url(self, driver: str) -> str:
        """Return the URL for SQLAlchemy."""
        if self.kind == "sqlite":
            return f"sqlite+{driver}:///{self.where}"
        # pymysql reads this machine's certificates for every connection, 40 ms, even if the server has no TLS.
        return f"{self.kind}+{driver}://{self.where}{'?ssl_disabled=true' if driver == 'pymysql' else ''}"

    def _patient(self) -> dict[str, Any]:
        return {"connect_args": {"timeout": _LOCK_S}} if self.kind == "sqlite" else {}

    @contextlib.contextmanager
    def engine(self, **options: Any) -> Iterator[sqlalchemy.Engine]:
        """A sync engine."""
        engine = sqlalchemy.create_engine(self.url(SYNC_DRIVERS[self.kind]), **self._patient() | options)
        try:
            yield engine
        finally:
            engine.dispose()

    @contextlib.contextmanager
    def plain(self, *, autocommit: bool = False) -> Iterator[Any]:
        """A plain DB-API connection."""
        url = sqlalchemy.make_url(self.url(SYNC_DRIVERS[self.kind]))
        connection: Any
        if self.kind == "sqlite":
            connection = sqlite3.connect(self.where, timeout=_LOCK_S)
            if autocommit:
                connection.isolation_level = None
        elif self.kind == "postgresql":
            connection = psycopg.connect(f"postgresql://{self.where}", autocommit=autocommit)
        else:
            connection = pymysql.connect(
                host=url.host,
                port=url.port or 0,
                user=url.username,
                password=url.password or "",
                database=url.database,
                autocommit=autocommit,
                ssl_disabled=True,
            )
        try:
            yield connection
        finally:
            with contextlib.suppress(pymysql.Error):
                connection.close()

    @contextlib.contextmanager
    def reached(self, way: str, **options: Any) -> Iterator[Any]:
        """Yield the object that an application gives to `open_transaction`."""
        if way in ("sqlite3", "psycopg", "pymysql"):
            with self.plain() as connection:
                yield connection
            return
        with self.engine(**options) as engine:
            if way == "engine":
                yield engine
            elif way == "connection":
                with engine.connect() as connection:
                    yield connection
            else:
                with Session(engine) as session:
                    yield session

    @contextlib.asynccontextmanager
    async def areached(self, way: str, **options: Any) -> AsyncIterator[Any]:
        """Yield the object that an application gives to `aopen_transaction`."""
        driver, kind = way.split()
        library: Any = asyncpg  # it has no types
        if kind == "pool":
            async with library.create_pool(f"postgresql://{self.where}", min_size=1, max_size=4) as pool:
                yield pool
            return
        if way == "asyncpg connection":
            connection = await library.connect(f"postgresql://{self.where}")
            try:
                yield connection
            finally:
                await connection.close()
            return
        if way == "psycopg plain":
            async with await psycopg.AsyncConnection.connect(f"postgresql://{self.where}") as plain_psycopg:
                yield plain_psycopg
            return
        if way == "aiosqlite plain":
            async with aiosqlite.connect(self.where, timeout=_LOCK_S) as plain_aiosqlite:
                yield plain_aiosqlite
            return
        engine = create_async_engine(self.url(driver), **self._patient() | options)
        try:
            if kind == "engine":
                yield engine
            elif kind == "connection":
                async with engine.connect() as sqlalchemy_connection:
                    yield sqlalchemy_connection
            else:
                async with AsyncSession(engine) as session:
                    yield session
        finally:
            await engine.dispose()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return rows, read by a connection of its own from outside; commits."""
        with self.plain() as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            cursor.close()
            connection.commit()
            return rows

    def reasons(self, gid: str) -> list[str]:
        """Return the reasons of a message's producer rows."""
        return [reason for (reason,) in self.query(f"select reason from barrier where gid = '{gid}' and op = 'msg'")]

    def balance(self) -> int:
        """Return the balance of the one account; it starts with 100."""
        return int(self.query("select balance from account")[0][0])


def new_gid() -> str:
    """Return a new gid."""
    return f"test-{secrets.token_hex(8)}"


def begin(transaction: SyncTransaction, gid: str, *, prepared_at_ms: int | None = None) -> None:
    """Run the producer's begin, with the gid as token."""
    perform(begin_producer(transaction.dialect, "barrier", gid, gid, prepared_at_ms), transaction)


def verify(transaction: SyncTransaction, gid: str) -> None:
    """Run the producer's last statement."""
    perform(verify_producer(transaction.dialect, "barrier", gid, gid), transaction)


async def abegin(transaction: AsyncTransaction, gid: str) -> None:
    """Run `begin` on asyncio."""
    await aperform(begin_producer(transaction.dialect, "barrier", gid, gid, None), transaction)


async def averify(transaction: AsyncTransaction, gid: str) -> None:
    """Run `verify` on asyncio."""
    await aperform(verify_producer(transaction.dialect, "barrier", gid, gid), transaction)


def run(handle: Any, sql: str) -> None:
    """Execute the application's SQL on its handle, as that handle wants it."""
    if isinstance(handle, sqlalchemy.Connection | Session):
        handle.execute(text(sql))
        return
    cursor = handle.cursor()
    try:
        cursor.execute(sql)
    finally:
        cursor.close()


async def arun(handle: Any, sql: str) -> None:
    """Run `run` on asyncio."""
    of_sqlalchemy = type(handle).__module__.startswith("sqlalchemy")
    await handle.execute(text(sql) if of_sqlalchemy else sql)


SPEND = "update account set balance = balance - 30"
