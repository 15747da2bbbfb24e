"""The one way around `open`, for tests in an outer transaction.

While a test keeps a transaction open around everything, savepoints in it stand for this library's transactions.
Nothing but `twophase.testing.outer_transaction` ever adds to the list, for the length of its block and for the one
connection it is given; nothing else of this library imports `twophase.testing`. So in production the list is empty, and
a connection that is in a transaction is refused.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from twophase.barrier.transaction import AsyncTransaction, SyncTransaction


class Outer(Protocol):
    """A connection with a transaction that a test began, and will roll back."""

    def covers(self, engine: Any) -> bool:
        """Return True when this engine works on that connection.

        It is an engine, a connection, a session or an alias.
        """
        ...

    def require_idle(self, engine: Any) -> None:
        """Raise OpenTransaction where a transaction is open beside the outer one.

        There would be a transaction also without the outer one.
        """
        ...

    def open(self, engine: Any, lock_timeout_ms: int | None) -> SyncTransaction:
        """Return a savepoint."""
        ...

    async def aopen(self, engine: Any, lock_timeout_ms: int | None) -> AsyncTransaction:
        """Return a savepoint, for an async engine."""
        ...


OUTERS: Final[list[Outer]] = []
"""Empty but for tests."""


def outer_of(engine: Any) -> Outer | None:
    """Return the outer transaction that `engine` is in; None, as always in production."""
    for outer in tuple(OUTERS):
        if outer.covers(engine):
            return outer
    return None
