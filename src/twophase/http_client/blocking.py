"""Blocking HTTP/1.1 to one server.

Connections are kept alive, and are safe under threads and forks.

The SDK's blocking calls, the commands, the import from dtm and Spark's sink use it. It is own code on plain sockets and
httptools' parser, because a prepare and a submit go with every business transaction: the standard library's client
costs three times the CPU for parsing headers that nothing reads.

A kept-alive connection that the server closed while it was idle is replaced without a word to the caller. So every
request must be idempotent (I7). Redirects are not followed, and proxies of the environment are not used: requests go
directly to the server.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
import weakref
from collections import deque
from typing import Final, NamedTuple

import httptools

from twophase.http_client.address import Address
from twophase.http_client.outcome import HttpError, HttpErrorKind

IDLE_CONNECTIONS_MAX: Final = 64
_READ_BYTES: Final = 65536
_LEAST_S: Final = 0.000_001
"""Least timeout of a call on the socket, in seconds.

It ends a call whose deadline has passed; 0 would make the socket non-blocking.
"""


class Response(NamedTuple):
    """A complete answer; of its headers only `Retry-After`."""

    status: int
    body: bytes
    retry_after: str | None


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
            answer_bytes_max: a larger answer is an error.
            headers: sent with every request, such as an authorization.
            ssl_context: for https; the system's trusted roots by default.
        """
        self.server = server
        self._path = server.path.rstrip("/")
        self._answer_bytes_max = answer_bytes_max
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self._ssl = ssl_context or (ssl.create_default_context() if server.tls else None)
        # deque.append and pop are atomic, so no lock is held that a fork could leave locked for ever.
        self._idle: deque[_Connection] = deque()
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

    def request(self, method: str, path: str, body: bytes = b"", *, timeout_s: float) -> Response:
        """Send one request, and wait for its answer.

        Arguments:
            path: below the server's own path, with the query, percent-encoded.

        Raises:
            HttpError: no usable answer came.
        """
        return self.exchange(self.head(method, path), body, timeout_s)

    def exchange(self, head: bytes, body: bytes, timeout_s: float) -> Response:
        """Send one request whose head is known; otherwise as `request`."""
        request = b"%b%d\r\n\r\n%b" % (head, len(body), body)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                connection = self._take() or self._connect(deadline)
            except TimeoutError as error:
                raise HttpError(HttpErrorKind.CONNECT, "timed out") from error
            except OSError as error:
                raise HttpError(HttpErrorKind.CONNECT, str(error)) from error
            try:
                response = connection.exchange(request, deadline)
            except (OSError, EOFError, httptools.HttpParserError) as error:
                stale = connection.answers > 0 and connection.silent and not isinstance(error, TimeoutError)
                connection.close()
                if stale:
                    continue
                raise HttpError(_kind(error), str(error) or type(error).__name__) from error
            except BaseException:
                connection.close()
                raise
            if connection.reusable and len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append(connection)
            else:
                connection.close()
            return response

    def close(self) -> None:
        """Close the idle connections; the client may be used again."""
        _close_all(self._idle)

    def _take(self) -> _Connection | None:
        if self._process != os.getpid():
            # A child's copies of the parent's sockets: two processes must never talk on one.
            _close_all(self._idle)
            self._process = os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connect(self, deadline: float) -> _Connection:
        server = self.server
        connected = socket.create_connection((server.host, server.port), timeout=_left(deadline))
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._ssl is not None:
                connected = self._ssl.wrap_socket(connected, server_hostname=server.host)
        except BaseException:
            connected.close()
            raise
        return _Connection(connected, self._answer_bytes_max)


class _Connection:
    """One socket and the answer being read from it."""

    __slots__ = (
        "_body",
        "_bytes_max",
        "_complete",
        "_parser",
        "_received",
        "_retry_after",
        "_socket",
        "answers",
        "reusable",
    )

    def __init__(self, connected: socket.socket, bytes_max: int) -> None:
        self._socket = connected
        self._bytes_max = bytes_max
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._retry_after: str | None = None
        self._complete = False
        self._received = 0
        self.answers = 0
        self.reusable = False

    def on_message_begin(self) -> None:
        self._body.clear()
        self._retry_after = None

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        # Asked here, because the parser forgets it with the next byte or the end of the answer.
        self.reusable = self._parser.should_keep_alive()
        self._complete = self._parser.get_status_code() >= 200

    def exchange(self, request: bytes, deadline: float) -> Response:
        """Send a request and read its whole answer.

        Raises:
            OSError: broken or out of time. EOFError: closed too soon. httptools.HttpParserError: not HTTP.
            HttpError: the answer is too large.
        """
        self._complete = False
        self._received = 0
        connected, now = self._socket, time.monotonic
        connected.settimeout(max(deadline - now(), _LEAST_S))
        connected.sendall(request)
        while not self._complete:
            connected.settimeout(max(deadline - now(), _LEAST_S))
            part = connected.recv(_READ_BYTES)
            if not part:
                raise EOFError("the connection was closed before the answer was complete")
            self._received += len(part)
            if self._received > self._bytes_max:
                raise HttpError(HttpErrorKind.TOO_LARGE, f"the answer is larger than {self._bytes_max} bytes")
            self._parser.feed_data(part)
        self.answers += 1
        return Response(self._parser.get_status_code(), b"".join(self._body), self._retry_after)

    @property
    def silent(self) -> bool:
        """True when not one byte of an answer came.

        A connection that was closed while it was idle looks like this.
        """
        return self._received == 0

    def close(self) -> None:
        self._socket.close()


def _kind(error: Exception) -> HttpErrorKind:
    """Classify a failure.

    A broken connection differs from a silent server, and from a server that speaks no HTTP.
    """
    if isinstance(error, TimeoutError):
        return HttpErrorKind.TIMEOUT
    return HttpErrorKind.CLOSED if isinstance(error, OSError | EOFError) else HttpErrorKind.PROTOCOL


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _close_all(idle: deque[_Connection]) -> None:
    while idle:
        idle.pop().close()
