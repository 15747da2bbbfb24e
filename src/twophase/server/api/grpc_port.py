"""The choice of the gRPC port: one or none, and its number.

Every refusal and every start without the port has a line that says why. `grpc_port` = `auto` must not obstruct a server
that needs no gRPC: without grpcio, beside a private HTTP port (0), or where 36790 is taken, the server runs without it.
An explicitly named port is opened, or the server does not start.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import structlog

from twophase.coordinator.topic_changes import ChangeableTopics
from twophase.core.errors import ConfigurationError
from twophase.core.hooks import Clock
from twophase.http_client.byte_budget import ByteBudget
from twophase.server.browsers import BrowserGuard
from twophase.server.codecs.decode import Decoder
from twophase.server.http_port.port import Requests
from twophase.server.identity.gate import Gate
from twophase.server.settings import Settings
from twophase.server.tls import ServerTls

if TYPE_CHECKING:
    from twophase.server.api.dtm_grpc import GrpcApi

DEFAULT_PORT: Final = 36_790
_log = structlog.get_logger("twophase.grpc")


def installed() -> bool:
    """Return True when the `grpc` extra is installed."""
    return all(find_spec(name) is not None for name in ("grpc", "grpc_reflection", "hpack"))


class GrpcPort:
    """The gRPC port, if there is one.

    Arguments:
        settings: the part that begins with `grpc_`, `host`, and whether the HTTP port is a private one.
        requests, decoder, clock, topics, on_refused, gate, browsers, budget, tls: as `GrpcApi`.
    """

    def __init__(
        self,
        settings: Settings,
        requests: Requests,
        decoder: Decoder,
        clock: Clock,
        topics: ChangeableTopics,
        on_refused: Callable[[str], None],
        gate: Gate,
        browsers: BrowserGuard,
        budget: ByteBudget,
        tls: ServerTls | None,
    ) -> None:
        self._settings = settings
        self._tls = tls
        self._browsers = browsers
        self._parts = (requests, decoder, clock)
        self._topics = topics
        self._on_refused = on_refused
        self._gate = gate
        self._budget = budget
        self._api: GrpcApi | None = None

    async def start(self, *, shares_port: bool = False) -> list[str]:
        """Listen, if the settings want it. Returns the URLs, one or none.

        `shares_port`: other processes listen on it, too.

        Raises:
            ConfigurationError: a port that was asked for cannot be opened.
        """
        settings = self._settings
        if settings.grpc_port == "off" or (settings.grpc_port == "auto" and settings.http_port == 0):
            return []
        if not installed():
            if settings.grpc_port != "auto":
                raise ConfigurationError("grpc_port: gRPC needs `pip install 'twophase[grpc]'`; or set grpc_port=off.")
            _log.info("no gRPC port: `pip install 'twophase[grpc]'` brings what it needs")
            return []
        port = DEFAULT_PORT if settings.grpc_port == "auto" else settings.grpc_port
        try:
            self._api = api = self._make_api()
            return [await api.start(settings.host, port, shares_port=shares_port)]
        except OSError as error:
            where = f"{settings.host}:{port}"
            if settings.grpc_port != "auto":
                raise ConfigurationError(f"host, grpc_port: cannot listen on {where}: {error.strerror}.") from error
            _log.warning("no gRPC port: the default one is taken; set grpc_port", address=where)
            return []

    def _make_api(self) -> GrpcApi:
        from twophase.server.api.dtm_grpc import GrpcApi  # noqa: PLC0415 -- grpcio loads only where it is wanted

        settings = self._settings
        return GrpcApi(
            *self._parts,
            on_refused=self._on_refused,
            topics=self._topics,
            connections_max=settings.grpc_connections_max,
            per_address_percent=settings.connections_per_address_percent,
            calls_max=settings.connections_max,
            idle_timeout_ms=settings.idle_timeout_ms,
            tls=self._tls,
            gate=self._gate,
            browsers=self._browsers,
            budget=self._budget,
        )

    async def drain(self, timeout_s: float) -> None:
        """Accept no more, end what is under way, within `timeout_s`."""
        if self._api is not None:
            await self._api.drain(timeout_s)

    async def stop(self) -> None:
        """Cut what is left. Safe to call twice, and without a start."""
        if self._api is not None:
            await self._api.stop()
