"""The connections of a hostile client, from an address of its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, Final

import msgspec

ADDRESS: Final = "127.0.0.2"
"""The address that the attacks come from."""
SERVER: Final = "127.0.0.1"
PIECE: Final = 64 * 1024
HEAD: Final = b"POST /api/dtmsvr/%b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
_PAUSE_S: Final = 0.01
_SENDERS: Final = 8
_SERVED: Final = (200, 409, 429, 503)
"""The answers to requests that reached what they were meant for."""


class Victim(msgspec.Struct, frozen=True):
    """The ports of the server that is attacked.

    `token`: the one that it gave to the hostile client, if any.
    """

    http: int
    grpc: int
    token: str = ""

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return a request of HTTP/1.1, with the token."""
        known = f"Authorization: Bearer {self.token}\r\n" if self.token else ""
        return (
            f"{method} {path} HTTP/1.1\r\nHost: {SERVER}\r\n{known}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )


Play = Callable[[Victim], Coroutine[Any, Any, None]]
"""An attack, which never ends.

It fails when the server does not take its requests for what they are.
"""


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
                if writer.transport.is_closing():
                    return
                writer.write(piece)
                await writer.drain()
                if pause_s:
                    await asyncio.sleep(pause_s)
            await discarding
        finally:
            discarding.cancel()


async def once(victim: Victim, requests: Iterable[bytes]) -> None:
    """Send requests on one connection, each when the one before is answered.

    Raises:
        AssertionError: one is refused as if it were another than is meant, such as one without a token.
    """
    async with connected(victim.http) as (reader, writer):
        for request in requests:
            writer.write(request)
            status = await _answered(reader)
            assert status in _SERVED, f"{status}, to {request[:300]!r}"


async def ask(victim: Victim, requests: Iterator[bytes], senders: int = _SENDERS) -> None:
    """Send requests without end on several connections; raises as `once`."""
    await at_once(senders, lambda: once(victim, requests))


async def _answered(reader: asyncio.StreamReader) -> int:
    """Read one answer; return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while length:
        length -= len(await reader.readexactly(min(length, PIECE)))
    return int(head.split(maxsplit=2)[1])


def message(number: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a message of the hostile client, with these fields."""
    return {"gid": f"flood-{number}", "trans_type": "msg"} | fields


async def produce(victim: Victim, what: str, fields: Callable[[int], dict[str, Any]]) -> None:
    """Send messages on eight connections, each when the one before is answered.

    Arguments:
        victim: the server.
        what: prepare or submit.
        fields: returns those of a message, by its number.
    """

    def request(number: int) -> bytes:
        return victim.request("POST", f"/api/dtmsvr/{what}", json.dumps(message(number, fields(number))).encode())

    await ask(victim, map(request, itertools.count()))
