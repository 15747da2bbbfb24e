"""Transactions on an async connection of psycopg 3."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from twophase.barrier.adapters.psycopg import claim, committing, executing, require_committed
from twophase.barrier.dialect import POSTGRESQL
from twophase.barrier.transaction import Row, Statement, Steps, aperform


class AsyncPsycopgTransaction:
    """One transaction on an idle connection.

    psycopg begins it with the first statement.
    """

    dialect = POSTGRESQL

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Open it; raises AutocommitRefused, OpenTransaction, UnsupportedEngine."""
        self.ended = False
        claim(connection, self)
        self.handle: Any = connection
        self._connection = connection
        self._is_held = False
        self._unclear = False

    async def execute(self, statement: Statement) -> list[Row]:
        # Not of the connection's `cursor_factory`, which may take other placeholders.
        async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            async with nullcontext() if self._is_held else self._connection.lock:
                await self._connection.wait(executing(cursor, statement))
            return list(await cursor.fetchall()) if cursor.description else []

    async def commit(self, last: Steps[None] | None = None) -> None:
        async with self._connection.lock:  # psycopg's, so that no other task ends the transaction behind the look
            self._is_held = True
            try:
                if last is not None:
                    await aperform(last, self)
                self._unclear = True
                ended = await self._connection.wait(committing(self._connection))
            finally:
                self._is_held = False
        self._unclear = False
        self.ended = True
        require_committed(ended)

    async def rollback(self) -> None:
        if self.ended:  # what is open now is another task's or thread's
            return
        try:
            await self._connection.rollback()
        except psycopg.Error:
            self._unclear = True
        finally:
            self.ended = True

    async def close(self) -> None:
        if self._unclear:
            await self._connection.close()
