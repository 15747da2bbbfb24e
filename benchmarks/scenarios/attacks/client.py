"""The connections of a hostile client, from an address of its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

ADDRESS: Final = "127.0.0.2"
"""The address that the attacks come from."""
SERVER: Final = "127.0.0.1"
PIECE: Final = 64 * 1024
HEAD: Final = b"POST /api/dtmsvr/%b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
_PAUSE_S: Final = 0.01
_SENDERS: Final = 8

Attack = Callable[[int, int], Coroutine[Any, Any, None]]
"""It takes the ports of HTTP and gRPC."""


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a port of the server for the block's time."""
    reader, writer = await asyncio.open_connection(SERVER, port, local_addr=(ADDRESS, 0))
    try:
        yield reader, writer
    finally:
        writer.close()


async def again(play: Callable[[], Awaitable[None]]) -> None:
    """Play a client again and again, also after it was cut off."""
    while True:
        with contextlib.suppress(OSError, EOFError):
            await play()
        await asyncio.sleep(_PAUSE_S)


async def at_once(number: int, play: Callable[[], Awaitable[None]]) -> None:
    """Play as many clients, each again and again."""
    await asyncio.gather(*(again(play) for _ in range(number)))


async def send(port: int, pieces: Iterable[bytes], pause_s: float = 0.0) -> None:
    """Send pieces on one connection, and hold it until the server ends it.

    Each piece is sent `pause_s` after the one before, or as soon as that is read. What comes back is discarded.
    """
    async with connected(port) as (reader, writer):

        async def discard() -> None:
            while await reader.read(PIECE):
                pass

        discarding = asyncio.create_task(discard())
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                if pause_s:
                    await asyncio.sleep(pause_s)
            await discarding
        finally:
            discarding.cancel()


async def produce(http: int, what: str, fields: Callable[[int], dict[str, Any]]) -> None:
    """Send messages on eight connections, each when the one before is answered.

    Arguments:
        what: prepare or submit.
        fields: returns those of a message, by its number.
    """
    numbers = itertools.count()

    async def play() -> None:
        async with connected(http) as (reader, writer):
            for number in numbers:
                message = {"gid": f"flood-{number}", "trans_type": "msg"} | fields(number)
                body = json.dumps(message).encode()
                writer.write(HEAD % (what.encode(), len(body)) + body)
                if not await reader.read(PIECE):
                    return

    await at_once(_SENDERS, play)
