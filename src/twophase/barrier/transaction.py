"""The interface between the barrier's rules and a database library.

Statements go out, and rows come in. The rules (`producer`, `check_back`, `branch`) are generators: they yield a
`Statement`, get its rows back, and know nothing of sync or async, of SQLAlchemy or a DB-API. An adapter performs them
on one connection, in one transaction that the adapter itself opened and that it alone ends.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from twophase.barrier.dialect import DEFAULT_TABLE, Dialect
from twophase.barrier.placeholders import numbered

Row = Sequence[Any]
T = TypeVar("T")
COMMITTED: Final = "COMMIT"
"""PostgreSQL's tag of a COMMIT that committed.

Of one that rolled an aborted transaction back it is another one.
"""


class Statement(msgspec.Struct, frozen=True):
    """One SQL statement with named parameters, written `:name`.

    They are bound and never interpolated.
    """

    sql: str
    parameters: dict[str, Any]


def say(dialect: Dialect, statement: str, table: str = DEFAULT_TABLE, **values: Any) -> Statement:
    """Return the dialect's text of `statement`, with the values that it names.

    Other `values` are left out.

    >>> from twophase.barrier.dialect import MYSQL
    >>> say(MYSQL, "settings", idle_timeout_s=300, lock_timeout_s=1).parameters
    {'idle_timeout_s': 300}
    """
    sql, names = _text(dialect, statement, table)
    return Statement(sql, {name: values[name] for name in names})


@functools.cache
def _text(dialect: Dialect, statement: str, table: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement's text, and the names in it."""
    sql = dialect.sql(statement, table)
    return sql, numbered(sql)[1]


def text_of(value: Any) -> Any:
    """Return a text that the driver gives as bytes; every other value as it is.

    Drivers of MySQL do so with `use_unicode=0`, and psycopg with the client encoding SQL_ASCII.

    >>> text_of(b"msg"), text_of("msg"), text_of(None)
    ('msg', 'msg', None)
    """
    return value.decode() if isinstance(value, bytes | bytearray) else value


Steps = Generator[Statement, Sequence[Row], T]
"""A rule under way: yields statements, receives their rows, returns T."""


class OpenConnection(Protocol):
    """One connection in a transaction; enough to perform a rule that does not end it."""

    dialect: Dialect

    def execute(self, statement: Statement) -> Sequence[Row]:
        """Run one statement inside this transaction, and return its rows.

        A statement without rows gives an empty sequence.
        """
        ...


class SyncTransaction(OpenConnection, Protocol):
    """One open local transaction on one connection.

    Exactly one `commit` or `rollback` ends it.
    """

    handle: Any
    """The object that the application executes its own statements on.

    It is a Connection or a Session, for example.
    """

    def commit(self, last: Steps[None] | None = None) -> None:
        """Commit, performing the rule `last` first.

        The rule runs behind all that the application could run before COMMIT. An exception means: outcome not known.
        What `last` raises is raised, and nothing is committed.
        """
        ...

    def rollback(self) -> None:
        """Roll back; tolerates a dead connection and a transaction already ended."""
        ...

    def close(self) -> None:
        """Give the connection back; after an unclear commit, discard it.

        It goes back to where the adapter took it from.
        """
        ...


class AsyncTransaction(Protocol):
    """`SyncTransaction` for asyncio."""

    dialect: Dialect
    handle: Any

    async def execute(self, statement: Statement) -> Sequence[Row]: ...

    async def commit(self, last: Steps[None] | None = None) -> None: ...

    async def rollback(self) -> None: ...

    async def close(self) -> None: ...


def perform(steps: Steps[T], transaction: OpenConnection) -> T:
    """Run a rule on a sync transaction.

    An error of the database is raised inside the rule.
    """
    try:
        statement = next(steps)
        while True:
            try:
                rows = transaction.execute(statement)
            except Exception as error:  # noqa: BLE001 -- thrown into the rule, which decides
                statement = steps.throw(error)
            else:
                statement = steps.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def aperform(steps: Steps[T], transaction: AsyncTransaction) -> T:
    """`perform` for an async transaction."""
    try:
        statement = next(steps)
        while True:
            try:
                rows = await transaction.execute(statement)
            except Exception as error:  # noqa: BLE001 -- thrown into the rule, which decides
                statement = steps.throw(error)
            else:
                statement = steps.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result
