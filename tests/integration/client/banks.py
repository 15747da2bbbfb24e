"""Every engine that an application may hold, behind one interface.

One specification runs over all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from tests.integration.client.ledgers import Ledger, MariadbLedger, PostgresLedger, SqliteLedger, mariadb_connection

CHECK = "http://bank-a/twophase/check"


@contextlib.contextmanager
def off_the_loop() -> Iterator[None]:
    """Let a blocking call run in this thread, as if no event loop ran.

    Connections of some kinds belong to the thread.
    """
    running = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


class BusinessHandle:
    """The business code's handle inside its transaction, whatever the engine."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    async def execute(self, statement: str) -> None:
        """Run one statement of the business."""
        if hasattr(self.handle, "execute"):
            text = _text(statement) if type(self.handle).__module__.startswith("sqlalchemy") else statement
            result = self.handle.execute(text)
        else:  # PyMySQL
            with self.handle.cursor() as cursor:
                result = cursor.execute(statement)
        if inspect.isawaitable(result):
            await result

    async def commit(self) -> None:
        """Commit by the handle, which an application should not do."""
        if hasattr(self.handle, "commit"):
            result = self.handle.commit()
            if inspect.isawaitable(result):
                await result
        else:
            await self.handle.execute("commit")


def _text(statement: str) -> Any:
    from sqlalchemy import text

    return text(statement)


Business = Callable[[BusinessHandle], Awaitable[None]]


class Opened(msgspec.Struct):
    """An engine and the function that closes it."""

    engine: Any
    close: Callable[[], Any]


class Kind(msgspec.Struct, frozen=True):
    """One kind of engine on one kind of database."""

    name: str
    database: str
    is_async: bool
    open: Any


class Bank:
    """One bank under test: an engine of some kind, and the ledger behind it."""

    def __init__(self, kind: Kind, ledger: Ledger, opened: Opened) -> None:
        self.kind = kind
        self.ledger = ledger
        self.engine = opened.engine
        self._opened = opened

    async def transact(self, message: Any, business: Business) -> None:
        """Run the message's transaction around the business code.

        It is entered with `with` or `async with`, as the engine requires.
        """
        if self.kind.is_async:
            async with message.transaction(self.engine, check=CHECK) as handle:
                await business(BusinessHandle(handle))
        else:
            with contextlib.ExitStack() as entered:
                with off_the_loop():
                    handle = entered.enter_context(message.transaction(self.engine, check=CHECK))
                await business(BusinessHandle(handle))

    async def close(self) -> None:
        """Close the engine."""
        closing = self._opened.close()
        if inspect.isawaitable(closing):
            await closing


def _url(ledger: Any, driver: str, port: int | None) -> str:
    if isinstance(ledger, SqliteLedger):
        return f"{driver}:///{ledger.path}"
    database = ledger.database
    if port is not None:
        database = msgspec.structs.replace(database, address=msgspec.structs.replace(database.address, port=port))
    url: str = database.sqlalchemy_url(driver)
    # pymysql reads this machine's certificates for every connection, 40 ms, even if the server has no TLS.
    return f"{url}?ssl_disabled=true" if driver == "pymysql" else url


def _sync_engine(driver: str) -> Any:
    async def opener(ledger: Any, port: int | None) -> Opened:
        from sqlalchemy import create_engine

        engine = create_engine(_url(ledger, driver, port))
        return Opened(engine, engine.dispose)

    return opener


def _connection(driver: str) -> Any:
    async def opener(ledger: Any, port: int | None) -> Opened:
        from sqlalchemy import create_engine

        engine = create_engine(_url(ledger, driver, port))
        connection = engine.connect()

        def close() -> None:
            connection.close()
            engine.dispose()

        return Opened(connection, close)

    return opener


def _session(driver: str) -> Any:
    async def opener(ledger: Any, port: int | None) -> Opened:
        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        engine = create_engine(_url(ledger, driver, port))
        session = Session(engine)

        def close() -> None:
            session.close()
            engine.dispose()

        return Opened(session, close)

    return opener


