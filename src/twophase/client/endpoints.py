"""A coordinator as a producer knows it: address, patience, defaults and a connection pool of its own (decision 9)."""

from __future__ import annotations

import functools
import ssl
from typing import TYPE_CHECKING, Any, Self

from twophase.barrier.dialect import DEFAULT_TABLE, validate_table
from twophase.client.identity import Identities
from twophase.client.sync import SyncDriver
from twophase.client.transport.exchange import Encode, Patience
from twophase.client.transport.sync import SyncTransport, Target
from twophase.client.transport.wire import encode_request
from twophase.core.errors import ConfigurationError

if TYPE_CHECKING:
    from twophase.client.aio import AsyncDriver
    from twophase.client.flow import Flow
    from twophase.client.message import Message
    from twophase.client.transport.wire import AsyncTransport, Transport


def speaks_grpc(url: str) -> bool:
    """Whether a coordinator's address is one of its gRPC port."""
    return url.startswith(("grpc://", "grpcs://"))


def _grpc_wire(url: str) -> Encode:
    """How requests to `url` are written.

    Raises:
        ConfigurationError: the extra is missing, or the address is none.
    """
    try:
        from twophase.client.transport import grpc_wire  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise ConfigurationError("grpc:// needs protobuf.", remedy="Run `pip install 'twophase[grpc]'`.") from error
    grpc_wire.GrpcTarget(url)
    return grpc_wire.encode_request


class Endpoint:
    """What `TwoPhase` and `AsyncTwoPhase` share."""

    def __init__(
        self,
        url: str,
        *,
        request_timeout: float = 5.0,
        attempts: int = 4,
        patience: float = 10.0,
        barrier_table: str = DEFAULT_TABLE,
        allow_unsafe_database: bool = False,
        authorization: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Describe a coordinator; connects on first use.

        Arguments:
            url: `http://host:port` or `https://…`; dtm's `/api/dtmsvr` behind it is allowed. Or `grpc://host:port`
                or `grpcs://…`, by which payloads may be any bytes; needs the `grpc` extra.
            request_timeout: seconds for one try of one request.
            attempts: tries of one request, from 1. Repeating is safe: requests are idempotent.
            patience: seconds for all tries of one request and their pauses.
            barrier_table: the barrier's name in the business databases, `name` or `schema.name`.
            allow_unsafe_database: take business databases whose crash may undo a commit they have confirmed, for tests
                and for data that may be lost; refused with UnsafeDatabase otherwise.
            authorization: sent as the `Authorization` header of every request.
            ssl_context: for https; the system's trusted roots by default. For grpcs only its trusted roots count.

        Raises:
            ConfigurationError: one of these cannot work.
        """
        if not request_timeout > 0 or not patience > 0 or attempts < 1:
            raise ConfigurationError("request_timeout, patience and attempts must be above zero.")
        if authorization is not None and not (authorization.isascii() and authorization.isprintable()):
            raise ConfigurationError("authorization contains a control or non-ASCII character.")
        self.speaks_grpc = speaks_grpc(url)
        self.encode: Encode = encode_request
        if self.speaks_grpc:
            self.encode = _grpc_wire(url)
        else:
            Target(url)
        self.url = url
        self.patience = Patience(
            request_timeout_ms=max(1, round(request_timeout * 1000)),
            attempts=attempts,
            patience_ms=max(1, round(patience * 1000)),
        )
        self.barrier_table = validate_table(barrier_table)
        self.allow_unsafe_database = allow_unsafe_database
        self.identities = Identities()
        self._headers = (("authorization", authorization),) if authorization is not None else ()
        self._ssl_context = ssl_context

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def message(self, gid: str | None = None, **options: Any) -> Message:
        """A new message for this coordinator; arguments as `Message`, without the server."""
        from twophase.client.message import Message  # noqa: PLC0415 -- Message knows its endpoint, and this makes one

        return Message(self, gid, **options)


class TwoPhase(Endpoint):
    """A coordinator for blocking code. Threads may share it; a child may use it after a fork.

    >>> with TwoPhase("http://localhost:36789", patience=3) as coordinator:
    ...     message = coordinator.message("order-17").add("http://bank-b/transfer-in", {"amount": 30})
    >>> message.gid
    'order-17'
    """

    @functools.cached_property
    def transport(self) -> Transport:
        """The connection pool."""
        if self.speaks_grpc:
            from twophase.client.transport.grpc import GrpcTransport  # noqa: PLC0415 -- an extra

            return GrpcTransport(self.url, headers=self._headers, ssl_context=self._ssl_context)
        return SyncTransport(self.url, headers=self._headers, ssl_context=self._ssl_context)

    def driver(self, flow: Flow, engine: Any = None) -> SyncDriver:
        """What performs a flow here."""
        return SyncDriver(flow, self.transport, self.identities, engine)

    def close(self) -> None:
        """Close the idle connections. Messages may still be sent: it connects again."""
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTwoPhase(Endpoint):
    """A coordinator for asyncio. Every event loop that uses it gets connections of its own.

    >>> import asyncio
    >>> async def main():
    ...     async with AsyncTwoPhase("http://localhost:36789") as coordinator:
    ...         return coordinator.message("order-17").gid
    >>> asyncio.run(main())
    'order-17'
    """

    @functools.cached_property
    def transport(self) -> AsyncTransport:
        """The connection pool."""
        if self.speaks_grpc:
            from twophase.client.transport.grpc import AsyncGrpcTransport  # noqa: PLC0415 -- an extra

            return AsyncGrpcTransport(self.url, headers=self._headers, ssl_context=self._ssl_context)
        from twophase.client.transport import aio as transport_async  # noqa: PLC0415 -- asyncio only where it is used

        return transport_async.AsyncTransport(self.url, headers=self._headers, ssl_context=self._ssl_context)

    def driver(self, flow: Flow, engine: Any = None) -> AsyncDriver:
        """What performs a flow here."""
        return self._drivers(flow, self.transport, self.identities, engine)

    @functools.cached_property
    def _drivers(self) -> type[AsyncDriver]:
        from twophase.client.aio import AsyncDriver  # noqa: PLC0415 -- asyncio only where it is used

        return AsyncDriver

    async def aclose(self) -> None:
        """Close this event loop's connections. Messages may still be sent: it connects again."""
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


@functools.lru_cache(maxsize=128)
def shared(url: str) -> TwoPhase:
    """The `TwoPhase` behind every `Message(url)` of this process."""
    return TwoPhase(url)


@functools.lru_cache(maxsize=128)
def ashared(url: str) -> AsyncTwoPhase:
    """The `AsyncTwoPhase` behind every `Message(url)` of this process."""
    return AsyncTwoPhase(url)
