"""The refusal of a SQLite connection that SQLAlchemy shares, while a transaction of another user is open on it.

A pool of one connection (StaticPool, SingletonThreadPool) gives it to everybody who asks. A transaction opened there
would join the one that is open: its commit would commit that one too, and giving it back would roll that one back.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from twophase.core.errors import OpenTransaction


def require_unshared(bind: Engine | Connection) -> None:
    """Look before a connection is taken from the pool, because giving it back would end the open transaction.

    Raises:
        OpenTransaction: the pool's one connection is in a transaction.
    """
    if bind.dialect.name != "sqlite" or isinstance(bind, Connection):
        return
    if isinstance(bind.pool, StaticPool):
        record: Any = vars(bind.pool).get("connection")  # not made yet, so in no transaction
        raw = None if record is None else record.driver_connection
        if raw is not None and raw.in_transaction:
            raise OpenTransaction
    elif isinstance(bind.pool, SingletonThreadPool):
        # This pool counts who has the connection of the thread, so taking and giving it back ends nothing.
        with bind.connect() as connection:
            require_outside(connection)


def require_outside(connection: Connection) -> None:
    """Look at a SQLite connection before SQLAlchemy's own `begin`.

    Raises:
        OpenTransaction: the driver is in a transaction that was not begun by this Connection.
    """
    driver: Any = connection.connection.driver_connection
    if driver.in_transaction:
        raise OpenTransaction
