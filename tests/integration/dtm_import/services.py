"""The services of a system that moves to twophase.

One address records every call, and one proxy stands before the server.
"""

from __future__ import annotations

import contextlib
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit

import msgspec

from tests.support.http_server import QuietHandler, served
from twophase.core.takeover import PATH


class Call(msgspec.Struct, frozen=True):
    """One call as it arrived."""

    method: str
    path: str
    gid: str
    branch_id: str
    body: bytes
    headers: dict[str, str]


class Service:
    """A service that answers 200, or as `answers` says for a path.

    It records its calls.
    """

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self.answers: dict[str, int] = {}
        self.calls: list[Call] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def branches(self, gid: str) -> list[tuple[str, str]]:
        """Return (path, branch id) of a message's branch calls, in the order of arrival."""
        return [(call.path, call.branch_id) for call in self.calls if call.gid == gid and call.branch_id != "00"]


@contextlib.contextmanager
def service() -> Iterator[Service]:
    """Run a service on a free port."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            target = urlsplit(self.path)
            asked = parse_qs(target.query)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.calls.append(
                Call(
                    self.command, target.path, asked.get("gid", [""])[0], asked.get("branch_id", [""])[0], body, headers
                )
            )
            self.send_response(made.answers.get(target.path, 200))
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST = answer

    with _serving(Handler) as server:
        made = Service(server)
        yield made


class Gate:
    """A proxy between the command and the server.

    It forwards requests, and withholds the answer to one of them for ever.
    """

    def __init__(self, server: ThreadingHTTPServer, keeps: int) -> None:
        self.url = f"http://127.0.0.1:{server.server_port}"
        self.keeps = keeps
        """The number, from 1, of the request with messages that gets no answer."""
        self.taken = 0
        self.kept = threading.Event()
        self.opened = threading.Event()


@contextlib.contextmanager
def gate(before: str, keeps: int) -> Iterator[Gate]:
    """Run such a proxy before a server."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            request = urllib.request.Request(before + self.path, body or None, method=self.command)
            try:
                with urllib.request.urlopen(request, timeout=20) as response:
                    status, answer = response.status, response.read()
            except HTTPError as error:
                status, answer = error.code, error.read()
            if self.path == PATH and b'"gid"' in body and b'"dry_run":true' not in body:
                made.taken += 1
                if made.taken == made.keeps:
                    made.kept.set()
                    made.opened.wait(60)
                    self.close_connection = True
                    return
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = forward

    with _serving(Handler) as server:
        made = Gate(server, keeps)
        try:
            yield made
        finally:
            made.opened.set()


@contextlib.contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with served(server):
        yield server
