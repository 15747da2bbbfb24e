"""The barrier tables for migration tools.

They are given as SQLAlchemy's metadata, and installed inside an open transaction. A migration tool compares the tables
of a database with those that its metadata describes, and drops the others. A dropped
barrier forgets every decision, so each tool must know the tables (I4, I6).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from twophase.barrier.dialect import DEFAULT_TABLE, validate_table
from twophase.barrier.installing import install_rule
from twophase.barrier.transaction import OpenConnection, perform
from twophase.core.errors import ConfigurationError, UnsupportedEngine

if TYPE_CHECKING:
    from sqlalchemy import MetaData


def metadata(table: str = DEFAULT_TABLE) -> MetaData:
    """Describe the barrier tables to SQLAlchemy and Alembic.

    `create_all` on it installs a complete barrier, with the identity of the database. Needs SQLAlchemy.

    Arguments:
        table: `name` or `schema.name`, as `install` takes it.

    Returns:
        A MetaData of two tables, whose columns on each database are those that `install` creates.

    Raises:
        ConfigurationError: the table's name cannot be one, or SQLAlchemy is not installed.

    >>> sorted(metadata().tables)
    ['barrier', 'twophase_meta']
    >>> import sqlalchemy
    >>> engine = sqlalchemy.create_engine("sqlite://")
    >>> metadata().create_all(engine)
    >>> with engine.connect() as connection:
    ...     connection.execute(sqlalchemy.text("select name from twophase_meta")).scalar()
    'identity'
    """
    try:
        from twophase.barrier.adapters.sqlalchemy_tables import describe  # noqa: PLC0415 -- an extra
    except ModuleNotFoundError as error:
        missing = f"the package {error.name!r} is missing, which describes the tables."
        raise ConfigurationError(missing, remedy="Run `pip install 'twophase[sqlalchemy]'`.") from None
    return describe(validate_table(table), lambda connection: install_within(connection, table))


def install_within(connection: Any, table: str = DEFAULT_TABLE) -> list[str]:
    """Install the barrier in the transaction that a migration has open.

    It does the same as `install`; the migration ends the transaction.

    Arguments:
        connection: a SQLAlchemy Connection, or Django's connection of an alias.
        table: `name` or `schema.name`; the schema must exist.

    Returns:
        The statements that changed something, in order.

    Raises:
        UnsupportedEngine: neither of the two, or another database than SQLite, PostgreSQL, MariaDB and MySQL.
        ConfigurationError: the table's name cannot be one.
    """
    borrowed = _borrow(connection)
    return perform(install_rule(borrowed.dialect, table, secrets.token_hex(16)), borrowed)


def _borrow(connection: Any) -> OpenConnection:
    if hasattr(connection, "vendor"):
        from twophase.barrier.adapters import django  # noqa: PLC0415 -- an extra

        return django.BorrowedConnection(connection)
    if hasattr(connection, "dialect") and hasattr(connection, "exec_driver_sql"):
        from twophase.barrier.adapters import sqlalchemy  # noqa: PLC0415 -- an extra

        return sqlalchemy.BorrowedConnection(connection)
    raise UnsupportedEngine(
        f"{type(connection).__module__}.{type(connection).__qualname__} is not a connection of SQLAlchemy or Django."
    )
