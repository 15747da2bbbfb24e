"""Which schema version a database has, and how an older one becomes the newest.

Versions only go forward, each step in one transaction with its number, and one process at a time: an advisory lock is
held meanwhile, which the others wait for within a bound. A newer version is refused, because what this code does not
know it would break; a schema with some of our tables but without its version is half of something, and is refused too.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import logging
from collections.abc import Iterator
from typing import Final

from asyncpg.exceptions import LockNotAvailableError

from twophase.core.errors import ConfigurationError, NotAStore, SchemaMissing, SchemaTooNew, StoreUnavailable
from twophase.stores.migrations import Migration, released
from twophase.stores.postgres import statements
from twophase.stores.postgres.connection import Connection

SCHEMA_VERSION: Final = 8

_FOLDER = importlib.resources.files("twophase.stores.postgres")
_TABLES: Final = {
    "message": 1,
    "history": 1,
    "attempt": 1,
    "node": 1,
    "store_meta": 1,
    "topic": 2,
    "audit_log": 6,
    "queue_entry": 7,
    "queue_owner": 8,
}
"""Each with the version that brought it."""
_FUNCTIONS: Final = ("twophase_flush", "twophase_adopt")
_LOCK: Final = 0x32504D53
"""The four letters 2PMS; the other half of the lock's key is the schema."""
_LOCK_WAIT_S: Final = 60.0
_LOCK_REPORTED_S: Final = 2.0
"""The time between two notices of a process that waits for the lock."""
_LATE_S: Final = 5.0
"""A server that is there answers by then, also the largest catalog."""
_log = logging.getLogger("twophase.store")


def migrations() -> tuple[Migration, ...]:
    """Return the released migrations in their order, from version 2 on."""
    return released(_FOLDER / "migrations")


def schema() -> str:
    """Return the statements that make a new store of the newest version."""
    return "\n".join(
        (_FOLDER / f"{name}.sql").read_text()
        for name in ("schema", "flush", "flush_born", "flush_of_4", "adopt", "audit", "append", "append_of_7", "own")
    )


async def identify(connection: Connection, database: str, newest: int = SCHEMA_VERSION) -> int:
    """Return the schema version; 0 where there is nothing of twophase's.

    It changes nothing.

    Raises:
        NotAStore: another program's tables have the names of twophase's.
        SchemaMissing: some of the tables exist, and not the others.
        SchemaTooNew: a newer version than `newest`.
        ConfigurationError: there is no schema to look into.
        asyncpg.PostgresError: as it comes.
    """
    if await connection.fetchval("select current_schema()") is None:
        raise ConfigurationError(f"{database}: its search_path names no schema that exists.")
    row = await connection.fetchrow(statements.WHAT_IS_THERE, list(_TABLES), list(_FUNCTIONS))
    present, versioned, functions = row
    if not present:
        return 0
    if not versioned:
        raise NotAStore(
            f"{database} has tables of another program ({', '.join(sorted(present))}).",
            remedy="Give the coordinator a database, or a schema (?options=-csearch_path%3Dname), of its own.",
        )
    version = await connection.fetchval("select value from store_meta where name = 'schema_version'")
    if version is not None and version > newest:
        raise SchemaTooNew(f"{database} has schema version {version}; this twophase knows {newest} at most.")
    expected = {table for table, since in _TABLES.items() if version is None or since <= version}
    missing = sorted({*expected, *_FUNCTIONS} - {*present, *functions})
    if version is None or missing:
        raise SchemaMissing(
            f"{database}: the schema is incomplete ({', '.join(missing) or 'no schema_version'}).",
            remedy="Restore it from a backup; or drop the rest of it when there is nothing to keep, and migrate anew.",
        )
    assert isinstance(version, int)
    return version


async def migrate(
    connection: Connection,
    database: str,
    steps: tuple[Migration, ...] | None = None,
    lock_wait_s: float = _LOCK_WAIT_S,
) -> tuple[int, int]:
    """Bring the schema to the newest version.

    Returns the version before and after.

    Arguments:
        connection: of a user who may create tables.
        database: the database's name, for messages.
        steps: the released migrations by default.
        lock_wait_s: the time to wait for another process that migrates; a notice goes to standard error.

    Raises:
        as `identify`; StoreUnavailable: another process has not ended its migration by then; asyncpg.PostgresError: a
            step failed, and the version before it stands.
    """
    taken = migrations() if steps is None else steps
    newest = max([SCHEMA_VERSION, *(step.version for step in taken)])
    before: int | None = None
    while True:
        async with connection.transaction():
            await connection.execute("set local statement_timeout = 0")  # a large table takes what it takes
            await _lock(connection, database, lock_wait_s)
            with _given_up(connection, _LATE_S):
                version = await identify(connection, database, newest)
            before = version if before is None else before
            later = [step for step in taken if step.version > version]
            if version == 0:
                await connection.execute(schema())
            elif later:
                await connection.execute(later[0].sql)
                await connection.execute(statements.SET_VERSION, later[0].version)
            else:
                return before, version


async def _lock(connection: Connection, database: str, wait_s: float) -> None:
    """Take the lock of migrations, until the end of the transaction."""
    waited_s = 0.0
    while waited_s < wait_s:
        turn_s = min(_LOCK_REPORTED_S, wait_s - waited_s)
        try:
            with _given_up(connection, turn_s + _LATE_S):
                async with connection.transaction():
                    await connection.execute(f"set local lock_timeout = {max(1, round(turn_s * 1000))}")
                    await connection.execute(statements.LOCK_SCHEMA, _LOCK)
                    await connection.execute("set local lock_timeout = 0")
        except LockNotAvailableError:
            waited_s += turn_s
            _log.warning("%s: another process migrates the schema; waiting, %.0f of %.0f s", database, waited_s, wait_s)
        else:
            return
    raise StoreUnavailable(
        f"{database}: another process has held the lock of migrations for {wait_s:.0f} s.",
        remedy=(
            "Let it end, or look for a session that hangs: "
            "select pid from pg_locks where locktype = 'advisory' and classid = 844123475 and granted;"  # _LOCK
            " end it with pg_terminate_backend(pid). Then start again."
        ),
    )


@contextlib.contextmanager
def _given_up(connection: Connection, after_s: float) -> Iterator[None]:
    """Cut the connection when the block takes longer.

    Within a transaction, a server that is gone is not even notified.
    """
    timer = asyncio.get_running_loop().call_later(after_s, connection.terminate)
    try:
        yield
    finally:
        timer.cancel()
