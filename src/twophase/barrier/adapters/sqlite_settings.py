"""Two settings of a SQLite connection that a transaction with a barrier row depends on, set and put back.

SQLite keeps them per connection and not per transaction: `synchronous` decides whether a commit waits for the disk
(correctness rule 8), `busy_timeout` how long we wait for the one writer (rule 7).
"""

from __future__ import annotations

from collections.abc import Callable

from twophase.barrier.transaction import Row

_FULL = 2


class SqliteSettings:
    """The settings of one connection while a transaction of ours uses it."""

    def __init__(self, run: Callable[[str], list[Row]]) -> None:
        """`run` executes one PRAGMA on the connection, outside any transaction."""
        self._run = run
        self._restore: list[str] = []

    def prepare(self, lock_timeout_ms: int | None) -> None:
        """Before the transaction: bound the wait for the writer when `lock_timeout_ms` is given; make it durable."""
        self.bound_wait(lock_timeout_ms)  # first: even to look at `synchronous` may wait for a writer
        (synchronous,) = self._run("pragma synchronous")[0]
        if synchronous < _FULL:
            self._run(f"pragma synchronous = {_FULL}")
            self._restore.append(f"pragma synchronous = {synchronous}")

    def bound_wait(self, lock_timeout_ms: int | None) -> None:
        """The one half of `prepare` that may be put back inside a transaction."""
        if lock_timeout_ms is not None:
            (busy_timeout,) = self._run("pragma busy_timeout")[0]
            self._run(f"pragma busy_timeout = {int(lock_timeout_ms)}")
            self._restore.append(f"pragma busy_timeout = {busy_timeout}")

    def restore(self) -> None:
        """Put back what `prepare` changed."""
        while self._restore:
            self._run(self._restore.pop())
