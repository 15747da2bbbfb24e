"""The ledger's database, and the installation of its tables.

The reference to the database travels in Spark's plan, so it never carries a password; it is resolved where a connection
is opened, on the driver and on every executor.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, TextClause
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from twophase.barrier import install
from twophase.barrier.fault import code_of
from twophase.core.errors import ConfigurationError, LedgerUnavailable
from twophase_spark.source.options.address import locate, require_no_secret

WAIT_FOR_WRITER_S = 60
_STEPS = 10_000
"""Steps of SQLite between two looks at the clock: about a millisecond."""
_TABLES = (
    "create_batch",
    "create_batch_index",
    "create_writer",
    "create_writer_index",
    "create_message",
    "create_message_index",
)


@functools.cache
def statement(name: str) -> TextClause:
    """Return the statement in `sql/<name>.sql`."""
    text = (importlib.resources.files("twophase_spark.sink") / "sql" / f"{name}.sql").read_text("utf-8")
    return sqlalchemy.text("\n".join(line for line in text.splitlines() if not line.startswith("--")))


def checked_reference(reference: str) -> str:
    """Return the value of option `ledger`, when it may stand in a plan.

    Raises:
        ConfigurationError: it carries a password, or may carry one.
    """
    with _named_ledger():
        return require_no_secret(reference)


@functools.lru_cache(maxsize=8)
def engine_of(reference: str, wait_s: int | None = None) -> Engine:
    """Return the engine for a ledger, one a process.

    Arguments:
        reference: as `checked_reference` returns it.
        wait_s: seconds to wait for a connection; by default as long as a writer may take.

    Raises:
        ConfigurationError: there is no such variable or file, or neither SQLite nor PostgreSQL is meant.
    """
    with _named_ledger():
        url = sqlalchemy.make_url(locate(reference, "ledger").url)
    bounds: dict[str, Any] = {} if wait_s is None else {"pool_timeout": wait_s}
    if url.get_backend_name() == "sqlite":
        return sqlalchemy.create_engine(
            url, hide_parameters=True, connect_args={"timeout": WAIT_FOR_WRITER_S}, **bounds
        )
    if url.get_backend_name() != "postgresql":
        raise ConfigurationError("Option ledger: the ledger is kept in SQLite or PostgreSQL.")
    if wait_s is not None:
        bounds["connect_args"] = {"connect_timeout": wait_s}
    return sqlalchemy.create_engine(
        url.set(drivername="postgresql+psycopg"), hide_parameters=True, pool_pre_ping=True, pool_size=2, **bounds
    )


def install_ledger(engine: Engine) -> None:
    """Make the tables where they are missing.

    It may be called again, and by several processes at once.

    Raises:
        LedgerUnavailable: the database cannot be used.
    """
    with speaking():
        if _is_installed(engine):
            return
        install(engine)
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                # CREATE TABLE IF NOT EXISTS fails when two run it at once; the barrier's installer takes this lock too.
                connection.execute(sqlalchemy.text("select pg_advisory_xact_lock(7020188240195215952)"))
            for table in _TABLES:
                connection.execute(statement(table))


def require_ledger(engine: Engine) -> None:
    """Refuse a database without the ledger's tables; nothing is made there.

    Raises:
        LedgerUnavailable: it has none, or cannot be used.
    """
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    is_there = file is None or Path(file).is_file()
    if is_there:
        with speaking(), engine.connect():  # a database that does not answer has another error than one without tables
            pass
    if not is_there or not _is_installed(engine):
        raise LedgerUnavailable(
            "This database has no ledger of the Spark sink, or does not show it to this user.",
            remedy="Name the database that is the sink's option ledger.",
        )


@contextlib.contextmanager
def speaking() -> Iterator[None]:
    """Turn errors of the database library into LedgerUnavailable, without their text.

    It may carry values and addresses.
    """
    try:
        yield
    except IntegrityError:
        raise  # a key that comes twice is the rows' fault, and the caller reports it
    except SQLAlchemyError as error:
        raise LedgerUnavailable(f"The ledger's database failed: {code_of(error)}.") from _bare(error)


def run(connection: Connection, name: str, **values: Any) -> list[Any]:
    """Execute a statement; return its rows, if it has some."""
    result = connection.execute(statement(name), values)
    return list(result.fetchall()) if result.returns_rows else []


@contextlib.contextmanager
def bounded(connection: Connection, statement_ms: int) -> Iterator[None]:
    """Bound the time of each statement in the block, with its waits for locks.

    The block is one transaction.
    """
    if connection.dialect.name == "postgresql":
        run(connection, "bound_statements_postgresql", statement_timeout=f"{statement_ms}ms")
        yield
        return
    driver: Any = connection.connection.driver_connection
    (wait_ms,) = driver.execute("pragma busy_timeout").fetchone()
    ends_s = time.monotonic() + statement_ms / 1000
    driver.execute(f"pragma busy_timeout = {statement_ms}")
    driver.set_progress_handler(lambda: time.monotonic() > ends_s, _STEPS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)
        driver.execute(f"pragma busy_timeout = {wait_ms}")


def run_many(connection: Connection, name: str, rows: list[dict[str, Any]]) -> None:
    """Execute a statement for each row."""
    if rows:
        connection.execute(statement(name), rows)


def _is_installed(engine: Engine) -> bool:
    try:
        with engine.connect() as connection:
            connection.execute(statement("exists"))
            return bool(run(connection, "read_identity"))
    except DBAPIError:
        return False  # the installer meets the error again and reports it


def _bare(error: SQLAlchemyError) -> Exception | None:
    return None if isinstance(error, DBAPIError) else error


@contextlib.contextmanager
def _named_ledger() -> Iterator[None]:
    """Apply the reference rules of the source's option `url` under this option's name."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(error.message.replace("Option url", "Option ledger"), remedy=error.remedy) from None
