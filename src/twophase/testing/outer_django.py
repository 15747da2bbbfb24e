"""Savepoints in a transaction that a Django test keeps open on an alias.

Django's TestCase, or the test's own `atomic`, keeps it open.
"""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction

from twophase.barrier.adapters.django import OUTERMOST, DjangoTransaction
from twophase.barrier.adapters.django_elsewhere import Elsewhere
from twophase.barrier.dialect import dialect_named
from twophase.barrier.transaction import AsyncTransaction, Row, Statement
from twophase.core.errors import OpenTransaction, UnsupportedEngine
from twophase.testing.turns import Turns, left_out


class DjangoOuter:
    """An alias's connection inside `atomic`; see `barrier.outer.Outer`."""

    def __init__(self, alias: str) -> None:
        """Look at the alias.

        It raises OpenTransaction when the alias is not inside `atomic`, and UnsupportedEngine.
        """
        if alias not in connections:
            raise UnsupportedEngine(f"There is no Django database alias {alias!r}.")
        self.connection = connections[alias]
        if not self.connection.in_atomic_block:
            raise OpenTransaction(
                f"The alias {alias!r} is not inside `atomic`, so that nothing could be rolled back.",
                remedy="Enter it in the setUp of a TestCase, or inside `transaction.atomic()`.",
            )
        self._alias = alias
        self._depth = len(self.connection.atomic_blocks)
        self._turns = Turns()

    def covers(self, engine: Any) -> bool:
        """Do as `Outer` describes.

        Another thread has its own connection, unless the test gives it this one.
        """
        return engine == self._alias and connections[self._alias] is self.connection

    def require_idle(self, engine: Any) -> None:  # noqa: ARG002 -- there is one alias
        """Do as `Outer` describes.

        Inside an `atomic` of the application, it would be refused in production, too.
        """
        if len(self.connection.atomic_blocks) != self._depth:
            raise OpenTransaction(remedy=f"{OUTERMOST} but the test's own.")

    def open(self, engine: Any, lock_timeout_ms: int | None) -> DjangoTransaction:
        """See `Outer`."""
        self._turns.take(lock_timeout_ms)
        try:
            self.require_idle(engine)
            return _Savepoint(self._alias, self._turns)
        except BaseException:
            self._turns.give_back()
            raise

    async def aopen(self, engine: Any, lock_timeout_ms: int | None) -> AsyncTransaction:  # noqa: ARG002 -- as above
        """See `Outer`."""
        raise UnsupportedEngine("A Django alias goes without `async`.")


class _Savepoint(DjangoTransaction):
    """An `atomic` inside the test's."""

    def __init__(self, alias: str, turns: Turns) -> None:
        connection = connections[alias]
        dialect = dialect_named(connection.vendor)
        if dialect is None:
            raise UnsupportedEngine(f"There is no barrier for {connection.vendor!r}.")
        self.dialect = dialect
        self.handle = self._connection = connection
        self._turns = turns
        self._left_out = left_out(dialect)
        self._unclear = False
        self._atomic = transaction.atomic(using=alias)
        self._atomic.__enter__()
        self._entered = True
        self._elsewhere = Elsewhere(connection)

    def execute(self, statement: Statement) -> list[Row]:
        return [] if statement.sql in self._left_out else super().execute(statement)

    def close(self) -> None:
        self._elsewhere.release()
        self._turns.give_back()
