"""Blocking HTTP/1.1 to one server.

Connections are kept alive, and are safe under threads and forks.

The SDK's blocking calls, the commands, the import from dtm and Spark's sink use it. It is own code on plain sockets and
the async client's reader of responses, because a prepare and a submit go with every business transaction: the standard
library's client costs three times the CPU for parsing headers that nothing reads.

A kept-alive connection that the server closed while it was idle is replaced without a word to the caller. So every
request must be idempotent (I7). If one says nothing until the time is up, the idle ones may have died with it: all are
closed, so that the next request connects anew.

Redirects are not followed, and proxies of the environment are not used: requests go directly to the server.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
import weakref
from collections import deque
from typing import Final

from twophase.http_client.address import Address
from twophase.http_client.outcome import HttpError, HttpErrorKind, HttpResponse
from twophase.http_client.reader import KnownHeads, ResponseReader
from twophase.http_client.tls_failure import tls_failure

IDLE_CONNECTIONS_MAX: Final = 64
_IDLE_S_MAX: Final = 15.0
"""Longest idle time of a connection that is used again; as in `HttpClient`.

A router forgets a connection after some minutes, and a host that is gone says nothing: its sockets look alive.
"""
_READ_BYTES: Final = 65536
_HEADER_BYTES_MAX: Final = 64 * 1024
_LEAST_S: Final = 0.000_001
"""Least timeout of a call on the socket, in seconds.

It ends a call whose deadline has passed; 0 would make the socket non-blocking.
"""


class BlockingClient:
    """A pool of connections to one server.

    Any thread may use it, and any child after a fork.
    """

    def __init__(
        self,
        server: Address,
        *,
        answer_bytes_max: int,
        headers: tuple[tuple[str, str], ...] = (),
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Connects on first use.

        Arguments:
            server: the address; its path stands before the path of every request.
            answer_bytes_max: an answer with a longer body is an error.
            headers: sent with every request, such as an authorization.
            ssl_context: for https; the system's trusted roots by default.
        """
        self.server = server
        self._path = server.path.rstrip("/")
        self._answer_bytes_max = answer_bytes_max
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self._ssl = (ssl_context or ssl.create_default_context()) if server.tls else None
        # deque.append and pop are atomic, so no lock is held that a fork could leave locked for ever.
        self._idle: deque[_Connection] = deque()
        self._known_heads = KnownHeads()
        self._process = os.getpid()
        self._closed = weakref.finalize(self, _close_all, self._idle)

    def head(self, method: str, path: str) -> bytes:
        """Return the head of requests, as `exchange` takes it.

        It declares a JSON body, and ends before the body's length.
        """
        return (
            f"{method} {self._path}{path} HTTP/1.1\r\nhost: {self.server.host_header}\r\n"
            f"content-type: application/json\r\n{self._headers}content-length: "
        ).encode("ascii")

    def request(self, method: str, path: str, body: bytes = b"", *, timeout_s: float) -> HttpResponse:
        """Send one request, and wait for its answer.

        Arguments:
            path: below the server's own path, with the query, percent-encoded.

        Raises:
            HttpError: no usable answer came.
        """
        return self.exchange(self.head(method, path), body, timeout_s)

    def exchange(self, head: bytes, body: bytes, timeout_s: float) -> HttpResponse:
        """Send one request whose head is known; otherwise as `request`."""
        request = b"%b%d\r\n\r\n%b" % (head, len(body), body)
        now_s = time.monotonic()
        deadline = now_s + timeout_s
        while True:
            try:
                connection = self._take(now_s) or self._connect(deadline)
            except TimeoutError as error:
                raise HttpError(HttpErrorKind.CONNECT, "timed out") from error
            except ssl.SSLError as error:
                raise tls_failure(self.server.host_header, error) from error
            except OSError as error:
                raise HttpError(HttpErrorKind.CONNECT, str(error)) from error
            try:
                response = connection.exchange(request, deadline)
            except (OSError, EOFError) as error:
                stale = connection.is_reused and connection.is_silent
                connection.close()
                if stale and not isinstance(error, TimeoutError):
                    continue
                if stale:
                    _close_all(self._idle)
                if isinstance(error, ssl.SSLError) and connection.is_silent and not connection.is_reused:
                    # TLS 1.3: a server judges the client's certificate after the client's end of the handshake.
                    raise tls_failure(self.server.host_header, error) from error
                raise HttpError(_kind(error), str(error) or type(error).__name__) from error
            except BaseException:
                connection.close()
                raise
            if connection.reader.reusable and len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append(connection)
            else:
                connection.close()
            return response

    def close(self) -> None:
        """Close the idle connections; the client may be used again."""
        _close_all(self._idle)

    def _take(self, now_s: float) -> _Connection | None:
        if self._process != os.getpid():
            # A child's copies of the parent's sockets: two processes must never talk on one.
            _close_all(self._idle)
            self._process = os.getpid()
        try:
            connection = self._idle.pop()
        except IndexError:
            return None
        if now_s - connection.used_s <= _IDLE_S_MAX:
            return connection
        connection.close()
        _close_all(self._idle)  # the one used last was taken
        return None

    def _connect(self, deadline: float) -> _Connection:
        server = self.server
        connected = _dial(server, deadline)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._ssl is not None:
                connected.settimeout(_left(deadline))
                connected = self._ssl.wrap_socket(connected, server_hostname=server.host)
        except BaseException:
            connected.close()
            raise
        return _Connection(
            connected,
            ResponseReader(
                body_bytes_max=self._answer_bytes_max, header_bytes_max=_HEADER_BYTES_MAX, heads=self._known_heads
            ),
        )


