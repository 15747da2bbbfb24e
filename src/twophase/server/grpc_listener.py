"""The listening side of a port that speaks gRPC: TLS, pages of browsers, draining.

dtm's port and RocketMQ's have each one; what they serve are their own `Services`. Sockets are never shared with another
program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import structlog

from twophase.core.errors import TwophaseError
from twophase.grpc_server.http2.headers import Fields
from twophase.grpc_server.http2.limits import Limits
from twophase.grpc_server.http2.port import Port
from twophase.grpc_server.services import Services
from twophase.grpc_server.status import Ended, Status
from twophase.http_client.byte_budget import ByteBudget
from twophase.server.browsers import BrowserGuard
from twophase.server.handshakes import Handshakes
from twophase.server.tls import HTTP_2, ServerTls

_log = structlog.get_logger("twophase.grpc")
_FAREWELL_S: Final = 0.1
"""Pause in which streams learn that the server leaves."""
GOING_AWAY: Final = Ended(Status.UNAVAILABLE, "the server is going away.")


class GrpcListener:
    """One port; nothing is opened before `start`.

    Arguments:
        limits: on the requests of one peer.
        on_turned_away: called for each connection beyond a bound.
        tls: gives the context of new connections; None for plain text.
        browsers: refuses calls of web pages, and calls to other names than the server's.
        budget: of the bytes of unfinished requests; its own by default.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        on_turned_away: Callable[[], None],
        tls: ServerTls | None = None,
        browsers: BrowserGuard | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        self._limits = limits
        self._on_turned_away = on_turned_away
        self._tls = tls
        self._browsers = browsers or BrowserGuard()
        self._budget = budget
        self._services: Services | None = None
        self._port: Port[Any] | None = None
        self._handshakes: Handshakes | None = None

    async def start(self, services: Services, host: str, port: int, *, shares_port: bool = False) -> str:
        """Listen; port 0 takes a free one. Returns host and port.

        `shares_port`: other processes listen on it, too.

        Raises:
            OSError: the address cannot be used.
        """
        self._services = services
        self._port = Port(
            services.read,
            self._limits,
            crashed,
            self._on_turned_away,
            self._budget,
            read_reserved=services.read_reserved if services.has_always else None,
            varying=services.varying,
        )
        before = None
        if self._tls is not None:
            self._handshakes = Handshakes(
                partial(self._tls.context, HTTP_2),
                self._port.free,
                timeout_s=self._limits.handshake_s,
                shutdown_s=self._limits.linger_s,
            )
            before = self._handshakes.before
        bound = await self._port.start(host, port, before, shares_port=shares_port)
        self._browsers.listens(host, *self._port.addresses)
        return f"{f'[{host}]' if ':' in host else host}:{bound}"

    def why_not(self, fields: Fields) -> TwophaseError | None:
        """Return the refusal of a call by its headers; None to serve it.

        Refused are pages of browsers, and calls to another name than the server's.
        """
        error = self._browsers.why_not(fields, needs_host=False)
        for name, value in fields:
            if error is None and name == b":authority":
                error = self._browsers.why_not_authority(value)
        return error

    def forget(self) -> None:
        """Forget what was made of headers that were seen before."""
        if self._port is not None:
            self._port.forget()

    async def drain(self, timeout_s: float, farewell: Callable[[], Awaitable[None]]) -> None:
        """Accept no more requests, end those under way, within `timeout_s`.

        `farewell` says so to those who listen.
        """
        if self._port is None or self._services is None:
            return
        await farewell()
        self._port.leave()
        if self._handshakes is not None:
            self._handshakes.stop()
        if self._services.streams:
            await asyncio.sleep(min(_FAREWELL_S, timeout_s))
            self._services.end_streams(GOING_AWAY)
        await self._port.closed(timeout_s)

    async def stop(self) -> None:
        """Cut what is left. Safe to call twice."""
        port, self._port = self._port, None
        if port is not None:
            port.stop()
        if self._handshakes is not None:
            self._handshakes.stop()
        if self._services is not None:
            await self._services.stop()


def crashed(error: Exception) -> None:
    """Log a fault of the server that a call met."""
    _log.error("a request failed on a fault of the server", exc_info=error)
