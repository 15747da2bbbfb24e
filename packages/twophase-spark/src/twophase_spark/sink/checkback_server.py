"""The server of `twophase spark checkback`: one route, within bounds.

Promise: whatever its clients send, the number of connections and threads is bounded, one address has half of them at
most, and a request is short and arrives in a bounded time. A request beyond a bound gets no verdict, so the coordinator
takes it for unknown and asks again.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import io
import ipaddress
import socket
import ssl
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from sqlalchemy import Engine

from twophase.barrier.http_answer import HttpReply
from twophase.barrier.signing import Keys
from twophase.core.credentials import require_private
from twophase.core.errors import ConfigurationError
from twophase.core.limits import REQUEST_HEADER_BYTES_MAX
from twophase.core.signature import known_keys
from twophase_spark.sink.checkback import PATH, answer

CONNECTIONS_MAX: Final = 512
REQUEST_S: Final = 10.0
"""The time for a request to arrive, and for its answer to be taken."""
_IDLE_S: Final = 60.0
"""The time between two requests of a connection."""
_PARAMETERS_MAX: Final = 100
_LINE_ENDS: Final = frozenset("\r\n\0")
_TEXT: Final = {"content-type": "text/plain; charset=utf-8"}
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class CheckBackServer(http.server.ThreadingHTTPServer):
    """A small server for this route alone; several may run beside each other.

    Arguments:
        engine: the ledger's database.
        host, port: where it listens; port 0 for any.
        keys: as `checkback.answer`.
        tls: the certificate that it shows (`tls_of`); by default it speaks plain text.
        connections_max: connections, and so threads, at once; others are answered 503. One address has half of them at
            most.
        request_s: the time for a request to arrive, and for its answer to be taken; and for a handshake of TLS.

    Raises:
        ConfigurationError: there is no key in `keys`, or one cannot be a key.
        OSError: the address cannot be used.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        engine: Engine,
        host: str,
        port: int,
        keys: Keys | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        connections_max: int = CONNECTIONS_MAX,
        request_s: float = REQUEST_S,
    ) -> None:
        known_keys(keys)
        self.engine = engine
        self.keys = keys
        self.request_s = request_s
        self._tls = tls
        self._connections_max = connections_max
        self._connections = 0
        self._by_address: Counter[str] = Counter()
        self._counting = threading.Lock()
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """The address for option `checkUrl`."""
        host, port = self.server_address[0], self.server_address[1]
        return f"{'https' if self._tls else 'http'}://{host!s}:{port}{PATH}"

    @property
    def is_exposed(self) -> bool:
        """True where other machines reach it, and every question is answered."""
        return self.keys is None and not ipaddress.ip_address(str(self.server_address[0])).is_loopback

    @property
    def crowded(self) -> bool:
        """True while more than half of the connections are taken."""
        return 2 * self._connections > self._connections_max

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or turn it away."""
        if not self._enter(client_address[0]):
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(_BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._leave(client_address[0])
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection until it ends."""
        try:
            super().process_request_thread(self._begun(request), client_address)
        except OSError:  # a handshake that failed, or did not end in time
            self.shutdown_request(request)
        finally:
            self._leave(client_address[0])

    def _begun(self, request: Any) -> Any:
        """Return the connection behind its handshake of TLS, where there is one."""
        if self._tls is None:
            return request
        request.settimeout(self.request_s)
        return self._tls.wrap_socket(request, server_side=True)

    def _enter(self, address: str) -> bool:
        with self._counting:
            full = self._connections >= self._connections_max
            if full or 2 * self._by_address[address] >= self._connections_max:
                return False
            self._connections += 1
            self._by_address[address] += 1
            return True

    def _leave(self, address: str) -> None:
        with self._counting:
            self._connections -= 1
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


