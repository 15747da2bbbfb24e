"""HTTP to one coordinator on asyncio: one pooled keep-alive client per event loop.

Requests of the same moment travel together, on a connection of their own: while some are under way, others gather, and
go as one. Each has its own answer, error and time. A request goes alone that is long or may wait for branches, or whose
coordinator is not known to be twophase's: dtm's answers the requests of one connection one after the other.

Connections belong to the loop that opened them, so each loop that uses this transport gets its own client, which is
closed together with the loop's asynchronous generators, that is by `asyncio.run` itself. The connections of a loop that
was closed without them are closed when the next loop begins.
"""

from __future__ import annotations

import asyncio
import ssl
import weakref
from collections.abc import AsyncGenerator
from functools import partial

from twophase.client.transport.closed_loops import take_closed
from twophase.client.transport.sync import ANSWER_BYTES_MAX, address_of, failure_of
from twophase.client.transport.wire import HttpAnswer, Operation, answer_of, is_from_twophase, may_wait
from twophase.http_client.client import HttpClient, HttpError, HttpErrorKind, Outcome
from twophase.http_client.pipeline import Pipeline
from twophase.http_client.request import PendingCall, encode_headers

CONNECTIONS_MAX = 64
QUEUE_MAX = 10_000
GROUPED_BYTES_MAX = 64 * 1024
"""The longest body that travels with others."""


def _answer(answered: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not answered.done():
        answered.set_result(outcome)


class _LoopClient:
    """A client and a pipeline, and the generator by which their loop closes them."""

    __slots__ = ("client", "closer", "loop", "pipeline")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: HttpClient,
        pipeline: Pipeline,
        closer: AsyncGenerator[None],
    ) -> None:
        self.loop = loop
        self.client = client
        self.pipeline = pipeline
        self.closer = closer

    def abandon(self) -> None:
        """Close the connections of a loop that was closed by `close` alone."""
        self.pipeline.abandon()
        self.client.abandon()


class AsyncTransport:
    """A pool of connections to one coordinator for every event loop that uses it."""

    def __init__(
        self, server: str, *, headers: tuple[tuple[str, str], ...] = (), ssl_context: ssl.SSLContext | None = None
    ) -> None:
        """Connects on first use; arguments and errors as `SyncTransport`."""
        target = self._target = address_of(server)
        scheme = "https" if target.tls else "http"
        self._urls = {
            operation: f"{scheme}://{target.host_header}{target.path}{operation.path}" for operation in Operation
        }
        self._authority = target.host_header
        self._headers = (("content-type", "application/json"), *headers)
        self._ssl = ssl_context or (ssl.create_default_context() if target.tls else None)
        lines = encode_headers(self._headers)
        self._heads = {
            operation: f"POST {target.path}{operation.path}{target.end_of_line}{lines}content-length: ".encode()
            for operation in Operation
        }
        self._groups: bool | None = None
        """True when requests travel together; None while the coordinator is unknown."""
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
        on_done = partial(_answer, answered)
        together = self._groups and len(body) <= GROUPED_BYTES_MAX and not may_wait(body)
        if together:
            call: PendingCall | None = of_loop.pipeline.request(self._heads[operation], body, timeout_ms, on_done)
        else:
            call = of_loop.client.request("POST", self._urls[operation], self._headers, body, timeout_ms, on_done)
        try:
            response = await answered
        except asyncio.CancelledError:
            if together and call is not None:
                of_loop.pipeline.forget(call)
            elif call is not None:
                call.cancel()
            raise
        if isinstance(response, HttpError):
            if together and response.kind is HttpErrorKind.PROTOCOL:
                self._groups = False  # something between does not keep answers in order
            failure = failure_of(response, f"{self._authority}: {response}", tls=self._target.tls)
            raise failure from response
        if self._groups is None and response.status == 200 and is_from_twophase(response.body):
            self._groups = True
        return answer_of(response)

    async def close(self) -> None:
        """Close this loop's connections; the transport may be used again."""
        self._latest = None
        of_loop = self._clients.pop(asyncio.get_running_loop(), None)
        if of_loop is not None:
            await of_loop.closer.aclose()

    async def _open(self) -> _LoopClient:
        loop = asyncio.get_running_loop()
        for left in take_closed(self._clients):
            left.abandon()
        client = HttpClient(
            connections_per_host=CONNECTIONS_MAX,
            queue_per_host=QUEUE_MAX,
            response_bytes_max=ANSWER_BYTES_MAX,
            ssl_context=self._ssl,
        )
        pipeline = Pipeline(
            self._target, loop, answer_bytes_max=ANSWER_BYTES_MAX, tls=self._ssl if self._target.tls else None
        )
        of_loop = _LoopClient(loop, client, pipeline, self._closed_with(loop, client, pipeline))
        self._clients[loop] = of_loop
        await anext(of_loop.closer)  # a generator is known to its loop once it has been started
        return of_loop

    async def _closed_with(
        self, loop: asyncio.AbstractEventLoop, client: HttpClient, pipeline: Pipeline
    ) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._clients.pop(loop, None)
            if self._latest is not None and self._latest.loop is loop:
                self._latest = None
            await pipeline.close()
            await client.close()
