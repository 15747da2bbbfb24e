"""A TCP server that sends exactly the bytes of a script, and keeps what it reads."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.number = number
        """The number of this connection, from 1."""
        self._reader = reader
        self._writer = writer

    async def request(self) -> tuple[bytes, bytes]:
        """Return the head and the body of the next request.

        Raises IncompleteReadError when the client closes.
        """
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return head, await self._reader.readexactly(length)

    async def say(self, *pieces: bytes) -> None:
        """Send each piece as a packet of its own, as far as the network allows."""
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(0)

    async def closed(self) -> None:
        """Wait until the client has closed or dropped the connection."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass

    def close(self) -> None:
        """End the connection in an orderly way."""
        self._writer.close()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class ScriptedServer:
    """Runs a script on every connection."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.requests: list[tuple[bytes, bytes]] = []
        self.port = 0
        self.host = "127.0.0.1"
        self.scheme = "http"

    @property
    def url(self) -> str:
        """Return its root, without a slash at the end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of this server's: the one that streams make reports its own cancellation as an error.
        self.connections += 1
        task = asyncio.create_task(self._serve(Peer(reader, writer, self.connections), writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, peer: Peer, writer: asyncio.StreamWriter) -> None:
        request = peer.request

        async def remember() -> tuple[bytes, bytes]:
            told = await request()
            self.requests.append(told)
            return told

        peer.request = remember  # type: ignore[method-assign]
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await self._script(peer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
        """Listen on a free port as long as the block lasts."""
        server = await asyncio.start_server(self._accept, self.host, 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        self.scheme = "http" if tls is None else "https"
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome


def serving(script: Script, host: str = "127.0.0.1") -> ScriptedServer:
    """Make a server for `script`; `async with serving(…).running() as server`."""
    server = ScriptedServer(script)
    server.host = host
    return server


def answering(*pieces: bytes) -> Script:
    """Make a script that answers every request with the same pieces.

    It keeps the connection.
    """

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.say(*pieces)

    return script


def once_then_close(*pieces: bytes) -> Script:
    """Make a script that answers one request and closes the connection."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(*pieces)

    return script


def cut(data: bytes, positions: Iterable[int]) -> list[bytes]:
    """Return `data` in pieces, cut at the given positions."""
    edges = [0, *sorted({position for position in positions if 0 < position < len(data)}), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]
