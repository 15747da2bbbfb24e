"""The barrier tables as SQLAlchemy's metadata.

They equal the tables that `dialects/*/create_*.sql` create on each database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Identity,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from twophase.barrier.dialect import META_TABLE, constraint_of, split_table

_MYSQL = ("mysql", "mariadb")
_IN_MYSQL: dict[str, Any] = {
    f"{name}_{option}": value
    for name in _MYSQL
    for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}


class _Now(FunctionElement[Any]):
    """The time of the insert, to the microsecond, by the database's clock."""

    inherit_cache = True
    type = DateTime()


@compiles(_Now)
def _now(_element: _Now, _compiler: SQLCompiler, **_options: Any) -> str:
    return "now()"


@compiles(_Now, "mysql")
@compiles(_Now, "mariadb")
def _now_in_mysql(_element: _Now, _compiler: SQLCompiler, **_options: Any) -> str:
    return "current_timestamp(6)"


@compiles(_Now, "sqlite")
def _now_in_sqlite(_element: _Now, _compiler: SQLCompiler, **_options: Any) -> str:
    return "(strftime('%Y-%m-%d %H:%M:%f', 'now'))"


def describe(table: str, complete: Callable[[Connection], object]) -> MetaData:
    """Build the MetaData of one barrier; see `twophase.barrier.metadata`.

    Arguments:
        table: a validated name.
        complete: run after `create_all`, in its transaction.
    """
    schema, name = split_table(table)
    described = MetaData(schema=schema)
    _barrier(described, name)
    Table(
        META_TABLE,
        described,
        Column("name", String(64), primary_key=True),
        Column("value", String(255), nullable=False),
        **_IN_MYSQL,
    )

    @event.listens_for(described, "after_create")
    def complete_it(_described: MetaData, connection: Connection, **_options: Any) -> None:
        complete(connection)

    return described


def _barrier(described: MetaData, name: str) -> None:
    moment = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *_MYSQL).with_variant(Text(), "sqlite")
    Table(
        name,
        described,
        Column("id", BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True),
        Column("trans_type", _text(45), nullable=False, server_default=""),
        Column("gid", _text(128), nullable=False),
        Column("branch_id", _text(128), nullable=False),
        Column("op", _text(45), nullable=False),
        Column("barrier_id", _text(45), nullable=False),
        Column("reason", _text(45), nullable=False, server_default=""),
        Column("create_time", moment, server_default=_Now()),
        Column("update_time", moment, server_default=_Now()),
        Column("token", _text(64)),
        Column("body", LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQL)),
        Column("prepared_at", BigInteger().with_variant(Integer(), "sqlite")),
        UniqueConstraint("gid", "branch_id", "op", "barrier_id", name=constraint_of(name)),
        sqlite_autoincrement=True,
        **_IN_MYSQL,
    )


def _text(length: int) -> TypeEngine[str]:
    return String(length).with_variant(Text(), "sqlite")
