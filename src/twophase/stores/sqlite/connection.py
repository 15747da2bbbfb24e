"""The opening of the file, with a proof of durable commits (correctness rule 8).

One connection writes and checkpoints; readers open the file read-only and never checkpoint. This is necessary: SQLite
before 3.51.3 may damage a database in WAL mode when two connections checkpoint or write at one instant
(https://sqlite.org/wal.html#walresetbug).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from twophase.core.errors import ConfigurationError, StoreCorrupt, UnsafeDurability

SQLITE_OLDEST = (3, 34, 0)
"""The oldest version among the systems that bring Python 3.11.

UPDATE … FROM needs 3.33.
"""

RECORD_BYTES_MAX = 64 * 1024 * 1024
"""A row above this is refused as data; the protocol's own limits are far below."""

_PAGE_BYTES = 8192
_CACHE_KIB = 64 * 1024
_CHECKPOINT_PAGES = 2000
_WAL_BYTES_KEPT = 64 * 1024 * 1024
BUSY_TIMEOUT_MS = 5_000
_STATEMENTS_CACHED = 256
_QUICK_CHECK_BYTES_MAX = 64 * 1024 * 1024
_SYNCHRONOUS_FULL = 2


def open_writer(path: Path) -> sqlite3.Connection:
    """Open or make the file for writing, and change nothing in it yet.

    Raises:
        ConfigurationError: this Python's SQLite is too old.
        sqlite3.Error: it cannot be opened.
    """
    if sqlite3.sqlite_version_info < SQLITE_OLDEST:
        oldest = ".".join(map(str, SQLITE_OLDEST))
        raise ConfigurationError(f"SQLite {sqlite3.sqlite_version} is too old; {oldest} or newer is needed.")
    return _connect(path, "rwc")


def open_reader(path: Path) -> sqlite3.Connection:
    """Open an existing file for reading only.

    It never waits for the writer, nor the writer for it.
    """
    return _connect(path, "ro")


def make_durable(connection: sqlite3.Connection) -> None:
    """Make COMMIT return after the fsync, and read the setting back.

    Raises:
        UnsafeDurability: the file system or the library does not do it.
        sqlite3.Error: as it comes.
    """
    connection.execute(f"pragma page_size = {_PAGE_BYTES}")
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    # Only macOS knows these: its fsync alone does not reach the disk.
    connection.execute("pragma fullfsync = on")
    connection.execute("pragma checkpoint_fullfsync = on")
    # What undoes a single failed statement; in a file it cost a tenth of a flush.
    connection.execute("pragma temp_store = memory")
    connection.execute(f"pragma cache_size = -{_CACHE_KIB}")
    connection.execute(f"pragma wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    connection.execute(f"pragma journal_size_limit = {_WAL_BYTES_KEPT}")
    check_durability(connection)


def check_durability(connection: sqlite3.Connection) -> None:
    """Raise `UnsafeDurability` unless a commit is on disk when it returns.

    >>> check_durability(sqlite3.connect(":memory:"))
    Traceback (most recent call last):
    twophase.core.errors.UnsafeDurability: ...
    """
    (journal,) = connection.execute("pragma journal_mode").fetchone()
    if journal != "wal":
        raise UnsafeDurability(f"SQLite's journal_mode is {journal}, not wal: is the file on a network file system?")
    (synchronous,) = connection.execute("pragma synchronous").fetchone()
    if synchronous < _SYNCHRONOUS_FULL:
        raise UnsafeDurability(f"SQLite's synchronous is {synchronous}, not full ({_SYNCHRONOUS_FULL}).")


def check_damage(connection: sqlite3.Connection, path: Path) -> None:
    """Look for damage, within the time that a start may take.

    Every page of a small file is read, and the schema of a large one.

    A large file shows its damage when the damaged page is read: as `StoreCorrupt`, with nothing acknowledged.

    Raises:
        StoreCorrupt: a page is damaged.
        sqlite3.DatabaseError: so badly that SQLite cannot say where.
    """
    connection.execute("select count(*) from sqlite_master").fetchone()
    if path.stat().st_size <= _QUICK_CHECK_BYTES_MAX:
        (finding,) = connection.execute("pragma quick_check(1)").fetchone()
        if finding != "ok":
            raise StoreCorrupt(f"{path} is damaged: {finding}.")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_TIMEOUT_MS / 1000,
        cached_statements=_STATEMENTS_CACHED,
    )
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, RECORD_BYTES_MAX)
    return connection
