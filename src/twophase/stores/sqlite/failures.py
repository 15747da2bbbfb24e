"""SQLite's result codes as the errors of `core.errors`, with their remedies."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twophase.core.errors import NotAStore, StoreCorrupt, StoreError, StoreFull, StoreReadOnly

OPENING = "opening the store"
"""The step at which the file is seen for the first time.

A file that is no database is then no damage of the store.
"""

_PRIMARY = 0xFF
_NEARLY_FULL_BYTES = 256 * 1024


@contextmanager
def reported(path: Path, doing: str) -> Iterator[None]:
    """Turn SQLite's errors inside the block into a `StoreError`; the cause is chained."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error, path, doing) from error


@contextmanager
def looked_at(path: Path) -> Iterator[None]:
    """Turn the system's errors about a file's state into a `StoreError`."""
    try:
        yield
    except PermissionError as error:
        raise StoreReadOnly(f"{path}: the server's user may not look into its folder.") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be looked at: {error.strerror}.") from error


def store_error(error: sqlite3.Error, path: Path, doing: str) -> StoreError:
    """Return the error to raise from `error`.

    Arguments:
        error: what SQLite raised.
        path: the database, to look at its disk and to name it.
        doing: what was tried, for the message.

    >>> store_error(sqlite3.DatabaseError("file is not a database"), Path("/x.db"), "opening it").code
    'TP-4000'
    """
    text = f"{path}: {doing} failed: {error}."
    # Errors of the Python module itself (a closed connection) carry no code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _disk_is_full(path)):
        return StoreFull(text)
    if code == sqlite3.SQLITE_NOTADB and doing == OPENING:
        return NotAStore(text)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreCorrupt(text)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreReadOnly(text)
    if code == sqlite3.SQLITE_CANTOPEN and not _writable(path):
        return StoreReadOnly(text)
    if code == sqlite3.SQLITE_BUSY:
        return StoreError(f"{text} Another program holds a write transaction on it.")
    return StoreError(text)


def is_busy(error: BaseException | None) -> bool:
    """Return True when another program holds the lock, of any of SQLite's kinds.

    Recovery of the log and a snapshot are among them.

    >>> error = sqlite3.OperationalError("database is locked")
    >>> error.sqlite_errorcode = sqlite3.SQLITE_BUSY_RECOVERY
    >>> is_busy(error), is_busy(None)
    (True, False)
    """
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & _PRIMARY == sqlite3.SQLITE_BUSY


def _disk_is_full(path: Path) -> bool:
    # Growing the shared memory file on a full disk is reported as an I/O error.
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _NEARLY_FULL_BYTES


def _writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
