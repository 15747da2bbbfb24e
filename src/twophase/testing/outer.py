"""Tests inside one outer transaction that is rolled back at their end.

Teams with a database often have such tests.

A message's transaction must commit, and such a test never does. So inside `outer_transaction` the producer's
transaction, a branch's effect and a check-back are savepoints of the test's own transaction; releasing one stands for
its commit, and everything is gone when the test rolls back. Such a test cannot show what a real commit would add:
durability, deferred constraints, and the view of another connection.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

from twophase.barrier.outer import OUTERS, Outer
from twophase.core.errors import UnsupportedEngine

log = logging.getLogger("twophase.testing")


@contextlib.contextmanager
def outer_transaction(outer: Any) -> Iterator[None]:
    """Let the producer's transactions run as savepoints of a test's transaction.

    The test has its transaction open on `outer`. It covers every engine that the application gives to
    `message.transaction`, `once` and the check-back route: that very connection, its engine, a Session on the
    connection with `join_transaction_mode="create_savepoint"`, or the alias. One runs at a time, as there is one
    connection. `message.join` is refused as usual.

    Arguments:
        outer: a SQLAlchemy Connection or AsyncConnection in a transaction, or a Django alias inside a TestCase or
            `atomic`; the barrier must be installed there.

    Raises:
        OpenTransaction: there is no transaction open, which would be rolled back.
        UnsupportedEngine: none of these.

    >>> from sqlalchemy import create_engine, text; from twophase.barrier import install
    >>> from twophase.barrier import check_back
    >>> bank = create_engine("sqlite://"); _ = install(bank)
    >>> with bank.connect() as connection, connection.begin() as test:
    ...     with outer_transaction(connection):
    ...         print(check_back(bank, "never-began").verdict)
    ...     test.rollback()
    Verdict.ROLLED_BACK
    >>> with bank.connect() as connection:
    ...     connection.execute(text("select count(*) from barrier")).scalar()
    0
    """
    entered = _outer(outer)
    log.info("messages' transactions are savepoints of a test's transaction; nothing they commit is durable")
    OUTERS.append(entered)
    try:
        yield
    finally:
        OUTERS.remove(entered)


def _outer(outer: Any) -> Outer:
    if isinstance(outer, str) and "django.db" in sys.modules:
        from twophase.testing.outer_django import DjangoOuter  # noqa: PLC0415 -- an extra

        return DjangoOuter(outer)
    if "sqlalchemy" in sys.modules:
        from twophase.testing.outer_sqlalchemy import outer_on  # noqa: PLC0415 -- an extra

        found = outer_on(outer)
        if found is not None:
            return found
    raise UnsupportedEngine(
        f"{type(outer).__module__}.{type(outer).__qualname__} is no SQLAlchemy Connection or AsyncConnection, nor a "
        "Django alias."
    )
