"""One transaction at a time on a test's only connection."""

from __future__ import annotations

import threading

from twophase.barrier.dialect import Dialect
from twophase.core.errors import OpenTransaction

_WAIT_MS = 10_000
_OF_A_REAL_TRANSACTION = (
    "check_back_isolation_after_settings",
    "check_back_isolation_before_settings",
    "check_back_settings",
    "read_durability",
    "read_own_durability",
    "settings",
)


def left_out(dialect: Dialect) -> frozenset[str]:
    """Return the statements that cannot run in a savepoint.

    Only a separate transaction can take them, or their effect would outlast a savepoint.
    """
    return frozenset(dialect.sql(name) for name in _OF_A_REAL_TRANSACTION if name in dialect.statements)


class HeldElsewhere(Exception):
    """Another thread, or the caller itself, has a transaction under way."""

    sqlstate = "55P03"
    """The code of a database for a lock that it waited for in vain.

    To a check-back it means "in progress".
    """


class Turns:
    """The turn of one thread at a time. A check-back waits as for the row's lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = 0

    def take(self, lock_timeout_ms: int | None) -> None:
        """Wait for the turn; raises OpenTransaction, HeldElsewhere."""
        if self._holder == threading.get_ident():
            if lock_timeout_ms is not None:
                raise HeldElsewhere("a transaction is under way on the test's connection.")
            raise OpenTransaction("A transaction is under way on the test's connection, which can have one at a time.")
        wait_ms = _WAIT_MS if lock_timeout_ms is None else lock_timeout_ms
        if not self._lock.acquire(timeout=wait_ms / 1000):
            raise HeldElsewhere("another thread has a transaction under way on the test's connection.")
        self._holder = threading.get_ident()

    def give_back(self) -> None:
        """Let the next waiter have its turn."""
        self._holder = 0
        self._lock.release()
