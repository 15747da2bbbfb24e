"""The recognition of a store's file and version, and its migration to the newest.

`application_id` and `user_version` stand in the file's header, so a file is known before anything in it is touched.
Versions only go forward; a file of a newer one is refused, because what this code does not know it would break.
"""

from __future__ import annotations

import importlib.resources
import sqlite3
from pathlib import Path

from twophase.core.errors import NotAStore, SchemaTooNew
from twophase.stores.migrations import Migration, released

APPLICATION_ID = 0x32504D53
"""The four letters 2PMS in the header of every file of twophase."""
SCHEMA_VERSION = 5

_FOLDER = importlib.resources.files("twophase.stores.sqlite")


def migrations() -> tuple[Migration, ...]:
    """Return the released migrations in their order, from version 2 on."""
    return released(_FOLDER / "migrations")


def identify(connection: sqlite3.Connection, path: Path, newest: int = SCHEMA_VERSION) -> int:
    """Return the schema version of a file; 0 for a new one. Changes nothing.

    Raises:
        NotAStore: another program's database.
        SchemaTooNew: a newer version than `newest`.
        sqlite3.DatabaseError: no SQLite database, or damaged.
    """
    application_id, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    if application_id == 0 and not connection.execute("select count(*) from sqlite_master").fetchone()[0]:
        return 0
    if application_id != APPLICATION_ID:
        raise NotAStore(f"{path} is a SQLite database of another program (application_id {application_id:#x}).")
    if version > newest:
        raise SchemaTooNew(f"{path} has schema version {version}; this twophase knows {newest} at most.")
    return version


def migrate(connection: sqlite3.Connection, version: int, steps: tuple[Migration, ...] | None = None) -> None:
    """Bring a file of `version` to the newest.

    Each step is one transaction with its number.

    Arguments:
        connection: to a file `identify` has accepted.
        version: the result of `identify`.
        steps: the released migrations by default.
    """
    if version == 0:
        _run(connection, f"pragma application_id = {APPLICATION_ID};\n" + schema(), SCHEMA_VERSION)
        return
    for step in migrations() if steps is None else steps:
        if step.version > version:
            _run(connection, step.sql, step.version)


def schema() -> str:
    """Return the statements that make a new file of the newest version."""
    return (_FOLDER / "schema.sql").read_text()


def _run(connection: sqlite3.Connection, sql: str, version: int) -> None:
    try:
        connection.executescript(f"begin immediate;\n{sql}\n;pragma user_version = {version};")
        connection.execute("update store_meta set value = ? where name = 'schema_version'", (version,))
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.rollback()
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value = connection.execute(f"pragma {name}").fetchone()[0]
    assert isinstance(value, int)
    return value
