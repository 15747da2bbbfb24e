"""The branch service of a run.

It answers every call at once and notifies the ledger. The call of a branch nearly always arrives whole in one read,
with the length of its payload: then its number stands at a known offset and nothing is parsed. Any other read (two
requests, a part of one, chunks, a check-back) goes through a parser, so that the calls of every client are understood.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final, cast

import httptools

from benchmarks.load.ledger import Ledger
from benchmarks.load.workload import BRANCH_DIGITS, FIRST_NUMBER, NUMBER_AT, NUMBER_DIGITS

_DONE: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
_CHECKED: Final = b"HTTP/1.1 %d Checked\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_VERDICTS: Final = {
    200: b'{"dtm_result":"SUCCESS"}',
    409: b'{"dtm_result":"FAILURE"}',
    425: b'{"dtm_result":"ONGOING"}',
}
PARSED: Final = -1
"""A length that no payload has: every call is then parsed, and can be inspected."""
IN_PROGRESS: Final = 425
ROLLED_BACK: Final = 409


class Sink:
    """A branch service on a port of its own.

    Arguments:
        ledger: records every call.
        payload_bytes: the length of every payload.
        check_status: the answer to check-backs, 200 committed, 409 rolled back, 425 in progress.
        check_delay_s: the delay of that answer.
    """

    def __init__(
        self, ledger: Ledger, payload_bytes: int, check_status: int = IN_PROGRESS, check_delay_s: float = 0.0
    ) -> None:
        self.ledger = ledger
        self.payload_bytes = payload_bytes
        self.check_delay_s = check_delay_s
        self.holding = False
        """While it is set, no call is answered, and none counts as arrived."""
        self.held = 0
        self.token = secrets.token_hex(4)
        self.checks = 0
        self.url = ""
        self.port = 0
        self.connections: set[SinkConnection] = set()
        self._check_status = check_status
        self._server: asyncio.Server | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen, again on the same port after a `stop`. Returns `http://host:port/token`."""
        loop = asyncio.get_running_loop()
        port = port or self.port
        self._server = await loop.create_server(
            lambda: SinkConnection(self), host, port, backlog=4096, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}/{self.token}"
        return self.url

    def stop(self) -> None:
        """Cut every connection and stop listening: for callers it is down."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()

    def answer(self, path: bytes, body: bytes) -> bytes:
        """Account for a parsed request; return its response."""
        prefix, _, name = path.partition(b"?")[0].rpartition(b"/")
        if prefix != b"/" + self.token.encode():
            self.ledger.strays += 1
        elif name == b"check":
            self.checks += 1
            verdict = _VERDICTS[self._check_status]
            return _CHECKED % (self._check_status, len(verdict), verdict)
        else:
            digits = body[NUMBER_AT : NUMBER_AT + NUMBER_DIGITS]
            if digits.isdigit() and name.isdigit():
                self.ledger.arrive(int(digits) - FIRST_NUMBER, int(name) - 1)
            else:
                self.ledger.foreign += 1
        return _DONE


class SinkConnection(asyncio.Protocol):
    """One connection of a caller."""

    def __init__(self, sink: Sink) -> None:
        self.transport = cast("asyncio.Transport", None)
        self._sink = sink
        self._ledger = sink.ledger
        self._branch_path = f"POST /{sink.token}/".encode()
        self._branch_at = len(self._branch_path)
        self._payload_bytes = sink.payload_bytes
        self._parser: httptools.HttpRequestParser | None = None
        self._path = b""
        self._pieces: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection of a caller."""
        self.transport = cast("asyncio.Transport", transport)
        self._sink.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- whatever ended it
        """Forget the connection of a caller that is gone."""
        self._parser = None
        self._sink.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """Take a read: nearly always exactly one call of a branch."""
        if self._sink.holding:
            self._sink.held += 1
            return
        at = data.find(b"\r\n\r\n") + 4
        if self._parser is None and len(data) - at == self._payload_bytes and data.startswith(self._branch_path):
            branch = data[self._branch_at : self._branch_at + BRANCH_DIGITS]
            digits = data[at + NUMBER_AT : at + NUMBER_AT + NUMBER_DIGITS]
            if digits.isdigit() and branch.isdigit():
                self.transport.write(_DONE)
                self._ledger.arrive(int(digits) - FIRST_NUMBER, int(branch) - 1)
                return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._ledger.strays += 1
            self.transport.abort()

    # The methods that the parser calls.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._path = b""
        self._pieces.clear()

    def on_url(self, url: bytes) -> None:
        """Take a piece of its address."""
        self._path += url

    def on_body(self, body: bytes) -> None:
        """Take a piece of its body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Answer the complete request."""
        sink = self._sink
        checks = sink.checks
        answer = sink.answer(self._path, b"".join(self._pieces))
        if sink.check_delay_s and sink.checks > checks:
            asyncio.get_running_loop().call_later(sink.check_delay_s, self.transport.write, answer)
        else:
            self.transport.write(answer)
