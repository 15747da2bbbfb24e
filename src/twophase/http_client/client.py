"""The HTTP/1.1 client: pooled keep-alive connections, callbacks, bounds.

Calls by callback are for the hot path; everything is bounded. Promise: every call ends exactly once, within its
timeout, with a response that was sent for it or with an `HttpError` that gives what is known; never inside `request`
itself. A call may reach the peer twice, namely when a kept connection dies before a byte of its answer came; every
caller must be able to bear that.

The calls of one turn of the event loop are signed and sent together in the next turn. One by one, each would come after
other work, which takes the place of this client's code and data in the processor's caches. A hash takes 1 µs directly
after another one, and several times as long after other work.

Redirects are not followed: an answer must not be able to choose which host is called next, nor to take the headers of a
request to another one. Names are resolved for each connection, and remembered for seconds. Proxies and
cookies do not exist here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from twophase.http_client.address import Address, AddressBook
from twophase.http_client.byte_budget import ByteBudget
from twophase.http_client.guard import Guard
from twophase.http_client.names import Names
from twophase.http_client.outcome import HttpError, HttpErrorKind, HttpResponse, OnDone, Outcome
from twophase.http_client.pool import Limits
from twophase.http_client.pools import HostPools
from twophase.http_client.request import METHODS, METHODS_WITH_BODY, HeaderBook, PendingCall, encode_headers
from twophase.http_client.timeouts import Timeouts

Sign = Callable[[str, str, bytes], bytes]
"""Takes method, target and body as they are sent; returns a header line.

