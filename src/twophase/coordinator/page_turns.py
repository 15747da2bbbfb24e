"""The turns of requests that read many rows, and those of look-ups.

A request for many rows takes a hundred times as long as a look-up, and a store has few readers: one thread, or two
connections. Promise: one of these requests reads at a time, so another reader, or every second turn, is left for
look-ups. Clients take turns: one that sends many of these requests delays another's by one page.

A look-up may find a message of megabytes. Promise: one of them is under way at a time, so those of hundreds of
connections are neither in memory at once, nor answered in one turn of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from twophase.core.errors import Overloaded

WAITING_MAX: Final = 15
"""Bound on the requests of one client that wait."""
REQUESTS_MAX: Final = 256
"""Bound on the requests of all clients."""
_UNBOUNDED: Final = 1 << 30
"""Each look-up that waits has a connection, and those are bounded."""


class _Client:
    __slots__ = ("requests", "turn")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.requests = 0


class PageTurns:
    """Lets one request read, and a few of each client wait.

    Used by `async with turns.of(name)`.

    Arguments:
        waiting_max: bound on the requests of one client that wait.
        requests_max: bound on the requests of all clients.
    """

    def __init__(self, waiting_max: int = WAITING_MAX, requests_max: int = REQUESTS_MAX) -> None:
        self._waiting_max = waiting_max
        self._requests_max = requests_max
        self._turn = asyncio.Lock()
        self._clients: dict[str, _Client] = {}
        self._requests = 0

    @contextlib.asynccontextmanager
    async def of(self, name: str = "") -> AsyncIterator[None]:
        """Wait for a turn of the client of this name; empty for all without one.

        The first request of each client waits for the store, the others for the first.

        Raises:
            Overloaded: enough of them wait.
        """
        client = self._clients.get(name)
        if self._requests >= self._requests_max or (client is not None and client.requests > self._waiting_max):
            raise Overloaded("too many requests read many messages or log rows at this moment.")
        if client is None:
            client = self._clients[name] = _Client()
        client.requests += 1
        self._requests += 1
        try:
            async with client.turn, self._turn:
                yield
        finally:
            client.requests -= 1
            self._requests -= 1
            if not client.requests:
                del self._clients[name]


def look_up_turns() -> PageTurns:
    """Return the turns of look-ups, of which any number may wait."""
    return PageTurns(_UNBOUNDED, _UNBOUNDED)
