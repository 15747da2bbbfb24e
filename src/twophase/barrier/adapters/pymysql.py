"""Transactions on a connection of PyMySQL."""

from __future__ import annotations

from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.constants import SERVER_STATUS
from pymysql.cursors import Cursor

from twophase.barrier.dialect import MYSQL
from twophase.barrier.placeholders import pyformat
from twophase.barrier.transaction import Row, Statement, Steps, perform
from twophase.core.errors import AutocommitRefused, OpenTransaction


def is_in_transaction(connection: Any) -> bool:
    """Return True for a connection whose last reply came from inside a transaction.

    The stubs lack the status that every reply carries; a connection that never connected has none.
    """
    return bool(getattr(connection, "server_status", 0) & SERVER_STATUS.SERVER_STATUS_IN_TRANS)


class PymysqlTransaction:
    """One transaction on an idle connection.

    The server begins it with the first statement that touches a table.
    """

    dialect = MYSQL

    def __init__(self, connection: Connection[Any]) -> None:
        """Open it; raises AutocommitRefused, OpenTransaction."""
        connection.ping(reconnect=False)  # fetches the server's own view of this session
        if connection.get_autocommit():
            raise AutocommitRefused
        if is_in_transaction(connection):
            raise OpenTransaction
        self.handle: Any = connection
        self._connection = connection
        self._unclear = False

    def execute(self, statement: Statement) -> list[Row]:
        with self._connection.cursor(Cursor) as cursor:
            cursor.execute(pyformat(statement.sql), statement.parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def commit(self, last: Steps[None] | None = None) -> None:
        if last is not None:
            perform(last, self)
        self._unclear = True
        self._connection.commit()
        self._unclear = False

    def rollback(self) -> None:
        try:
            self._connection.rollback()
        except pymysql.Error:
            self._unclear = True

    def close(self) -> None:
        if not self._unclear:
            try:
                self.execute(Statement(MYSQL.sql("restore"), {}))
            except pymysql.Error:
                self._unclear = True
        if self._unclear and self._connection.open:
            self._connection.close()
