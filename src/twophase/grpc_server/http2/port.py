"""An HTTP/2 port: its connections, one sweep over all of them, and its end.

The sweep stands in for a timer for each connection. Promise: where all connections are taken, a client may still ask
for the server's health. The next connections beyond the bound have a reserved place for a few seconds. When these
places are taken, too, the oldest one of the address that has most of them makes room.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from twophase.grpc_server.http2.connection import Connection
from twophase.grpc_server.http2.control import Neighbours
from twophase.grpc_server.http2.frames import (
    HEADER_TABLE_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_HEADER_LIST_SIZE,
)
from twophase.grpc_server.http2.headers import Fields, Known
from twophase.grpc_server.http2.limits import RESERVED_MAX, RESERVED_S, Limits
from twophase.grpc_server.http2.stream import Head
from twophase.http_client.byte_budget import ByteBudget
from twophase.http_client.turns import TurnsByAddress

H = TypeVar("H", bound=Head)
Before = Callable[[Callable[[asyncio.Transport], asyncio.BaseProtocol]], Callable[[], asyncio.Protocol]]
"""Puts TLS before the connections: takes their maker, returns that of protocols."""

_BACKLOG: Final = 1024
_SWEEP_S_MAX: Final = 1.0


class Port(Generic[H]):
    """The connected clients of a port.

    Arguments:
        read: makes of a request's fields what answers it; raises `headers.Malformed`.
        limits: the bounds of what clients may do.
        on_crash: called with each fault of the server.
        on_turned_away: called for each client beyond `limits.connections_max`, or beyond its address's part of it.
        budget: of the bytes of unfinished requests; its own by default.
        read_reserved: as `read`, for requests on reserved places; None: there are no such places.
        varying: the name of a header whose value `read` ignores; see `headers.Known`.
    """

    def __init__(
        self,
        read: Callable[[Fields], H],
        limits: Limits,
        on_crash: Callable[[Exception], None],
        on_turned_away: Callable[[], None],
        budget: ByteBudget | None = None,
        read_reserved: Callable[[Fields], H] | None = None,
        varying: bytes = b"",
    ) -> None:
        self.limits = limits
        self.known = Known(read, 2 * limits.header_list_bytes_max, limits.fields_max, varying)
        self._known_reserved = Known(read_reserved or read, 2 * limits.header_list_bytes_max, limits.fields_max)
        self._reserved_max = RESERVED_MAX if read_reserved else 0
        self._reserved: dict[Connection, float] = {}
        self.crashed = on_crash
        self.settings = {
            HEADER_TABLE_SIZE: 0,
            MAX_CONCURRENT_STREAMS: limits.streams_max,
            MAX_HEADER_LIST_SIZE: limits.header_list_bytes_max,
        }
        self.now_s = 0.0
        self.budget = budget or ByteBudget()
        self.turns = TurnsByAddress(shared=limits.per_address_percent < 100)
        self._turned_away = on_turned_away
        self._by_address: dict[str, Neighbours] = {}
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_s = min(_SWEEP_S_MAX, limits.shortest_s / 4)
        self._leaving = False
        self._empty = asyncio.Event()

    async def start(self, host: str, port: int, before: Before | None = None, *, shares_port: bool = False) -> int:
        """Listen on every address of `host`; port 0 takes a free one. Returns the port.

        `before`: begins each connection by TLS; None for plain text.
        `shares_port`: other processes listen on it, too, and the kernel spreads the connections.

        Raises:
            OSError: the address cannot be used.
        """
        try:
            port = await self._listen(host, port, before, shares_port=shares_port)
        except OSError:
            self.stop()
            raise
        self._sweep()
        return port

    async def _listen(self, host: str, port: int, before: Before | None, *, shares_port: bool) -> int:
        loop = asyncio.get_running_loop()
        self.now_s = loop.time()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for address in dict.fromkeys(one[4][0] for one in found):
            server = await loop.create_server(
                (lambda: Connection(self)) if before is None else before(lambda _: Connection(self)),
                str(address),
                port,
                backlog=_BACKLOG,
                reuse_address=True,
                reuse_port=shares_port,
            )
            self._servers.append(server)
            port = port or server.sockets[0].getsockname()[1]
        return port

    def free(self, address: str) -> tuple[int, int]:
        """Return how many connections it may still have, in all and of this peer address."""
        limits = self.limits
        of_address_max = max(1, limits.connections_max * limits.per_address_percent // 100)
        neighbours = self._by_address.get(address)
        held = 0 if neighbours is None else neighbours.connections
        return limits.connections_max + len(self._reserved) - len(self._connections), of_address_max - held

    def forget(self) -> None:
        """Forget the meanings of requests: `read` would make others now."""
        self.known.forget()
        self._known_reserved.forget()

    @property
    def addresses(self) -> list[str]:
        """The addresses that it listens on."""
        return [str(one.getsockname()[0]) for server in self._servers for one in server.sockets]

    def joined(self, connection: Connection) -> bool:
        """Add a client's connection, on a reserved place beyond the bound; False: refused."""
        is_beyond = min(self.free(connection.address)) <= 0
        if self._leaving or (is_beyond and not self._reserved_max):
            self._turned_away()
            return False
        self._connections.add(connection)
        neighbours = self._by_address.get(connection.address) or Neighbours(self.limits.address_frames_max)
        self._by_address[connection.address] = connection.neighbours = neighbours
        if is_beyond:
            self._reserve(connection)
        else:
            neighbours.connections += 1
        return True

    def _reserve(self, connection: Connection) -> None:
        """Give a connection a reserved place, if need be that of another one."""
        connection.confine(self._known_reserved)
        connection.neighbours.reserved += 1
        self._reserved[connection] = self.now_s
        if len(self._reserved) > self._reserved_max:
            most = max(one.neighbours.reserved for one in self._reserved)
            oldest = next(one for one in self._reserved if one.neighbours.reserved == most)
            self._turned_away()
            self.left(oldest)
            oldest.cut()

    def left(self, connection: Connection) -> None:
        """Remove the connection of a client that is gone."""
        if connection in self._connections:
            self._connections.remove(connection)
            if self._reserved.pop(connection, None) is None:
                connection.neighbours.connections -= 1
            else:
                connection.neighbours.reserved -= 1
        if self._leaving and not self._connections:
            self._empty.set()

    def leave(self) -> None:
        """Accept no client, and close each connection when its requests are answered.

        Every client is notified by GOAWAY.
        """
        self._leaving = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.leave()
        if not self._connections:
            self._empty.set()

    async def closed(self, timeout_s: float) -> bool:
        """Wait until every connection is closed.

        Returns False when that takes longer than `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """Cut what is left. Safe to call twice, and without a start."""
        self.leave()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.cut()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.now_s = loop.time()
        for address, neighbours in list(self._by_address.items()):
            neighbours.left = self.limits.address_frames_max
            if not (
                neighbours.connections or neighbours.reserved
            ):  # not before: who comes again within a second is no other
                del self._by_address[address]
        for connection in list(self._connections):
            connection.check(self.now_s)
        for connection, since_s in list(self._reserved.items()):
            if self.now_s - since_s > RESERVED_S:
                connection.leave()
        self._sweeper = loop.call_later(self._sweep_s, self._sweep)
