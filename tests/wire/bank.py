"""Branches and check-backs that answer as a test sets, call after call.

Every call is kept.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from urllib.parse import parse_qs

import msgspec

from tests.support.http_server import QuietHandler, served


class Called(msgspec.Struct, frozen=True):
    """One call: path, parameters of the query, headers in lower case, body."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: str


class Bank:
    """A bank: `answers[path]` holds the next calls' answers, one for each call.

    The last one stays. Without an entry the answer is 200.
    """

    def __init__(self) -> None:
        self.answers: dict[str, list[int | str]] = {}
        self.calls: list[Called] = []
        self.address = ""
        self.release = threading.Event()
        """The event that releases the answers to calls with the answer "late"."""

    def url(self, path: str) -> str:
        """Return the address of a path."""
        return f"http://{self.address}{path}"

    def times(self, path: str) -> int:
        """Return the number of calls of a path."""
        return sum(call.path == path for call in self.calls)

    def until_called(self, path: str, times: int = 1) -> Called:
        """Wait for this number of calls; return the last of them."""
        deadline_s = time.monotonic() + 60
        while self.times(path) < times:
            assert time.monotonic() < deadline_s, f"{path} was called {self.times(path)} times instead of {times}"
            time.sleep(0.005)
        return [call for call in self.calls if call.path == path][times - 1]

    def answer(self, path: str) -> int | str:
        """Return the answer to this call."""
        said = self.answers.get(path) or [200]
        return said.pop(0) if len(said) > 1 else said[0]


@contextlib.contextmanager
def bank() -> Iterator[Bank]:
    """Run a bank for one test."""
    one = Bank()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            path, _, query = self.path.partition("?")
            told = one.answer(path)
            pairs = {name: values[0] for name, values in parse_qs(query).items()}
            one.calls.append(Called(path, pairs, {name.lower(): value for name, value in self.headers.items()}, body))
            if told == "late":
                one.release.wait(60)
                told = 200
            text = b"" if isinstance(told, int) else told.encode()
            self.send_response(told if isinstance(told, int) else 200)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    one.address = f"127.0.0.1:{server.server_port}"
    with served(server):
        try:
            yield one
        finally:
            one.release.set()