class _Connection:
    """One socket and the answer being read from it."""

    __slots__ = ("_socket", "is_reused", "reader", "used_s")

    def __init__(self, connected: socket.socket, reader: ResponseReader) -> None:
        self._socket = connected
        self.reader = reader
        self.is_reused = False
        """True when an answer came before."""
        self.used_s = 0.0
        """When the last request was begun, on the monotonic clock."""

    @property
    def is_silent(self) -> bool:
        """True when not one byte of the answer came.

        A connection that was closed while it was idle looks like this.
        """
        return not self.reader.started

    def exchange(self, request: bytes, deadline: float) -> HttpResponse:
        """Send a request and read its whole answer.

        Raises:
            OSError: broken or out of time. EOFError: closed too soon.
            HttpError: the answer is not HTTP, or too large.
        """
        connected, reader, now = self._socket, self.reader, time.monotonic
        reader.begin()
        self.used_s = now_s = now()
        connected.settimeout(max(deadline - now_s, _LEAST_S))
        connected.sendall(request)
        response = None
        while response is None:
            connected.settimeout(max(deadline - now(), _LEAST_S))
            part = connected.recv(_READ_BYTES)
            response = reader.feed(part) if part else reader.end_of_stream()
            if response is None and not part:
                raise EOFError("the connection was closed before the answer was complete")
        self.is_reused = True
        return response

    def close(self) -> None:
        self._socket.close()
        self.reader.dispose()


def _dial(server: Address, deadline: float) -> socket.socket:
    """Connect to the first of a server's addresses that accepts.

    Raises:
        OSError: none did before the deadline; the error is that of the last one.
    """
    addresses = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    reason: OSError | None = None
    for position, (family, kind, protocol, _, address) in enumerate(addresses):
        # An address that swallows packets may use its share of the time and no more.
        share_s = _left(deadline) / (len(addresses) - position)
        try:
            connected = socket.socket(family, kind, protocol)  # refused where this machine has no such family
            try:
                connected.settimeout(share_s)
                connected.connect(address)
            except BaseException:
                connected.close()
                raise
        except OSError as error:
            reason = error
        else:
            return connected
    raise reason or OSError("the name has no address")


def _kind(error: Exception) -> HttpErrorKind:
    """Classify a failure: a broken connection differs from a silent server."""
    return HttpErrorKind.TIMEOUT if isinstance(error, TimeoutError) else HttpErrorKind.CLOSED


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _close_all(idle: deque[_Connection]) -> None:
    while idle:
        idle.pop().close()
