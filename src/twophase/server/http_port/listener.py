"""The HTTP port's listener: accepts connections, sweeps them, and drains them.

One sweep over all connections, a few times within the shortest timeout, replaces a timer for each request: it costs
nothing while nothing times out, and 10,000 idle connections cost about a millisecond.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import partial

import msgspec
from starlette.types import ASGIApp
from uvicorn import Config

from twophase.http_client.byte_budget import ByteBudget
from twophase.server.browsers import BrowserGuard
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.encode import SAFE_HEADERS, head
from twophase.server.handshakes import Handshakes
from twophase.server.http_port.connection import Connection
from twophase.server.http_port.port import Port, Requests, Timeouts
from twophase.server.identity.gate import Gate
from twophase.server.tls import HTTP_1, ServerTls

_BACKLOG = 4096
_SWEEP_S_MAX = 1.0


class Listener:
    """One HTTP port.

    Arguments:
        requests: the coordinator.
        decoder: turns bodies into messages.
        app: answers every route but prepare, submit and abort.
        on_refused: called with the error code of each request refused here.
        timeouts, connections_max: bounds on what clients may do.
        per_address_percent: share of the connections, and of the budget, that one peer address may hold.
        gate: finds out who sends a request; open by default.
        browsers: refuses requests of web pages.
        budget: of the bytes of unfinished requests; its own by default.
        tls: gives the context of new connections; None for plain text.
    """

    def __init__(
        self,
        requests: Requests,
        decoder: Decoder,
        app: ASGIApp,
        *,
        on_refused: Callable[[str], None],
        timeouts: Timeouts | None = None,
        connections_max: int = 10_000,
        per_address_percent: int = 100,
        gate: Gate | None = None,
        browsers: BrowserGuard | None = None,
        budget: ByteBudget | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.port = Port(
            requests,
            decoder,
            app,
            Connection,
            on_refused=on_refused,
            timeouts=timeouts or Timeouts(),
            connections_max=connections_max,
            per_address_percent=per_address_percent,
            gate=gate or Gate(),
            browsers=browsers or BrowserGuard(),
            budget=budget or ByteBudget(),
        )
        self._handshakes = None if tls is None else self._before(tls)
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_s = min(_SWEEP_S_MAX, min(msgspec.structs.astuple(self.port.timeouts)) / 4)

    async def start(self, host: str, port: int, *, shares_port: bool = False) -> list[str]:
        """Listen; port 0 takes a free one. Returns the URLs.

        `shares_port`: other processes listen on it, too, and the kernel spreads the connections.

        Raises:
            OSError: the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        self._sweep()
        before = self._handshakes
        self._server = await loop.create_server(
            (lambda: Connection(self.port, loop))
            if before is None
            else before.before(lambda below: Connection(self.port, loop, below)),
            host,
            port,
            backlog=_BACKLOG,
            reuse_address=True,
            reuse_port=shares_port,
        )
        self.port.browsers.listens(host, *(listening.getsockname()[0] for listening in self._server.sockets))
        scheme = "http" if before is None else "https"
        return [_url(scheme, listening) for listening in self._server.sockets]

    def _before(self, tls: ServerTls) -> Handshakes:
        return Handshakes(
            partial(tls.context, HTTP_1),
            self.port.free,
            timeout_s=self.port.timeouts.head_s,
            shutdown_s=self.port.timeouts.write_s,
        )

    @property
    def config(self) -> Config:
        """uvicorn's settings of this port, with its ASGI application."""
        return self.port.config

    @property
    def connections(self) -> int:
        """Number of connected clients."""
        return len(self.port.state.connections)

    def stop_accepting(self) -> None:
        """Refuse new connections; close idle ones now, the others after their responses."""
        port = self.port
        port.draining = True
        if self._server is not None:
            self._server.close()
        if self._handshakes is not None:
            self._handshakes.stop()
        port.connection_closed()
        for connection in list(port.state.connections):
            connection.shutdown()

    async def closed(self, timeout_s: float) -> bool:
        """Wait until every connection is closed.

        Returns False when that takes longer than `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.port.closed.wait()
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """Cut every connection that is left. Safe to call twice."""
        self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.port.state.connections):
            connection.transport.abort()
        for task in self.port.state.tasks:
            task.cancel()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        port = self.port
        port.now_s = loop.time()
        port.date = formatdate(time.time(), usegmt=True).encode()
        port.success_head = head(200, port.date)
        port.success_responses.clear()
        port.state.default_headers = [(b"date", port.date), *SAFE_HEADERS]
        for connection in list(port.state.connections):
            assert isinstance(connection, Connection), "no other protocol listens here"
            connection.enforce_timeouts(port.now_s)
        self._sweeper = loop.call_later(self._sweep_s, self._sweep)


def _url(scheme: str, listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