def tls_of(certificate: str, key: str) -> ssl.SSLContext:
    """Return a context with the server's certificate, for TLS 1.2 or newer.

    Arguments:
        certificate: a PEM file with the certificate and those between it and its authority.
        key: a PEM file with its private key, which no other user may read.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        require_private("--tls-key", Path(key))
        # The password: an encrypted key is refused, where OpenSSL would ask the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except OSError as error:
        why = getattr(error, "reason", None) or error.strerror or type(error).__name__
        text = f"--tls-certificate {certificate}, --tls-key {key}: they cannot be used: {why}."
        raise ConfigurationError(text, remedy="Give the PEM files of a certificate and of its key.") from error
    return context


class _Head(io.RawIOBase):
    """The bytes of a connection: of each request a bounded number, in a bounded time."""

    def __init__(self, connection: socket.socket, request_s: float) -> None:
        super().__init__()
        self._connection = connection
        self._request_s = request_s
        self._ends_s: float | None = time.monotonic() + request_s
        self._bytes_left = REQUEST_HEADER_BYTES_MAX.value

    def await_next(self) -> None:
        """Expect another request."""
        self._ends_s, self._bytes_left = None, REQUEST_HEADER_BYTES_MAX.value

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has arrived.

        Raises:
            TimeoutError: the request has not arrived in time.
            HTTPException: it is too long.
        """
        if not self._bytes_left:
            raise http.client.HTTPException(f"more than {REQUEST_HEADER_BYTES_MAX.value} bytes")
        wait_s = _IDLE_S if self._ends_s is None else self._ends_s - time.monotonic()
        if wait_s <= 0:
            raise TimeoutError
        self._connection.settimeout(wait_s)
        count = self._connection.recv_into(memoryview(buffer)[: self._bytes_left])
        self._bytes_left -= count
        if self._ends_s is None:
            self._ends_s = time.monotonic() + self._request_s
        return count


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CheckBackServer  # pyright: ignore[reportIncompatibleVariableOverride] -- the library types it widely

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._head = _Head(self.connection, self.server.request_s)
        self.rfile = io.BufferedReader(self._head)

    def handle_one_request(self) -> None:
        """Answer a request; end a connection that is cut or sends too much."""
        try:
            super().handle_one_request()
        except (ConnectionError, ssl.SSLError, http.client.HTTPException):
            self.close_connection = True
        self._head.await_next()

    def do_GET(self) -> None:
        reply = self._reply()
        self.connection.settimeout(self.server.request_s)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(reply.body)))
        if reply.status in {400, 401, 413} or self.server.crowded:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(reply.body)

    def _reply(self) -> HttpReply:
        if self.headers.defects or any(set(text) & _LINE_ENDS for pair in self.headers.items() for text in pair):
            return HttpReply(400, _TEXT, b"a header is none, or of more than one line")
        lengths = {value.strip() for value in self.headers.get_all("content-length", [])}
        if lengths - {"0"} or "transfer-encoding" in self.headers:
            return HttpReply(413, _TEXT, b"a question has no body")
        path, _, query = self.path.partition("?")
        if path == "/health/live":
            return HttpReply(200, {"content-type": "application/json"}, b'{"status":"live"}')
        if path != PATH:
            return HttpReply(404, _TEXT, f"check-backs are answered at {PATH}".encode())
        try:
            parameters = parse_qs(query, max_num_fields=_PARAMETERS_MAX)
        except ValueError:
            return HttpReply(400, _TEXT, f"more than {_PARAMETERS_MAX} parameters".encode())
        server, peer = self.server, self.client_address[0]
        return answer(server.engine, parameters, server.keys, target=self.path, headers=self.headers, peer=peer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Refuse a request that cannot be read.

        A 5xx would be a fault of this server; the library says 501 and 505 to other methods and versions.
        """
        self.close_connection = True
        self.request_version = self.protocol_version  # the library sends no head to a version that it cannot read
        text = (message or "this request cannot be read").encode("latin-1", "replace")
        self.send_response(code if code < 500 else 400)
        self.send_header("content-type", _TEXT["content-type"])
        self.send_header("content-length", str(len(text)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the library's name
        """Log nothing: a question a message would fill the log."""
