"""A scripted coordinator for fault cases.

It has real sockets, records every request, and answers as a test asks.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from benchmarks.servers.ports import nobodys_port
from tests.support.http_server import QuietHandler, served

SUCCESS = b'{"dtm_result":"SUCCESS"}'


class Told(msgspec.Struct, frozen=True):
    """One answer; status 0 closes the connection without one."""

    status: int = 200
    body: bytes = SUCCESS
    headers: tuple[tuple[str, str], ...] = ()


CUT = Told(0)


class Request(msgspec.Struct, frozen=True):
    """One request, as it came."""

    operation: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class RecordingCoordinator:
    """A coordinator that answers 200 until a test changes its answers.

    The answer to a prepare carries the time of the prepare.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.tells: dict[str, list[Told]] = {}
        self.before_answer: Callable[[Request], None] = lambda _: None
        self.connections = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def operations(self) -> list[str]:
        """Return the operations requested, in order."""
        return [request.operation for request in self.requests]

    def last(self, operation: str) -> dict[str, Any]:
        """Return the body of the last request of this kind."""
        return next(request.body for request in reversed(self.requests) if request.operation == operation)

    def tell(self, operation: str, *answers: Told) -> None:
        """Set the answers to the next requests of this kind; the last one is repeated."""
        self.tells[operation] = list(answers)

    @contextlib.contextmanager
    def running(self) -> Iterator[RecordingCoordinator]:
        """Serve until the block ends."""
        with served(self._server):
            yield self

    def answer_to(self, request: Request) -> Told:
        """Return the answer to this request."""
        self.requests.append(request)
        self.before_answer(request)
        told = self.tells.get(request.operation)
        if told:
            return told.pop(0) if len(told) > 1 else told[0]
        if request.operation == "prepare":
            return Told(body=b'{"dtm_result":"SUCCESS","prepared_at":%d}' % _now_ms())
        return Told()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        coordinator = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                coordinator.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                told = coordinator.answer_to(
                    Request(
                        self.path.rpartition("/")[2], self.path, dict(self.headers.items()), msgspec.json.decode(body)
                    )
                )
                if told.status == 0:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                head = [f"HTTP/1.1 {told.status} X", f"content-length: {len(told.body)}"]
                head += [f"{name}: {value}" for name, value in told.headers]
                self.wfile.write("\r\n".join([*head, "", ""]).encode() + told.body)

        return Handler


def _now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000


def unused_url() -> str:
    """Return an address where no server listens."""
    return f"http://127.0.0.1:{nobodys_port()}"