def _async_engine(driver: str) -> Any:
    async def opener(ledger: Any, port: int | None) -> Opened:
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(_url(ledger, driver, port))
        return Opened(engine, engine.dispose)

    return opener


def _async_connection(driver: str) -> Any:
    async def opener(ledger: Any, port: int | None) -> Opened:
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(_url(ledger, driver, port))
        connection = await engine.connect()

        async def close() -> None:
            await connection.close()
            await engine.dispose()

        return Opened(connection, close)

    return opener


def _async_session(driver: str) -> Any:
    async def opener(ledger: Any, port: int | None) -> Opened:
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        engine = create_async_engine(_url(ledger, driver, port))
        session = AsyncSession(engine)

        async def close() -> None:
            await session.close()
            await engine.dispose()

        return Opened(session, close)

    return opener


async def _sqlite3(ledger: SqliteLedger, _: int | None) -> Opened:
    connection = sqlite3.connect(ledger.path)
    return Opened(connection, connection.close)


async def _psycopg(ledger: PostgresLedger, port: int | None) -> Opened:
    import psycopg

    connection = psycopg.connect(ledger.database.dsn, port=port or ledger.database.port)
    return Opened(connection, connection.close)


async def _psycopg_async(ledger: PostgresLedger, port: int | None) -> Opened:
    import psycopg

    connection = await psycopg.AsyncConnection.connect(ledger.database.dsn, port=port or ledger.database.port)
    return Opened(connection, connection.close)


async def _aiosqlite(ledger: SqliteLedger, _: int | None) -> Opened:
    import aiosqlite

    connection = await aiosqlite.connect(ledger.path)
    return Opened(connection, connection.close)


async def _pymysql(ledger: MariadbLedger, port: int | None) -> Opened:
    connection = mariadb_connection(ledger.database, port=port)

    def close() -> None:
        if connection.open:
            connection.close()

    return Opened(connection, close)


async def _asyncpg_pool(ledger: PostgresLedger, port: int | None) -> Opened:
    import asyncpg

    pool = await asyncpg.create_pool(  # type: ignore[no-untyped-call]
        ledger.database.dsn, port=port or ledger.database.port, min_size=0, max_size=4
    )
    return Opened(pool, pool.close)


async def _asyncpg_connection(ledger: PostgresLedger, port: int | None) -> Opened:
    import asyncpg

    connection = await asyncpg.connect(  # type: ignore[no-untyped-call]
        ledger.database.dsn, port=port or ledger.database.port
    )
    return Opened(connection, connection.close)


_SQLALCHEMY = (
    ("engine", False, _sync_engine),
    ("connection", False, _connection),
    ("session", False, _session),
    ("async engine", True, _async_engine),
    ("async connection", True, _async_connection),
    ("async session", True, _async_session),
)
_DRIVERS = {
    "sqlite": ("sqlite", "sqlite+aiosqlite"),
    "postgresql": ("psycopg", "asyncpg"),
    "mysql": ("pymysql", "asyncmy"),
}

KINDS: tuple[Kind, ...] = (
    *(
        Kind(f"{database} {name}", database, is_async, opener(_DRIVERS[database][is_async]))
        for database in _DRIVERS
        for name, is_async, opener in _SQLALCHEMY
    ),
    Kind("sqlite3", "sqlite", False, _sqlite3),
    Kind("psycopg", "postgresql", False, _psycopg),
    Kind("pymysql", "mysql", False, _pymysql),
    Kind("asyncpg pool", "postgresql", True, _asyncpg_pool),
    Kind("asyncpg connection", "postgresql", True, _asyncpg_connection),
    Kind("psycopg async", "postgresql", True, _psycopg_async),
    Kind("aiosqlite connection", "sqlite", True, _aiosqlite),
)
