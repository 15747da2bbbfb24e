"""Transactions on asyncpg's Pool and Connection."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from asyncpg.exceptions import InterfaceError, PostgresError
from asyncpg.pool import Pool

from twophase.barrier.dialect import POSTGRESQL
from twophase.barrier.placeholders import numbered
from twophase.barrier.shelter import finish
from twophase.barrier.transaction import Row, Statement, Steps, aperform
from twophase.core.errors import OpenTransaction


class AsyncpgTransaction:
    """One transaction; made by `open_on`."""

    dialect = POSTGRESQL

    def __init__(self, connection: Any, transaction: Any, pool: Any) -> None:
        self.handle: Any = connection
        self._connection = connection
        self._transaction = transaction
        self._pool = pool
        self._unclear = False
        self._ended = False

    async def execute(self, statement: Statement) -> list[Row]:
        sql, names = numbered(statement.sql)
        rows: list[Row] = await self._connection.fetch(sql, *(statement.parameters[name] for name in names))
        return rows

    async def commit(self, last: Steps[None] | None = None) -> None:
        if last is not None:
            await aperform(last, self)
        # Nothing runs in between: another task's statement would have to wait for its own reply.
        self._unclear = True
        await self._transaction.commit()
        self._unclear = False
        self._ended = True

    async def rollback(self) -> None:
        if self._ended or self._is_closed():
            return
        was_unclear, self._unclear = self._unclear, True  # also where a cancellation cuts this off
        with contextlib.suppress(PostgresError, InterfaceError, OSError):
            # Also when a raw `commit` of the application ended it: asyncpg would else take the next transaction on
            # this connection for a nested one.
            await self._transaction.rollback()
            self._unclear = was_unclear

    def _is_closed(self) -> bool:
        """Return True where the connection has ended.

        A pool has then taken it back, and asyncpg refuses every call about it.
        """
        try:
            return bool(self._connection.is_closed())
        except InterfaceError:
            return True

    async def close(self) -> None:
        if self._unclear:
            _terminate(self._connection)
        if self._pool is not None:
            await self._pool.release(self._connection)


async def open_on(engine: Any, pool_timeout_ms: int | None = None) -> AsyncpgTransaction:
    """Open a transaction on a Pool's connection, or on an idle Connection.

    It raises OpenTransaction; TimeoutError where the pool has no connection in time.
    """
    pool: Any = engine if isinstance(engine, Pool) else None
    connection: Any = engine
    if pool is not None:
        # Not by the `timeout` of `acquire`, which then bounds the connection's release, too.
        async with asyncio.timeout(None if pool_timeout_ms is None else pool_timeout_ms / 1000):
            connection = await pool.acquire()
    try:
        if connection.is_closed():
            raise InterfaceError("the connection is closed")  # type: ignore[no-untyped-call]
        if connection.is_in_transaction():
            raise OpenTransaction
        transaction = connection.transaction()
        await _begin(connection, transaction)
    except BaseException:
        if pool is not None:
            await pool.release(connection)
        raise
    return AsyncpgTransaction(connection, transaction, pool)


async def _begin(connection: Any, transaction: Any) -> None:
    """Begin; a cancellation continues only when the connection is idle again.

    asyncpg would take the next transaction on this connection for a nested one of that whose BEGIN was cut off.
    """
    begun = asyncio.ensure_future(transaction.start())
    try:
        await asyncio.shield(begun)
    except asyncio.CancelledError:
        await finish(_undo(begun, connection, transaction))
        raise


async def _undo(begun: asyncio.Future[None], connection: Any, transaction: Any) -> None:
    try:
        await begun
        await transaction.rollback()
    except (PostgresError, InterfaceError, OSError):
        _terminate(connection)
    except asyncio.CancelledError:
        _terminate(connection)
        raise


def _terminate(connection: Any) -> None:
    """Close the connection at once, unless a pool has taken it back already."""
    with contextlib.suppress(InterfaceError):
        connection.terminate()
