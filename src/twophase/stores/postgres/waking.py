"""Notices between nodes about new entries of a topic.

A notice is PostgreSQL's NOTIFY, heard on a connection of its own, which holds nothing but its LISTEN. It may get lost:
while that connection is away, and for ever behind a pooler that hands statements to other sessions. So nothing depends
on it; who listens looks from time to time, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from twophase.core.errors import ConfigurationError, StoreError
from twophase.stores.postgres.connection import Connection
from twophase.stores.postgres.failures import FAILURES
from twophase.stores.postgres.reconnecting import ReconnectingConnection

CHANNEL: Final = "twophase_queues"
"""One for all stores of a database.

A notice of another store's topic makes a node look once for nothing.
"""
_PAUSE_S: Final = 1.0


class Waking:
    """Hears notices while it runs.

    Arguments:
        reconnecting: a connection for this alone.
    """

    def __init__(self, reconnecting: ReconnectingConnection) -> None:
        self._reconnecting = reconnecting
        self._listening: asyncio.Task[None] | None = None
        self.woken: Callable[[str], None] | None = None
        """Called with the topic of each notice; None: it does not listen."""

    def start(self) -> None:
        """Listen in the background, where `woken` is set."""
        if self.woken is not None:
            self._reconnecting.open()
            self._listening = asyncio.get_running_loop().create_task(self._listen(), name="twophase notices")

    async def stop(self) -> None:
        """Hear nothing more. Safe to call twice."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait((listening,))
        await self._reconnecting.close()

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(StoreError, ConfigurationError, *FAILURES):
                await self._hear()
            self._reconnecting.drop()
            await asyncio.sleep(_PAUSE_S)

    async def _hear(self) -> None:
        """Listen until the connection is lost."""
        deadline = self._reconnecting.deadline()
        connection: Connection = await self._reconnecting.connected(deadline)
        lost = asyncio.Event()
        connection.add_termination_listener(lambda *_: lost.set())
        await self._reconnecting.within(deadline, connection.add_listener(CHANNEL, self._heard))
        await lost.wait()

    def _heard(self, _connection: Connection, _process: int, _channel: str, topic: str) -> None:
        if self.woken is not None:
            self.woken(topic)
