"""Transactions on SQLAlchemy's AsyncEngine, AsyncConnection and AsyncSession.

Each is the sync transaction of `adapters.sqlalchemy`, run inside the greenlet that SQLAlchemy makes for it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

from twophase.barrier.adapters.sqlalchemy import ConnectionTransaction, SessionTransaction
from twophase.barrier.adapters.sqlalchemy_sharing import require_unshared
from twophase.barrier.shelter import finish
from twophase.barrier.transaction import Row, Statement, Steps


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
        return await self._host.run_sync(lambda _: self._inner.execute(statement))

    async def commit(self, last: Steps[None] | None = None) -> None:
        await self._host.run_sync(lambda _: self._inner.commit(last))

    async def rollback(self) -> None:
        await self._host.run_sync(lambda _: self._inner.rollback())

    async def close(self) -> None:
        try:
            await self._host.run_sync(lambda _: self._inner.close())
        finally:
            if self._owned:
                await self._host.close()


async def open_on(
    bind: AsyncEngine | AsyncConnection | AsyncSession, lock_timeout_ms: int | None = None
) -> AsyncSqlAlchemyTransaction:
    """Open a transaction.

    It raises OpenTransaction, AutocommitRefused and UnsupportedEngine.
    """
    if isinstance(bind, AsyncSession):
        session = await bind.run_sync(lambda sync: SessionTransaction(sync, lock_timeout_ms))
        return AsyncSqlAlchemyTransaction(bind, session, owned=False)
    owned = isinstance(bind, AsyncEngine)
    if isinstance(bind, AsyncEngine):
        require_unshared(bind.sync_engine)
    connection = await bind.connect() if isinstance(bind, AsyncEngine) else bind
    try:
        inner = await connection.run_sync(lambda sync: ConnectionTransaction(sync, lock_timeout_ms))
    except BaseException:
        if owned:
            await finish(connection.close())
        raise
    return AsyncSqlAlchemyTransaction(connection, inner, owned=owned)
