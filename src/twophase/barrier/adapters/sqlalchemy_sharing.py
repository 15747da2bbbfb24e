"""The refusal of a shared SQLite connection in another user's transaction.

SQLAlchemy shares the connection: a pool of one connection (StaticPool, SingletonThreadPool) gives it to every caller.
A transaction opened there would join the open one: its commit would commit that one too, and giving the connection
back would roll that one back.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from twophase.core.errors import OpenTransaction


def require_unshared(bind: Engine | Connection) -> None:
    """Refuse a shared connection before it is taken from the pool.

    Giving it back would end the open transaction.

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


_OPEN: Final = "twophase.transaction"


def claim(connection: Connection) -> None:
    """Note that a transaction of this library is open on a shared connection.

    A Session that has begun before cannot see that the driver's transaction is another one's.

    Raises:
        OpenTransaction: another transaction of this library is open on it.
    """
    if not isinstance(connection.engine.pool, StaticPool | SingletonThreadPool):
        return
    root = connection.get_transaction()
    other = connection.info.get(_OPEN)
    if other is not None and other is not root and other.is_active:
        raise OpenTransaction
    connection.info[_OPEN] = root


def require_outside(connection: Connection) -> None:
    """Look at a SQLite connection before SQLAlchemy's own `begin`.

    Raises:
        OpenTransaction: the driver is in a transaction that was not begun by this Connection.
    """
    adapted: Any = connection.connection.dbapi_connection
    if connection.dialect.get_driver_connection(adapted).in_transaction:
        raise OpenTransaction
