"""Transactions on SQLAlchemy's AsyncEngine, AsyncConnection and AsyncSession.

Each is the sync transaction of `adapters.sqlalchemy`, run inside the greenlet that SQLAlchemy makes for it.

On SQLite a statement of this library ends before a cancellation continues. Of one that is cut off, aiosqlite's thread
makes rows that are not read. SQLite keeps the transaction of such a statement, and its write lock, also when the
connection is closed, until Python collects the cursor: perhaps for as long as the process lives.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

from twophase.barrier.adapters.sqlalchemy import ConnectionTransaction, SessionTransaction
from twophase.barrier.adapters.sqlalchemy_sharing import require_unshared
from twophase.barrier.dialect import SQLITE
from twophase.barrier.open import bind_of
from twophase.barrier.shelter import finish, settle, whole
from twophase.barrier.transaction import Row, Statement, Steps

T = TypeVar("T")
I = TypeVar("I", ConnectionTransaction, SessionTransaction)  # noqa: E741


class AsyncSqlAlchemyTransaction:
    """One transaction; made by `open_on`."""

    def __init__(
        self, host: AsyncConnection | AsyncSession, inner: ConnectionTransaction | SessionTransaction, *, owned: bool
    ) -> None:
        self.dialect = inner.dialect
        self.handle: Any = host
        self._host = host
        self._inner = inner
        self._owned = owned

    async def execute(self, statement: Statement) -> list[Row]:
        return await self._undivided(self._host.run_sync(lambda _: self._inner.execute(statement)))

    async def commit(self, last: Steps[None] | None = None) -> None:
        await self._undivided(self._host.run_sync(lambda _: self._inner.commit(last)))

    async def rollback(self) -> None:
        await self._host.run_sync(lambda _: self._inner.rollback())

    async def close(self) -> None:
        try:
            await self._host.run_sync(lambda _: self._inner.close())
        finally:
            if self._owned:
                await self._host.close()

    async def _undivided(self, work: Coroutine[Any, Any, T]) -> T:
        return await (whole(work) if self.dialect is SQLITE else work)


async def open_on(
    bind: AsyncEngine | AsyncConnection | AsyncSession, lock_timeout_ms: int | None = None
) -> AsyncSqlAlchemyTransaction:
    """Open a transaction.

    It raises OpenTransaction, AutocommitRefused and UnsupportedEngine.
    """
    if isinstance(bind, AsyncSession):
        session = await _opened(bind, lambda sync: SessionTransaction(sync, lock_timeout_ms))
        return AsyncSqlAlchemyTransaction(bind, session, owned=False)
    owned = isinstance(bind, AsyncEngine)
    if isinstance(bind, AsyncEngine):
        require_unshared(bind.sync_engine)
    connection = await bind.connect() if isinstance(bind, AsyncEngine) else bind
    try:
        inner = await _opened(connection, lambda sync: ConnectionTransaction(sync, lock_timeout_ms, is_pooled=owned))
    except BaseException:
        if owned:
            await finish(connection.close())
        raise
    return AsyncSqlAlchemyTransaction(connection, inner, owned=owned)


async def _opened(host: AsyncConnection | AsyncSession, open_: Callable[[Any], I]) -> I:
    """Open a transaction on a connection or session.

    One whose caller has gone is ended again.
    """
    dialect = bind_of(host.sync_session).dialect if isinstance(host, AsyncSession) else host.dialect
    if dialect.name != SQLITE.name:
        return await host.run_sync(open_)
    settled = await settle(host.run_sync(open_))
    if settled.cancelled is not None:
        if not settled.task.cancelled() and settled.task.exception() is None:
            await finish(_end(host, settled.task.result()))
        raise settled.cancelled
    inner: I = settled.task.result()
    return inner


async def _end(host: AsyncConnection | AsyncSession, inner: ConnectionTransaction | SessionTransaction) -> None:
    await host.run_sync(lambda _: inner.rollback())
    await host.run_sync(lambda _: inner.close())
