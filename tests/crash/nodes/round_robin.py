"""A plain round-robin of TCP connections: a load balancer without health checks.

It takes the next node, whatever its state.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import cast


class _Half(asyncio.Protocol):
    """One side of a connection; what arrives is sent to the other."""

    def __init__(self, halves: set[_Half]) -> None:
        self._halves = halves
        self.transport: asyncio.Transport | None = None
        self.other: _Half | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._halves.add(self)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self._early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._halves.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort()

    def join(self, other: _Half) -> None:
        """Both are connected: let traffic through."""
        self.other, other.other = other, self
        if self.transport is None or other.transport is None:
            other.connection_lost(None)
            self.connection_lost(None)
            return
        for data in self._early:
            other.transport.write(data)
        self._early.clear()


class RoundRobin:
    """A round-robin that listens on a port of its own.

    Arguments:
        ports: of the nodes, on this machine. One that refuses is passed over.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._next = itertools.cycle(range(len(ports)))
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._halves: set[_Half] = set()
        self.port = 0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        for half in self._halves:
            if half.transport is not None:
                half.transport.abort()

    def _accept(self) -> _Half:
        half = _Half(self._halves)
        task = asyncio.get_running_loop().create_task(self._join(half))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return half

    async def _join(self, client: _Half) -> None:
        loop = asyncio.get_running_loop()
        for _ in self._ports:
            port = self._ports[next(self._next)]
            try:
                _, node = await loop.create_connection(lambda: _Half(self._halves), "127.0.0.1", port)
            except OSError:
                continue
            client.join(node)
            return
        if client.transport is not None:
            client.transport.abort()
