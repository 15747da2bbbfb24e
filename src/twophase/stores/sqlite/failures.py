"""SQLite's result codes as the errors of `core.errors`, so that an operator reads what to do."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twophase.core.errors import NotAStore, StoreCorrupt, StoreError, StoreFull, StoreReadOnly

OPENING = "opening the store"
"""What is tried when the file is seen for the first time: that it is no database is then no damage of ours."""

_PRIMARY = 0xFF
_NEARLY_FULL_BYTES = 256 * 1024


@contextmanager
def reported(path: Path, doing: str) -> Iterator[None]:
    """Turn what SQLite raises inside the block into a `StoreError`, with the cause chained."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error, path, doing) from error


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
    """Whether another program holds the lock, in any of SQLite's kinds of it (recovery of the log, a snapshot).

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
