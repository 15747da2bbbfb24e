"""Two settings of a SQLite connection, set and put back.

A transaction with a barrier row depends on them. SQLite keeps them per connection and not per transaction:
`synchronous` decides whether a commit waits for the disk (correctness rule 8), `busy_timeout` how long a transaction
waits for the one writer (rule 7).
"""

from __future__ import annotations

from collections.abc import Callable

from twophase.barrier.dialect import SQLITE
from twophase.barrier.transaction import Row

_EXTRA = 3
"""The value EXTRA of `synchronous`.

In journal_mode delete, only this value syncs the directory behind a commit; in the other modes it equals FULL.
"""
_READ_SYNCHRONOUS = SQLITE.sql("read_synchronous")


class SqliteSettings:
    """The settings of one connection while a transaction of this library uses it."""

    def __init__(self, run: Callable[[str], list[Row]]) -> None:
        """`run` executes one PRAGMA on the connection, outside any transaction."""
        self._run = run
        self._restore: list[str] = []

    def prepare(self, lock_timeout_ms: int | None) -> None:
        """Bound the wait for the writer, and make commits durable.

        It is called before the transaction. The wait is bounded when `lock_timeout_ms` is given.
        """
        if lock_timeout_ms is not None:
            self.bound_wait(lock_timeout_ms)  # first: even reading `synchronous` may wait for a writer
        self._restore += self.make_durable()

    def make_durable(self) -> list[str]:
        """Let commits wait for the disk; return the statements that would undo it.

        It is called before the transaction, and the setting lasts: SQLite refuses the change inside a transaction. So
        where the connection is given back with the end of its transaction, the stronger setting stays. Each attached
        database has its own setting.
        """
        undo = []
        for pragma, synchronous in self._run(_READ_SYNCHRONOUS):
            if synchronous < _EXTRA:
                self._run(f"{pragma} = {_EXTRA}")
                undo.append(f"{pragma} = {synchronous}")
        return undo

    def bound_wait(self, lock_timeout_ms: int) -> None:
        """Bound the wait for the writer; this may be put back inside a transaction."""
        (busy_timeout,) = self._run("pragma busy_timeout")[0]
        self._run(f"pragma busy_timeout = {int(lock_timeout_ms)}")
        self._restore.append(f"pragma busy_timeout = {busy_timeout}")

    def restore(self) -> None:
        """Put back what `prepare` changed.

        The wait comes first, because inside a transaction SQLite refuses the change of `synchronous`.
        """
        while self._restore:
            self._run(self._restore.pop(0))
