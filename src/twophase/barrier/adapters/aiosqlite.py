"""Transactions on a connection of aiosqlite.

Each is the sync transaction of `adapters.sqlite3`, run in the thread of the connection. A cancellation ends the wait
for that thread and not its work. So an end is queued behind the work, and finds what the work has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import aiosqlite

from twophase.barrier.adapters.sqlite3 import Sqlite3Transaction
from twophase.barrier.dialect import SQLITE
from twophase.barrier.shelter import finish
from twophase.barrier.transaction import Row, Statement, Steps

T = TypeVar("T")


class AiosqliteTransaction:
    """One transaction; made by `open_on`."""

    dialect = SQLITE

    def __init__(self, connection: aiosqlite.Connection) -> None:
        """Nothing happens yet."""
        self.handle: Any = connection
        self._inner: Sqlite3Transaction | None = None

    async def begin(self, lock_timeout_ms: int | None) -> None:
        """Open it, taking the write lock; raises what Sqlite3Transaction raises."""
        await self._run(lambda: self._open(lock_timeout_ms))

    async def execute(self, statement: Statement) -> list[Row]:
        return await self._run(lambda: self._opened.execute(statement))

    async def commit(self, last: Steps[None] | None = None) -> None:
        await self._run(lambda: self._opened.commit(last))

    async def rollback(self) -> None:
        await self._run(self._opened.rollback)

    async def close(self) -> None:
        await self._run(self._opened.close)

    async def abandon(self) -> None:
        """End what `begin` opened after its caller had gone."""
        await self._run(lambda: None if self._inner is None else self._inner.close())

    async def _run(self, work: Callable[[], T]) -> T:
        # No public method runs a function in the connection's thread; SQLAlchemy uses the same queue.
        done: T = await self.handle._execute(work)  # noqa: SLF001
        return done

    def _open(self, lock_timeout_ms: int | None) -> None:
        self._inner = Sqlite3Transaction(self.handle._conn, lock_timeout_ms)  # noqa: SLF001 -- as in `_run`

    @property
    def _opened(self) -> Sqlite3Transaction:
        assert self._inner is not None, "begin comes first"
        return self._inner


async def open_on(connection: aiosqlite.Connection, lock_timeout_ms: int | None = None) -> AiosqliteTransaction:
    """Open a transaction on an idle connection.

    It raises AutocommitRefused and OpenTransaction.
    """
    transaction = AiosqliteTransaction(connection)
    try:
        await transaction.begin(lock_timeout_ms)
    except asyncio.CancelledError:
        await finish(transaction.abandon())
        raise
    return transaction
