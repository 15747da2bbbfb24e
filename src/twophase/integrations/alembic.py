"""Alembic: migrations that leave the barrier tables alone, or install them.

# env.py
context.configure(connection=connection, target_metadata=target_metadata, include_object=include_object)

# versions/…_install_the_barrier.py
def upgrade() -> None:
    install_barrier(op)
"""

from __future__ import annotations

from typing import Any

from twophase.barrier.dialect import DEFAULT_TABLE, META_TABLE, dialect_named, validate_table
from twophase.barrier.installing import script
from twophase.barrier.migrating import install_within
from twophase.core.errors import UnsupportedEngine


def include_object(
    item: Any,  # noqa: ARG001 -- given by position
    name: str | None,
    kind: str,
    reflected: bool,  # noqa: FBT001 -- Alembic calls it by position
    compare_to: Any,
    *,
    tables: tuple[str, ...] = (DEFAULT_TABLE,),
) -> bool:
    """Keep the barrier tables out of `alembic revision --autogenerate`.

    Autogenerate drops each table that the target metadata does not describe. This filter hides the barrier's, unless
    the target metadata describes them (`twophase.barrier.metadata`).

    Arguments:
        item, name, kind, reflected, compare_to: what Alembic gives to its option `include_object`.
        tables: the barrier tables' names, without their schema; other names by
            `functools.partial(include_object, tables=("orders_barrier",))`.

    Returns:
        False for a barrier table that only the database has.

    >>> include_object(None, "barrier", "table", True, None), include_object(None, "orders", "table", True, None)
    (False, True)
    """
    only_in_database = kind == "table" and reflected and compare_to is None
    return not (only_in_database and name in (*tables, META_TABLE))


def install_barrier(operations: Any, table: str = DEFAULT_TABLE) -> None:
    """Install the barrier in a migration's `upgrade`.

    With `--sql`, it writes its statements for an empty database.

    A migration needs no `downgrade` for it: the tables hold decisions, and an unused one does no harm.

    Arguments:
        operations: Alembic's `op`.
        table: `name` or `schema.name`; the schema must exist.

    Raises:
        UnsupportedEngine: another database than SQLite, PostgreSQL, MariaDB and MySQL.
        ConfigurationError: the table's name cannot be one.
    """
    migration = operations.get_context()
    if not migration.as_sql:
        install_within(operations.get_bind(), table)
        return
    dialect = dialect_named(migration.dialect.name)
    if dialect is None:
        raise UnsupportedEngine(f"There is no barrier for {migration.dialect.name!r}.")
    for statement in script(dialect, validate_table(table)):
        operations.execute(statement)
