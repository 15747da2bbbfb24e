"""Transactions on an async connection of psycopg 3."""

from __future__ import annotations

from typing import Any, cast

import psycopg
from psycopg.rows import tuple_row

from twophase.barrier.adapters.psycopg import claim
from twophase.barrier.dialect import POSTGRESQL
from twophase.barrier.placeholders import pyformat
from twophase.barrier.transaction import COMMITTED, Row, Statement, Steps, aperform
from twophase.core.errors import TransactionLost


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
        self._unclear = False

    async def execute(self, statement: Statement) -> list[Row]:
        # Not of the connection's `cursor_factory`, which may take other placeholders.
        async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(cast("Any", pyformat(statement.sql)), statement.parameters)
            return list(await cursor.fetchall()) if cursor.description else []

    async def commit(self, last: Steps[None] | None = None) -> None:
        if last is not None:
            await aperform(last, self)
        self._unclear = True
        async with psycopg.AsyncCursor(self._connection) as cursor:
            await cursor.execute("commit")
            ended = cursor.statusmessage
        self._unclear = False
        self.ended = True
        if ended != COMMITTED:  # another task's statement came in between, and failed
            raise TransactionLost

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
