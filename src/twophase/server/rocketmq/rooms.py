"""The messages of one sender that the engine has at once.

Promise: a client that sends without end delays itself. The sender is the token's owner, who has a turn of the flushes.
Clients without tokens share one, so messages of one of their addresses that wait there delay those of all others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable

from twophase.core.errors import Overloaded
from twophase.grpc_server.http2.stream import Peer
from twophase.server.identity.caller import Caller


def sender_of(caller: Caller, connection: Peer, *, shared: bool) -> Hashable:
    """Return who sends over a connection.

    `shared`: False behind a proxy, whose clients have one address: each connection without a token is one sender.
    """
    if caller.limited:
        return ("owner", caller.name)
    return ("address", connection.address) if shared else ("connection", id(connection))


class _Room:
    """The room of one sender."""

    __slots__ = ("used", "waiting")

    def __init__(self) -> None:
        self.used = 0
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()


class Rooms:
    """See the module.

    Arguments:
        bytes_max: of the requests of one sender; a longer one goes alone.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._of: dict[Hashable, _Room] = {}

    def enter(self, sender: Hashable, size: int) -> bool:
        """Take room for a request, which `leave` gives back; False when it has to wait.

        `size`: its bytes; `sender`: as `sender_of` returns it.
        """
        room = self._of.get(sender)
        if room is None:
            room = self._of[sender] = _Room()
        if room.waiting or not self._fits(room, size):
            return False
        room.used += size
        return True

    async def wait(self, sender: Hashable, size: int, keep: Callable[[int], bool]) -> None:
        """Wait for the room that `enter` did not find.

        The requests of a sender go in the order in which they came.

        Arguments:
            sender, size: as for `enter`.
            keep: counts the bytes of a request that waits; False when too many wait.

        Raises:
            Overloaded: too many wait.
        """
        if not keep(size):
            raise Overloaded("too many bytes of messages wait to be stored.")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._of[sender].waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave(sender, size)  # its turn had come
            raise
        finally:
            keep(0)

    def leave(self, sender: Hashable, size: int) -> None:
        """Give the room of a request back."""
        room = self._of[sender]
        room.used -= size
        while room.waiting and self._fits(room, room.waiting[0][0]):
            next_size, turn = room.waiting.popleft()
            if not turn.done():
                room.used += next_size
                turn.set_result(None)
        if not room.used:
            del self._of[sender]

    def _fits(self, room: _Room, size: int) -> bool:
        return not room.used or room.used + size <= self._bytes_max
