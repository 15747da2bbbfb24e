"""gRPC to one coordinator, blocking and on asyncio.

grpcio is needed only here, and the first request loads it. There is one channel per process or event loop: it holds
one connection, over which any number of requests go at once. A request is never repeated here; every request has a
deadline. A child of a fork opens its own channel. gRPC allows that only where the parent has used no channel before,
or with GRPC_ENABLE_FORK_SUPPORT=1.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import weakref
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Any

from twophase.client.transport.closed_loops import take_closed
from twophase.client.transport.grpc_wire import METHODS, GrpcTarget, answer_of
from twophase.client.transport.sync import ANSWER_BYTES_MAX
from twophase.client.transport.wire import HttpAnswer, Operation
from twophase.core.errors import ConfigurationError
from twophase.core.trust import NO_FILES, Trust
from twophase.grpc_wire.channel import channel_options, trusted_roots

if TYPE_CHECKING:
    import grpc.aio

RECONNECT_CAP_MS = 100
"""The longest pause between two attempts of gRPC to connect.

The exchange decides how long to wait for a coordinator. Its next attempt must find a server that is back.
"""


def _library() -> Any:
    try:
        import grpc.aio  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise ConfigurationError("grpc:// needs grpcio.", remedy="Run `pip install 'twophase[grpc]'`.") from error
    return grpc


class _Opener:
    """The part that both transports share: it opens a channel."""

    def __init__(
        self,
        server: str,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        ssl_context: ssl.SSLContext | None = None,
        trust: Trust = NO_FILES,
    ) -> None:
        """Prepare the transport; it connects on first use.

        Arguments:
            server: `grpc://host:port` or `grpcs://…`.
            headers: sent as metadata with every request, such as an authorization.
            ssl_context: for grpcs; its trusted authorities count, which are the system's by default.
            trust: for grpcs; its files count first.

        Raises:
            ConfigurationError: not such an address, or a file that cannot be read.
        """
        self._target = GrpcTarget(server)
        self._metadata = tuple((name.lower(), value) for name, value in headers)
        self._ssl_context = ssl_context
        self._pem = trust.pem()

    def _open(self, library: Any) -> Any:
        """Return a new channel of `grpc` or of `grpc.aio`."""
        options = channel_options(ANSWER_BYTES_MAX, reconnect_cap_ms=RECONNECT_CAP_MS)
        if not self._target.tls:
            return library.insecure_channel(self._target.authority, options)
        roots, key, chain = self._pem
        credentials = _library().ssl_channel_credentials(roots or trusted_roots(self._ssl_context), key, chain)
        return library.secure_channel(self._target.authority, credentials, options)


class GrpcTransport(_Opener):
    """One channel to a coordinator; any thread may use it."""

    _channel: grpc.Channel | None = None
    _process = 0

    def __init__(self, server: str, **options: Any) -> None:
        """Take the arguments of `_Opener`."""
        super().__init__(server, **options)
        self._lock = threading.Lock()

    def send(self, operation: Operation, body: bytes, timeout_ms: int) -> HttpAnswer:
        """Send one request and wait for its answer, at most `timeout_ms`.

        Raises:
            TransportFailure: no usable answer came.
        """
        library = _library()
        method: Any = self._connected(library).unary_unary(METHODS[operation])
        try:
            _, call = method.with_call(body, timeout=timeout_ms / 1000, metadata=self._metadata)
        except library.RpcError as error:
            call = error
        return _answer(call.code(), call.details(), call.trailing_metadata())

    def close(self) -> None:
        """Close the channel; the transport may be used again."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _connected(self, library: Any) -> grpc.Channel:
        with self._lock:
            channel = self._channel
            if channel is None or self._process != os.getpid():
                channel = self._channel = self._open(library)
                self._process = os.getpid()
            return channel


class _LoopChannel:
    """A channel, and the generator by which its loop closes it."""

    __slots__ = ("channel", "closer")

    def __init__(self, channel: grpc.aio.Channel, closer: AsyncGenerator[None]) -> None:
        self.channel = channel
        self.closer = closer


class AsyncGrpcTransport(_Opener):
    """One channel to a coordinator for every event loop that uses it."""

    def __init__(self, server: str, **options: Any) -> None:
        """Take the arguments of `_Opener`."""
        super().__init__(server, **options)
        self._channels: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopChannel] = weakref.WeakKeyDictionary()

    async def send(self, operation: Operation, body: bytes, timeout_ms: int) -> HttpAnswer:
        """Send one request and wait for its answer, at most `timeout_ms`.

        Raises:
            TransportFailure: no usable answer came.
        """
        library = _library()
        of_loop = self._channels.get(asyncio.get_running_loop()) or await self._connected(library)
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = of_loop.channel.unary_unary(METHODS[operation])
        call = method(body, timeout=timeout_ms / 1000, metadata=self._metadata)
        failed: grpc.aio.AioRpcError | None = None
        try:
            await call
        except library.aio.AioRpcError as error:
            failed = error
        if failed is not None:
            return _answer(failed.code(), failed.details(), failed.trailing_metadata())
        return _answer(library.StatusCode.OK, "", await call.trailing_metadata())

    async def close(self) -> None:
        """Close this loop's channel; the transport may be used again."""
        of_loop = self._channels.pop(asyncio.get_running_loop(), None)
        if of_loop is not None:
            await of_loop.closer.aclose()

    async def _connected(self, library: Any) -> _LoopChannel:
        loop = asyncio.get_running_loop()
        take_closed(self._channels)  # a channel that nothing holds closes itself
        channel = self._open(library.aio)
        of_loop = _LoopChannel(channel, self._closed_with(loop, channel))
        self._channels[loop] = of_loop
        await anext(of_loop.closer)  # a generator is known to its loop once it has been started
        return of_loop

    async def _closed_with(self, loop: asyncio.AbstractEventLoop, channel: grpc.aio.Channel) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._channels.pop(loop, None)
            await channel.close()


def _answer(code: grpc.StatusCode, details: str | None, metadata: Iterable[Any] | None) -> HttpAnswer:
    headers = {str(pair[0]): pair[1] for pair in metadata or () if isinstance(pair[1], str)}
    number: int = code.value[0]
    return answer_of(number, details or "", headers)
