"""Work that waits for a turn of the event loop of its own.

A request of a few mebibytes costs some milliseconds, and so do hundreds of short ones in one read. Many may come at one
moment. Promise: between two such works of one queue every other client is served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from twophase.http_client.byte_budget import Account

LONG_BYTES: Final = 64 * 1024
"""A request of more bytes waits for a turn."""
BETWEEN_LONG: Final = 4
"""Turns of the event loop from one long request to the next.

A short request needs some until it is answered.
"""


class Turns:
    """A queue of works that wait for a turn; one has the long requests of a process.

    Arguments:
        between: the turns from one work to the next.
    """

    def __init__(self, between: int = 1) -> None:
        self._between = between
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, work: Callable[[], None]) -> None:
        """Call `work`, which raises nothing, in a turn of its own."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._take)

    async def wait(self, size: int) -> None:
        """Wait for a turn, if a request of `size` bytes needs one."""
        if size > LONG_BYTES:
            begun = asyncio.get_running_loop().create_future()
            self.add(partial(_begin, begun))
            await begun

    def _take(self) -> None:
        try:
            self._waiting[0]()
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._pause(self._between)

    def _pause(self, turns: int) -> None:
        """Take the next work after this number of turns."""
        loop = asyncio.get_running_loop()
        if turns > 1:
            loop.call_soon(self._pause, turns - 1)
        else:
            loop.call_soon(self._take)


class TurnsByAddress:
    """The turns of long reads: connections of one peer address share theirs.

    So an address has one long read in a turn of the event loop, by however many connections.

    Arguments:
        shared: False behind a proxy, whose clients have one address: each connection has its own turns.
    """

    def __init__(self, *, shared: bool) -> None:
        self._shared = shared
        self._of: WeakValueDictionary[str, Turns] = WeakValueDictionary()

    def of(self, address: str) -> Turns:
        """Return the turns of a new connection, which keeps them."""
        turns = self._of.get(address) if self._shared else None
        if turns is None:
            turns = Turns()
            if self._shared:
                self._of[address] = turns
        return turns


class Waiting:
    """Requests of one connection that wait for a turn.

    Arguments:
        turns: of the process.
        account: of nothing else; it keeps their bytes.
    """

    def __init__(self, turns: Turns, account: Account) -> None:
        self.requests: deque[tuple[int, Callable[[], None]]] = deque()
        self._turns = turns
        self._account = account

    def add(self, size: int, handle: Callable[[], None]) -> bool:
        """Call `handle` in a turn.

        Returns False when the budget has no room for a request of `size` bytes.
        """
        if not self._account.keep(self._account.kept + size):
            return False
        self.requests.append((size, handle))
        self._turns.add(self._take)
        return True

    def forget(self) -> None:
        """Forget them: the client is gone."""
        self.requests.clear()
        self._account.release()

    def _take(self) -> None:
        if self.requests:
            size, handle = self.requests.popleft()
            self._account.keep(self._account.kept - size)
            handle()


def _begin(begun: asyncio.Future[None]) -> None:
    if not begun.done():
        begun.set_result(None)
