"""HTTP to one coordinator on asyncio: one pooled keep-alive client per event loop.

Connections belong to the loop that opened them, so each loop that uses this transport gets its own client, which is
closed together with the loop's asynchronous generators, that is by `asyncio.run` itself.
"""

from __future__ import annotations

import asyncio
import ssl
import weakref
from collections.abc import AsyncGenerator
from functools import partial

from twophase.client.transport.sync import ANSWER_BYTES_MAX, DISCONNECTED, address_of
from twophase.client.transport.wire import Disconnected, HttpAnswer, Operation, TransportFailure
from twophase.http_client.client import HttpClient, HttpError, Outcome

CONNECTIONS_MAX = 64
QUEUE_MAX = 10_000


def _answer(answered: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not answered.done():
        answered.set_result(outcome)


class _LoopClient:
    """A client, and the generator by which its loop closes it."""

    __slots__ = ("client", "closer", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, client: HttpClient, closer: AsyncGenerator[None]) -> None:
        self.loop = loop
        self.client = client
        self.closer = closer


class AsyncTransport:
    """A pool of connections to one coordinator for every event loop that uses it."""

    def __init__(
        self, server: str, *, headers: tuple[tuple[str, str], ...] = (), ssl_context: ssl.SSLContext | None = None
    ) -> None:
        """Connects on first use; arguments and errors as `SyncTransport`."""
        target = address_of(server)
        scheme = "https" if target.tls else "http"
        self._urls = {
            operation: f"{scheme}://{target.host_header}{target.path}/{operation.value}" for operation in Operation
        }
        self._authority = target.host_header
        self._headers = (("content-type", "application/json"), *headers)
        self._ssl = ssl_context or (ssl.create_default_context() if target.tls else None)
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClient] = weakref.WeakKeyDictionary()
        self._latest: _LoopClient | None = None
        """The client used last.

        It is found without the dictionary: nearly all programs have one loop.
        """

    async def send(self, operation: Operation, body: bytes, timeout_ms: int) -> HttpAnswer:
        """Send one request and wait for its answer, at most `timeout_ms`.

        Raises:
            TransportFailure: no usable answer came.
        """
        loop = asyncio.get_running_loop()
        of_loop = self._latest
        if of_loop is None or of_loop.loop is not loop:
            of_loop = self._latest = self._clients.get(loop) or await self._open()
        # As `HttpClient.fetch`, without the coroutine between.
        answered: asyncio.Future[Outcome] = loop.create_future()
        url = self._urls[operation]
        call = of_loop.client.request("POST", url, self._headers, body, timeout_ms, partial(_answer, answered))
        try:
            response = await answered
        except asyncio.CancelledError:
            if call is not None:
                call.cancel()
            raise
        if isinstance(response, HttpError):
            failure = Disconnected if response.kind in DISCONNECTED else TransportFailure
            raise failure(f"{self._authority}: {response}") from response
        retry_after = None
        if response.status == 503:
            retry_after = next(
                (value.decode("latin-1") for name, value in response.headers if name == b"retry-after"), None
            )
        return HttpAnswer(response.status, response.body, retry_after)

    async def close(self) -> None:
        """Close this loop's connections; the transport may be used again."""
        self._latest = None
        of_loop = self._clients.pop(asyncio.get_running_loop(), None)
        if of_loop is not None:
            await of_loop.closer.aclose()

    async def _open(self) -> _LoopClient:
        loop = asyncio.get_running_loop()
        client = HttpClient(
            connections_per_host=CONNECTIONS_MAX,
            queue_per_host=QUEUE_MAX,
            response_bytes_max=ANSWER_BYTES_MAX,
            ssl_context=self._ssl,
        )
        of_loop = _LoopClient(loop, client, self._closed_with(loop, client))
        self._clients[loop] = of_loop
        await anext(of_loop.closer)  # a generator is known to its loop once it has been started
        return of_loop

    async def _closed_with(self, loop: asyncio.AbstractEventLoop, client: HttpClient) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._clients.pop(loop, None)
            if self._latest is not None and self._latest.loop is loop:
                self._latest = None
            await client.close()
