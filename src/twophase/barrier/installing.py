"""The creation of the barrier table in a business database, with its identity.

It follows correctness rules 6 and 9. `install` may run any number of times, by several processes at once, and on a
table that dtm made: it adds missing parts and leaves the rest. It returns the statements that it executed, for a
migration tool or a person to read.
"""

from __future__ import annotations

import secrets
from typing import Any

from twophase.barrier.dialect import DEFAULT_TABLE, IDENTITY, META_TABLE, Dialect, split_table, validate_table
from twophase.barrier.fault import code_of
from twophase.barrier.first_look import flaws_of, require_table
from twophase.barrier.open import aopen_transaction, is_async, open_transaction
from twophase.barrier.shelter import give_back
from twophase.barrier.transaction import Row, Statement, Steps, aperform, perform, say, text_of
from twophase.core.database_drivers import driver_missing, extra_of, with_driver
from twophase.core.errors import BarrierTableUnusable, ConfigurationError, UnsupportedEngine

_ADDED_COLUMNS = ("token", "body", "prepared_at")


def install(engine: Any, table: str = DEFAULT_TABLE) -> list[str]:
    """Create or complete the barrier table.

    Arguments:
        engine: whatever `open_transaction` takes, or a URL for SQLAlchemy, with a sync driver, an async one or none.
        table: `name` or `schema.name`; the schema must exist.

    Returns:
        The statements that changed something, in order; empty when all was there.

    Raises:
        ConfigurationError: a URL of a database we do not know, or whose driver is not installed; or the table's name
            cannot be one.
        BarrierTableUnusable: a table of this name stands there and cannot be made a barrier.

    >>> import sqlite3
    >>> bank = sqlite3.connect(":memory:")
    >>> [statement.split("(")[0].strip() for statement in install(bank)]
    ['create table main.barrier', 'create table main.twophase_meta', 'insert into main.twophase_meta']
    >>> install(bank)
    []
    """
    if isinstance(engine, str) and "://" in engine:
        return _install_url(engine, table)
    if is_async(engine):
        raise UnsupportedEngine("This is an async engine: await `ainstall(engine)`.")
    transaction = open_transaction(engine)
    try:
        executed = perform(install_rule(transaction.dialect, table, secrets.token_hex(16)), transaction)
        transaction.commit()
    except BaseException:
        transaction.rollback()
        raise
    finally:
        transaction.close()
    return executed


async def ainstall(engine: Any, table: str = DEFAULT_TABLE) -> list[str]:
    """`install` for an async engine."""
    transaction = await aopen_transaction(engine)
    try:
        executed = await aperform(install_rule(transaction.dialect, table, secrets.token_hex(16)), transaction)
        await transaction.commit()
    finally:
        await give_back(transaction)
    return executed


def install_rule(dialect: Dialect, table: str, identity: str) -> Steps[list[str]]:
    """Perform `install`; write `identity` only where there is no identity."""
    schema, name = split_table(validate_table(table))
    executed: list[str] = []

    if "install_lock" in dialect.statements:
        yield say(dialect, "install_lock")
    try:
        columns = yield say(dialect, "list_columns", table, schema=schema, name=name)
        if not columns:
            yield from _do(say(dialect, "create_table", table), executed)
        else:
            yield from _complete(dialect, table, columns, executed)
            yield from _mend(dialect, table, executed)
        yield from require_table(dialect, table)
        yield from _name(dialect, table, identity, executed)
    finally:
        if "install_unlock" in dialect.statements:
            yield say(dialect, "install_unlock")
    return executed


def _name(dialect: Dialect, table: str, identity: str, executed: list[str]) -> Steps[None]:
    """Make the meta table, and give the barrier its identity.

    The meta table goes into the schema of the barrier table that was found.
    """
    schema, _ = split_table(table)
    quoted = ""
    if schema is None and "read_place" in dialect.statements:
        quoted = str(text_of((yield say(dialect, "read_place", table))[0][0]))
    if not (yield say(dialect, "list_columns", table, schema=quoted or schema, name=META_TABLE)):
        yield from _do(Statement(dialect.sql("create_meta", table, schema=quoted), {}), executed)
    known = yield Statement(dialect.sql("read_meta", table, schema=quoted), {})
    if not any(text_of(row[0]) == IDENTITY for row in known):
        sql = dialect.sql("insert_identity", table, schema=quoted)
        yield from _do(Statement(sql, {"identity": identity}), executed)
    if quoted and not any(text_of(row[0]) == IDENTITY for row in (yield say(dialect, "read_meta", table))):
        raise ConfigurationError(
            f"{META_TABLE} of another schema comes before that of the barrier table, which is {quoted}.{table}.",
            remedy="Give the table with its schema here and to every engine; or change the search path.",
        )


