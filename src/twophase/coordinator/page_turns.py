"""The turns of requests that read many rows.

Such a request takes a hundred times as long as a look-up, and a store has few readers: one thread, or two connections.
Promise: one of these requests reads at a time, so another reader, or every second turn, is left for look-ups.
"""

from __future__ import annotations

import asyncio
from typing import Final

from twophase.core.errors import Overloaded

WAITING_MAX: Final = 15


class PageTurns:
    """Lets one request read, and a few wait: `async with turns`.

    Raises:
        Overloaded: on entry, when enough of them wait.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._requests = 0

    async def __aenter__(self) -> None:
        if self._requests > WAITING_MAX:
            raise Overloaded("too many requests read many messages or log rows at this moment.")
        self._requests += 1
        try:
            await self._turn.acquire()
        except asyncio.CancelledError:
            self._requests -= 1
            raise

    async def __aexit__(self, *_error: object) -> None:
        self._requests -= 1
        self._turn.release()
