"""A lock beside the database, which lives exactly as long as the process.

So a file has one server.

SQLite lets several processes write by turns; a coordinator must be alone. The lock is `flock` on `<database>-lock`:
the kernel drops it when the process dies, however it dies. Never on the database itself: closing any descriptor of
that file drops the locks SQLite holds on it. Readers do not take it, so an audit may look on while a server runs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
from pathlib import Path

from twophase.core.errors import StoreError, StoreFull, StoreLocked, StoreReadOnly

_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
_FULL = {errno.ENOSPC, errno.EDQUOT}


class FileLock:
    """The exclusive right to serve a file.

    Arguments:
        path: the lock's own file; made when missing, never removed (removing it would let two processes each hold
            a lock on a file of that name).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or refuse at once.

        Raises:
            StoreLocked: another process holds it; names the process when the file names it.
            StoreReadOnly, StoreFull, StoreError: the lock's file cannot be made.
        """
        assert self._descriptor is None, "a lock is taken once"
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _cannot_make(self._path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = _read_owner(descriptor)
            os.close(descriptor)
            raise StoreLocked(f"{self._path}: held by {owner}.") from error
        except OSError as error:
            os.close(descriptor)
            raise StoreError(f"{self._path}: this file system has no locks ({error.strerror}).") from error
        self._descriptor = descriptor
        _write_owner(descriptor, f"process {os.getpid()} on {platform.node()}")

    def release(self) -> None:
        """Give it back. Safe to call twice."""
        if self._descriptor is not None:
            _write_owner(self._descriptor, "")
            os.close(self._descriptor)
            self._descriptor = None


def _cannot_make(path: Path, error: OSError) -> StoreError:
    kind = StoreReadOnly if error.errno in _READ_ONLY else StoreFull if error.errno in _FULL else StoreError
    return kind(f"{path}: cannot be made ({error.strerror}).")


def _read_owner(descriptor: int) -> str:
    owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
    return owner or "another process, which left no id"


def _write_owner(descriptor: int, owner: str) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode(), 0)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        # Who holds the lock is a courtesy of the message; a full disk must not be met here first.
