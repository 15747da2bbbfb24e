"""Transactions on a connection of psycopg 3.

Threads, or tasks, may share a connection, which has one transaction at a time. The server knows of it only from its
first statement on, so transactions are also claimed here: two would be one, and end with each other.
"""

from __future__ import annotations

import threading
from typing import Any, Final, Protocol, cast
from weakref import WeakValueDictionary

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
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
        self._unclear = False

    def execute(self, statement: Statement) -> list[Row]:
        # Not of the connection's `cursor_factory`, which may take other placeholders.
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(cast("Any", pyformat(statement.sql)), statement.parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def commit(self, last: Steps[None] | None = None) -> None:
        if last is not None:
            perform(last, self)
        self._unclear = True
        with psycopg.Cursor(self._connection) as cursor:
            cursor.execute("commit")
            ended = cursor.statusmessage
        self._unclear = False
        self.ended = True
        if ended != COMMITTED:  # another thread's statement came in between, and failed
            raise TransactionLost

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