The line ends with CR LF and has been checked by its maker.
"""
_Unsent = tuple[PendingCall, Address, str, str, Sign | None]
"""A call and its address; its method, its target, and what signs it."""

__all__ = ["HttpClient", "HttpError", "HttpErrorKind", "HttpResponse", "OnDone", "Outcome"]


class HttpClient:
    """A client for one event loop: the one that runs at its first use.

    Arguments:
        connections_per_host: connections to one scheme, host and port; more calls wait.
        connections_max: connections to all hosts together.
        queue_per_host: calls that may wait for a connection to one host; more are refused as overloaded.
        response_bytes_max: the longest body.
        header_bytes_max: the longest headers, interim responses and trailers included.
        connect_timeout_ms: for resolving, connecting and the TLS handshake, within the call's own timeout.
        idle_timeout_ms: how long a connection is kept without use; best below that of the servers.
        ssl_context: for `https`; the system's certificate authorities when None.
        ssl_contexts: those of single hosts, by `scheme://host:port`; `ssl_context` for all others.
        names: resolves names; its own when None.
        guard: judges each address before it is connected to; None allows every address.
        budget: of the bytes of unfinished responses; None bounds each response alone.

    Example:
        client = HttpClient()
        response = await client.fetch("GET", "http://localhost:36789/api/ping", timeout_ms=1000)
    """

    def __init__(
        self,
        *,
        connections_per_host: int = 64,
        connections_max: int = 1024,
        queue_per_host: int = 4096,
        response_bytes_max: int = 1024 * 1024,
        header_bytes_max: int = 64 * 1024,
        connect_timeout_ms: int = 3000,
        idle_timeout_ms: int = 15_000,
        ssl_context: ssl.SSLContext | None = None,
        ssl_contexts: Mapping[str, ssl.SSLContext] | None = None,
        names: Names | None = None,
        guard: Guard | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        self._limits = Limits(
            connections_per_host=connections_per_host,
            connections_max=connections_max,
            queue_per_host=queue_per_host,
            response_bytes_max=response_bytes_max,
            header_bytes_max=header_bytes_max,
            connect_timeout_ms=connect_timeout_ms,
            idle_timeout_ms=idle_timeout_ms,
            budget=budget,
        )
        assert connections_per_host > 0
        assert connections_max > 0
        self._tls = ssl_context
        self._tls_of = ssl_contexts or {}
        self._names = names or Names()
        self._guard = guard
        self._addresses = AddressBook()
        self._headers = HeaderBook()
        self._engine: tuple[asyncio.AbstractEventLoop, Timeouts, HostPools] | None = None
        self._unsent: list[_Unsent] = []
        """The calls of this turn."""
        self._closed = False

    def request(
        self,
        method: str,
        url: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeout_ms: int,
        on_done: OnDone,
        response_bytes_max: int = 0,
        parameters: str = "",
        sign: Sign | None = None,
    ) -> PendingCall | None:
        """Start a call; `on_done` is called once, later, on the event loop.

        Arguments:
            method: GET, POST, HEAD, PUT, PATCH, DELETE or OPTIONS.
            url: absolute, `http` or `https`; its fragment is dropped.
            headers: names and values, sent in this order; those that frame the request are refused.
            body: sent with its length; empty for none.
            timeout_ms: for everything from now to the last byte of the response; at least 1.
            on_done: gets the `HttpResponse`, whatever its status, or an `HttpError`.
            response_bytes_max: the longest body of this response, where it may be longer than any.
            parameters: appended to the URL's own query, already as they stand in a request line.
            sign: gives one more header line, of the request as it is sent.

        Returns:
            The call, for a caller who may lose interest and `cancel` it; None when it was refused.
        """
        loop, timeouts, pools = self._engine or self._open()
        try:
            if self._closed:
                raise HttpError(HttpErrorKind.CLOSED, "the client is closed")
            if method not in METHODS:
                raise HttpError(HttpErrorKind.BAD_HEADER, "no such method")
            address = self._addresses[url]
            target = f"{address.target}{address.joint}{parameters}" if parameters else address.target
            length = f"content-length: {len(body)}\r\n" if body or method in METHODS_WITH_BODY else ""
            head = f"{method} {target}{address.end_of_line}{self._headers[tuple(headers)]}{length}\r\n".encode()
            if address.key not in pools.known:
                pools.pool_of(address)
        except HttpError as error:
            loop.call_soon(on_done, error)
            return None
        call = PendingCall(head, body, on_done, timeouts, timeout_ms, response_bytes_max, is_head=method == "HEAD")
        if not self._unsent:
            loop.call_soon(self._send)
        call.carrier = self
        self._unsent.append((call, address, method, target, sign))
        return call

    def _send(self) -> None:
        """Sign and send the calls of the last turn."""
        assert self._engine is not None, "the first call opens it"
        _, _, pools = self._engine
        unsent, self._unsent = self._unsent, []
        for call, _, method, target, sign in unsent:
            if sign is not None:
                try:
                    call.head = b"%b%b\r\n" % (call.head[:-2], sign(method, target, call.body))
                except Exception as error:  # noqa: BLE001 -- one call's fault must not take its neighbours' outcomes
                    call.finish(HttpError(HttpErrorKind.BAD_HEADER, f"no signature: {type(error).__name__}"))
        for call, address, *_ in unsent:
            if call.carrier is self:  # it has not ended meanwhile
                (pools.known.get(address.key) or pools.pool_of(address)).take_on(call)
            else:
                pools.drop_unused(address.key)

    def let_go(self, call: PendingCall) -> str:  # noqa: ARG002 - `_send` finds that it has ended
        """Forget a call that ended in the turn in which it began."""
        return "its turn"

    async def fetch(
        self, method: str, url: str, headers: Sequence[tuple[str, str]] = (), body: bytes = b"", *, timeout_ms: int
    ) -> HttpResponse:
        """Call as `request` does, where speed does not matter; cancelling drops the call.

        Raises:
            HttpError: there is no response.
        """
        loop, *_ = self._engine or self._open()
        outcome_of: asyncio.Future[Outcome] = loop.create_future()

        def settle(outcome: Outcome) -> None:
            if not outcome_of.done():
                outcome_of.set_result(outcome)

        call = self.request(method, url, headers, body, timeout_ms, settle)
        try:
            outcome = await outcome_of
        except asyncio.CancelledError:
            if call is not None:
                call.cancel()
            raise
        if isinstance(outcome, HttpError):
            raise outcome
        return outcome

    def check_url(self, url: str) -> str:
        """Return the `scheme://host:port` that a call of `url` would go to.

        Raises:
            HttpError: kind `BAD_URL`, or `REFUSED` for an IP address that the guard refuses, as a call would end.

        >>> HttpClient().check_url("http://Bank-B/in?x=1")
        'http://bank-b:80'
        """
        address = self._addresses[url]
        if self._guard is not None:
            self._guard.require_literal(address.host, address.port)
        return address.key

    def check_headers(self, headers: Sequence[tuple[str, str]]) -> None:
        """Refuse headers that `request` would refuse.

        Raises:
            HttpError: kind `BAD_HEADER`.
        """
        encode_headers(headers)

    @property
    def under_way(self) -> Mapping[str, int]:
        """Return the number of calls not ended yet, by `scheme://host:port`."""
        if self._engine is None:
            return {}
        _, _, pools = self._engine
        unsent = [address.key for call, address, *_ in self._unsent if call.carrier is self]
        return Counter(pools.under_way()) + Counter(unsent)

    @property
    def connections(self) -> int:
        """Return the number of connections open or being opened."""
        return self._engine[2].connections if self._engine is not None else 0

    async def close(self) -> None:
        """End every call with an error, close every connection.

        It may be called again; calls are refused from now.
        """
        self._closed = True
        if self._engine is not None:
            _, timeouts, pools = self._engine
            closed = HttpError(HttpErrorKind.CLOSED, "the client is closed")
            unsent, self._unsent = self._unsent, []
            for call, *_ in unsent:
                call.finish(closed)
            await pools.close(closed)
            timeouts.stop()

    def abandon(self) -> None:
        """Close the connections of an event loop that was closed before `close`."""
        assert self._engine is None or self._engine[0].is_closed(), "an open loop closes its connections itself"
        if self._engine is not None:
            self._engine[2].abandon()

    def _open(self) -> tuple[asyncio.AbstractEventLoop, Timeouts, HostPools]:
        loop = asyncio.get_running_loop()
        timeouts = Timeouts(loop)
        pools = HostPools(self._limits, loop, timeouts, self._tls, self._tls_of, self._names, self._guard)
        self._engine = loop, timeouts, pools
        return self._engine
