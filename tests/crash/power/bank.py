"""A bank on a database server, whose power is lost when its submit arrives.

It has one account.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from sqlalchemy import Engine, create_engine, text

from tests.support.recording_coordinator import RecordingCoordinator, Request
from twophase import Client, RetryPolicy
from twophase.barrier.installing import install

_PATIENCE_S = 60.0
"""Timeout of the answer to the submit: a server starts again meanwhile."""


class Server(Protocol):
    """A database server whose disk can lose its power."""

    def lose_power(self) -> None:
        """Lose what was not synced; return when the server answers again."""


class Bank:
    """The bank's database, by its SQLAlchemy URL."""

    def __init__(self, server: Server, url: str) -> None:
        self._server = server
        self.engine: Engine = create_engine(url)
        install(self.engine)
        with self.engine.begin() as connection:
            connection.execute(text("create table account (balance integer)"))
            connection.execute(text("insert into account values (100)"))

    def transfer(self, *before: str) -> None:
        """Take 30 in a message's transaction; `before` comes first in the block.

        The power is lost at the submit.
        """
        with RecordingCoordinator().running() as coordinator:
            has_power = threading.Lock()
            losses = iter([self._server.lose_power])

            def on_request(request: Request) -> None:
                if request.operation == "submit":
                    with has_power:  # a submit that is repeated meanwhile waits, too
                        next(losses, lambda: None)()

            coordinator.before_answer = on_request
            message = Client(coordinator.url, retry=RetryPolicy(total=_PATIENCE_S)).message()
            message.add("http://bank-b/transfer-in", {"amount": 30})
            with message.transaction(self.engine, check="http://bank-a/twophase/check") as connection:
                for statement in (*before, "update account set balance = balance - 30"):
                    connection.execute(text(statement))

    def found(self) -> Sequence[int]:
        """Return the balance, and the number of rows in the barrier."""
        self.engine.dispose()
        with self.engine.connect() as connection:
            row = connection.execute(text("select (select balance from account), count(*) from barrier")).one()
        self.engine.dispose()
        return tuple(row)
