"""Blocking HTTP to one coordinator: keep-alive connections, safe under threads and forks.

Own code on plain sockets and httptools' parser, because a prepare and a submit go with every business
transaction: the standard library's client costs three times the CPU for parsing headers nobody reads. A
kept-alive connection that the coordinator closed in the meantime is replaced without the caller noticing, which
is safe because every request is idempotent (I7).
"""

from __future__ import annotations

import os
import socket
import ssl
import time
import weakref
from collections import deque
from urllib.parse import urlsplit

import httptools

from twophase.client.transport.wire import Disconnected, HttpAnswer, Operation, TransportFailure, api_url
from twophase.core.errors import ConfigurationError

ANSWER_BYTES_MAX = 1024 * 1024
IDLE_CONNECTIONS_MAX = 64
_READ_BYTES = 65536
_REMEDY = "Write http://host:port, the address at which `twophase server` listens."


class Target:
    """Where a coordinator is, taken apart once."""

    __slots__ = ("authority", "host", "path", "port", "tls")

    def __init__(self, server: str) -> None:
        """Take `server` apart.

        Raises:
            ConfigurationError: not an http or https address.
        """
        try:
            parts = urlsplit(api_url(server))
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(f"server {server!r} is no address: {error}.", remedy=_REMEDY) from error
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            remedy = _REMEDY if "://" in server or not server else f"Write http://{server}."
            raise ConfigurationError(f"server {server!r} is no http:// or https:// address.", remedy=remedy)
        if not server.isascii() or not server.isprintable() or " " in server or parts.query or parts.fragment:
            raise ConfigurationError(
                f"server {server!r} has something in it that no address of a server has.", remedy=_REMEDY
            )
        self.tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = port or (443 if self.tls else 80)
        self.authority = parts.netloc.rpartition("@")[2]
        self.path = parts.path


class _Connection:
    """One socket and the answer being read from it."""

    __slots__ = ("_body", "_complete", "_parser", "_received", "_retry_after", "_socket", "answers", "reusable")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
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

    def exchange(self, request: bytes, deadline: float) -> HttpAnswer:
        """Send a request and read its whole answer.

        Raises:
            OSError: broken or out of time. EOFError: closed too soon. httptools.HttpParserError: not HTTP.
            TransportFailure: the answer is too large.
        """
        self._complete = False
        self._received = 0
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(request)
        while not self._complete:
            self._socket.settimeout(_left(deadline))
            part = self._socket.recv(_READ_BYTES)
            if not part:
                raise EOFError("the connection was closed before the answer was complete")
            self._received += len(part)
            if self._received > ANSWER_BYTES_MAX:
                raise TransportFailure(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
            self._parser.feed_data(part)
        self.answers += 1
        return HttpAnswer(self._parser.get_status_code(), b"".join(self._body), self._retry_after)

    @property
    def silent(self) -> bool:
        """Whether not one byte of an answer came: a connection that was closed while idle looks like this."""
        return self._received == 0

    def close(self) -> None:
        self._socket.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _failure(text: str, error: Exception) -> TransportFailure:
    """Classify a failure: a broken connection differs from a silent coordinator and from a server that is none."""
    broken = isinstance(error, OSError | EOFError) and not isinstance(error, TimeoutError)
    return Disconnected(text) if broken else TransportFailure(text)


def _close_all(idle: deque[_Connection]) -> None:
    while idle:
        idle.pop().close()


class SyncTransport:
    """A pool of connections to one coordinator; any thread may use it, and any child after a fork."""

    def __init__(
        self, server: str, *, headers: tuple[tuple[str, str], ...] = (), ssl_context: ssl.SSLContext | None = None
    ) -> None:
        """Connects on first use.

        Arguments:
            server: `http://host:port` or `https://…`, with or without dtm's path.
            headers: sent with every request, such as an authorization.
            ssl_context: for https; the system's trusted roots by default.

        Raises:
            ConfigurationError: not such an address.
        """
        target = self._target = Target(server)
        self._ssl = ssl_context or (ssl.create_default_context() if target.tls else None)
        extra = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self._heads = {
            operation: (
                f"POST {target.path}/{operation.value} HTTP/1.1\r\nhost: {target.authority}\r\n"
                f"content-type: application/json\r\n{extra}content-length: "
            ).encode("ascii")
            for operation in Operation
        }
        # deque.append and pop are atomic, so no lock is held that a fork could leave locked for ever.
        self._idle: deque[_Connection] = deque()
        self._process = os.getpid()
        self._closed = weakref.finalize(self, _close_all, self._idle)

    def send(self, operation: Operation, body: bytes, timeout_ms: int) -> HttpAnswer:
        """Send one request and wait for its answer, at most `timeout_ms`.

        Raises:
            TransportFailure: no usable answer came.
        """
        request = b"%b%d\r\n\r\n%b" % (self._heads[operation], len(body), body)
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            try:
                connection = self._take() or self._connect(deadline)
            except OSError as error:
                raise Disconnected(f"cannot connect to {self._target.authority}: {error}") from error
            try:
                answer = connection.exchange(request, deadline)
            except (OSError, EOFError, httptools.HttpParserError) as error:
                stale = connection.answers > 0 and connection.silent and not isinstance(error, TimeoutError)
                connection.close()
                if stale:
                    continue
                raise _failure(f"{self._target.authority}: {error or type(error).__name__}", error) from error
            except BaseException:
                connection.close()
                raise
            if connection.reusable and len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append(connection)
            else:
                connection.close()
            return answer

    def close(self) -> None:
        """Close the idle connections; the transport may be used again."""
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
        target = self._target
        connected = socket.create_connection((target.host, target.port), timeout=_left(deadline))
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._ssl is not None:
                connected = self._ssl.wrap_socket(connected, server_hostname=target.host)
        except BaseException:
            connected.close()
            raise
        return _Connection(connected)