def _do(statement: Statement, executed: list[str]) -> Steps[None]:
    yield statement
    executed.append(statement.sql)


def script(dialect: Dialect, table: str = DEFAULT_TABLE) -> list[str]:
    """Return the statements that a fresh database needs.

    They are for people who run DDL manually. The database that executes them makes its identity, so one script may be
    used for several: two databases of one identity would answer for each other.

    >>> from twophase.barrier.dialect import POSTGRESQL
    >>> len(script(POSTGRESQL))
    3
    """
    identity = dialect.sql("insert_identity", table).replace(":identity", f"({dialect.sql('new_identity')})")
    return [dialect.sql("create_table", table), dialect.sql("create_meta", table), identity]


def _complete(dialect: Dialect, table: str, columns: Row, executed: list[str]) -> Steps[None]:
    """Add twophase's columns to a table that dtm made.

    Its keys then compare byte by byte.
    """
    present = {str(text_of(name)).lower(): str(text_of(collation)) for name, collation in columns}
    missing = [f"add_{column}" for column in _ADDED_COLUMNS if column not in present]
    if "make_binary" in dialect.statements and not present.get("gid", "").endswith("_bin"):
        missing.append("make_binary")
    for statement in missing:
        step = say(dialect, statement, table)
        yield step
        executed.append(step.sql)


def _mend(dialect: Dialect, table: str, executed: list[str]) -> Steps[None]:
    """Give a table that others made the barrier's key, and advance its sequence.

    A sequence that was left behind the rows is set to its right value.
    """
    flaws = {str(text_of(row[0])) for row in (yield from flaws_of(dialect, table))}
    not_null = "make_not_null" if "make_not_null" in dialect.statements else "make_binary"
    for flaw, statement in (("null", not_null), ("key", "add_key")):
        if flaw not in flaws or statement not in dialect.statements:
            continue
        step = say(dialect, statement, table)
        try:
            yield step
        except Exception as error:
            raise BarrierTableUnusable(
                f"The barrier table {table!r} has no unique key without nulls over gid, branch_id, op and "
                f"barrier_id, and its rows do not take one ({code_of(error)}).",
                remedy="Remove rows with nulls in these columns, and rows that share all four; then install again.",
            ) from error
        executed.append(step.sql)
    if "advance_sequence" in dialect.statements:
        step = say(dialect, "advance_sequence", table, qualified=table)
        if (yield step):
            executed.append(step.sql)


def _install_url(url: str, table: str) -> list[str]:
    scheme = url.partition("://")[0]
    if extra_of(scheme) is None:
        raise ConfigurationError(
            f"{scheme} is not a database that twophase supports.",
            remedy="Give a URL of sqlite, postgresql, mysql or mariadb.",
        )
    try:
        return _install_known(url, table)
    except ModuleNotFoundError as error:
        raise driver_missing(error, scheme) from error


def _install_known(url: str, table: str) -> list[str]:
    import asyncio  # noqa: PLC0415 -- only for async drivers

    import sqlalchemy  # noqa: PLC0415 -- an extra; engines that are given bring their own library

    made = sqlalchemy.make_url(url)
    made = made.set(drivername=with_driver(made.drivername))
    if made.get_dialect().is_async:
        return asyncio.run(_install_async_url(made, table))
    engine = sqlalchemy.create_engine(made, hide_parameters=True)
    try:
        return install(engine, table)
    finally:
        engine.dispose()


async def _install_async_url(url: Any, table: str) -> list[str]:
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 -- an extra

    engine = create_async_engine(url, hide_parameters=True)
    try:
        return await ainstall(engine, table)
    finally:
        await engine.dispose()
