"""Transactions on a connection of psycopg 3.

Threads, or tasks, may share a connection, which has one transaction at a time. The server knows of it only from its
first statement on, so transactions are also claimed here: two would be one, and end with each other.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any, Final, Protocol, cast
from weakref import WeakValueDictionary

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from twophase.barrier.dialect import POSTGRESQL
from twophase.barrier.placeholders import pyformat
from twophase.barrier.transaction import COMMITTED, Row, Statement, Steps, perform
from twophase.core.errors import AutocommitRefused, OpenTransaction, TransactionLost, UnsupportedEngine


class _Ending(Protocol):
    ended: bool


_claiming: Final = threading.Lock()
_under_way: Final = WeakValueDictionary[int, _Ending]()
"""The transaction that began last on a connection, by the connection's id.

It keeps the connection alive.
"""


def require_committed(ended: PGresult | None) -> None:
    """Raise TransactionLost where COMMIT has ended a transaction that had failed."""
    if ended is None or ended.command_status != COMMITTED.encode():
        raise TransactionLost


def claim(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], transaction: _Ending) -> None:
    """Let a transaction be the only one on its connection; raises as `require_usable`."""
    with _claiming:
        require_usable(connection)
        other = _under_way.get(id(connection))
        if other is not None and not other.ended:
            raise OpenTransaction
        _under_way[id(connection)] = transaction


def require_usable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse a connection whose transaction could not be begun and ended here.

    Raises:
        psycopg.OperationalError: it is closed.
        UnsupportedEngine: it is in pipeline mode.
        AutocommitRefused: every statement would commit by itself.
        OpenTransaction: a transaction is open already.
    """
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise UnsupportedEngine(
            "The connection is in pipeline mode, in which a statement's rows and errors come later.",
            remedy="End the connection's `pipeline()` block before, and begin another one inside if it is needed.",
        )
    if connection.closed:
        raise psycopg.OperationalError("the connection is closed")
    if connection.autocommit:
        raise AutocommitRefused
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise OpenTransaction


def executing(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any], statement: Statement) -> Any:
    """Return the steps by which psycopg executes, for a connection whose lock is held."""
    return cursor._execute_gen(cast("Any", pyformat(statement.sql)), statement.parameters)  # noqa: SLF001 -- its own takes the lock


def committing(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Any:
    """Return the steps by which psycopg commits, with COMMIT's tag; the lock is held."""
    return connection._exec_command(b"commit")  # noqa: SLF001 -- its own commit keeps no tag


class PsycopgTransaction:
    """One transaction on an idle connection.

    psycopg begins it with the first statement.
    """

    dialect = POSTGRESQL

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        """Open it; raises AutocommitRefused, OpenTransaction, UnsupportedEngine."""
        self.ended = False
        claim(connection, self)
        self.handle: Any = connection
        self._connection = connection
        self._is_held = False
        self._unclear = False

    def execute(self, statement: Statement) -> list[Row]:
        # Not of the connection's `cursor_factory`, which may take other placeholders.
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            with nullcontext() if self._is_held else self._connection.lock:
                self._connection.wait(executing(cursor, statement))
            return list(cursor.fetchall()) if cursor.description else []

    def commit(self, last: Steps[None] | None = None) -> None:
        with self._connection.lock:  # psycopg's, so that no other thread ends the transaction behind the look
            self._is_held = True
            try:
                if last is not None:
                    perform(last, self)
                self._unclear = True
                ended = self._connection.wait(committing(self._connection))
            finally:
                self._is_held = False
        self._unclear = False
        self.ended = True
        require_committed(ended)

    def rollback(self) -> None:
        if self.ended:  # what is open now is another task's or thread's
            return
        try:
            self._connection.rollback()
        except psycopg.Error:
            self._unclear = True
        finally:
            self.ended = True

    def close(self) -> None:
        if self._unclear:
            self._connection.close()
