"""The channel to one coordinator.

It holds what messages need of a `Client` or `AsyncClient`, and its users do not: their defaults, how requests are
written, how long they are repeated, the connections, and the business databases that are known.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from twophase.client.identity import Identities
from twophase.client.sync import SyncDriver
from twophase.client.transport.exchange import Encode, RequestBounds
from twophase.client.transport.sync import SyncTransport, address_of
from twophase.client.transport.wire import encode_request
from twophase.core.errors import ConfigurationError

if TYPE_CHECKING:
    from twophase.client.aio import AsyncDriver
    from twophase.client.flow import Command
    from twophase.client.transport.wire import AsyncTransport, Transport
    from twophase.core.options import Options
    from twophase.core.trust import Trust


def speaks_grpc(url: str) -> bool:
    """Return True when a coordinator's address names its gRPC port."""
    return url.startswith(("grpc://", "grpcs://"))


def _grpc_wire(url: str) -> Encode:
    """Return the function that writes requests to `url`.

    Raises:
        ConfigurationError: the extra is missing, or `url` is not an address.
    """
    try:
        from twophase.client.transport import grpc_wire  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise ConfigurationError("grpc:// needs protobuf.", remedy="Run `pip install 'twophase[grpc]'`.") from error
    grpc_wire.GrpcTarget(url)
    return grpc_wire.encode_request


class Channel:
    """The part that the blocking and the asyncio channel share."""

    def __init__(
        self,
        url: str,
        bounds: RequestBounds,
        *,
        check: str | None,
        options: Options,
        barrier_table: str,
        allow_unsafe_database: bool,
        allow_event_loop: bool,
        authorization: str | None,
        ssl_context: ssl.SSLContext | None,
        trust: Trust,
    ) -> None:
        """Prepare the channel; it connects at the first request.

        The arguments are those of `Client`, which has checked them, except the address.

        Raises:
            ConfigurationError: `url` is not an address, or its extra is missing.
        """
        self.encode: Encode = encode_request
        self._speaks_grpc = speaks_grpc(url)
        if self._speaks_grpc:
            self.encode = _grpc_wire(url)
        else:
            address_of(url)
        self.url = url
        self.bounds = bounds
        self.check = check
        self.options = options
        self.barrier_table = barrier_table
        self.allow_unsafe_database = allow_unsafe_database
        self.allow_event_loop = allow_event_loop
        self.identities = Identities()
        self.headers = (("authorization", authorization),) if authorization is not None else ()
        self.ssl_context = ssl_context
        self._trust = trust


class SyncChannel(Channel):
    """For blocking code."""

    @functools.cached_property
    def transport(self) -> Transport:
        """The connection pool."""
        if self._speaks_grpc:
            from twophase.client.transport.grpc import GrpcTransport  # noqa: PLC0415 -- an extra

            return GrpcTransport(self.url, headers=self.headers, ssl_context=self.ssl_context, trust=self._trust)
        return SyncTransport(self.url, headers=self.headers, ssl_context=self.ssl_context)

    def driver(self, flow: Generator[Command, Any, Any], engine: Any = None) -> SyncDriver:
        """Return a driver that performs `flow` on this channel."""
        return SyncDriver(flow, self.transport, self.identities, engine)


class AsyncChannel(Channel):
    """For asyncio."""

    @functools.cached_property
    def transport(self) -> AsyncTransport:
        """The connection pool."""
        if self._speaks_grpc:
            from twophase.client.transport.grpc import AsyncGrpcTransport  # noqa: PLC0415 -- an extra

            return AsyncGrpcTransport(self.url, headers=self.headers, ssl_context=self.ssl_context, trust=self._trust)
        from twophase.client.transport import aio as transport_async  # noqa: PLC0415 -- asyncio only where it is used

        return transport_async.AsyncTransport(self.url, headers=self.headers, ssl_context=self.ssl_context)

    def driver(self, flow: Generator[Command, Any, Any], engine: Any = None) -> AsyncDriver:
        """Return a driver that performs `flow` on this channel."""
        return self._drivers(flow, self.transport, self.identities, engine)

    @functools.cached_property
    def _drivers(self) -> type[AsyncDriver]:
        from twophase.client.aio import AsyncDriver  # noqa: PLC0415 -- asyncio only where it is used

        return AsyncDriver
