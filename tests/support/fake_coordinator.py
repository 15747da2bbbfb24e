"""A coordinator in memory that answers as the test wants.

Beside it stands a client that speaks raw bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httptools

from tests.support.certificates import Certificates
from twophase.coordinator.gauges import Gauges
from twophase.coordinator.maintenance.horizon import Horizon
from twophase.coordinator.state.active_message import OnReply, Owner, Reply
from twophase.coordinator.view import MessageView
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.http_client.byte_budget import ByteBudget
from twophase.server.api.dtm_http import ColdRoutes, application
from twophase.server.api.dtm_jsonrpc import JsonRpcApi
from twophase.server.codecs.decode import Decoder
from twophase.server.http_port.connection import Connection
from twophase.server.http_port.listener import Listener
from twophase.server.http_port.port import Timeouts
from twophase.server.metrics import Metrics
from twophase.server.tls import ServerTls
from twophase.stores.base import Overview

_PATIENCE_S = 20.0
"""Bound that ends a test that hangs; long enough for a machine busy with others."""
_CLOSED_S = 8.0
"""Less than the server's timeout for a request that makes no progress."""

ACCEPTED = Reply(None, State.PREPARED, 1_700_000_000_000)


class FakeCoordinator:
    """A coordinator that answers every request with `answer`.

    It answers at once or, when `holds`, when the test releases the request.
    """

    def __init__(self) -> None:
        self.answer: Callable[[str], Reply] = lambda gid: ACCEPTED
        self.holds = False
        self.held: list[tuple[str, OnReply]] = []
        self.heard: list[tuple[str, str]] = []
        self.messages: list[Message] = []
        self.ready = True
        self.views: dict[str, MessageView] = {}
        self.query_waits: asyncio.Event | None = None
        self.readings: list[tuple[str, ...]] = []
        """The questions to the store about all messages."""
        self.store_fault: Exception | None = None
        self.store_answers = asyncio.Event()
        self.store_answers.set()

    def prepare(
        self, message: Message, on_reply: OnReply, created_ms: int | None = None, owner: Owner | None = None
    ) -> None:
        self._hear("prepare", message.gid, on_reply)
        self.messages.append(message)

    def submit(
        self, message: Message, on_reply: OnReply, created_ms: int | None = None, owner: Owner | None = None
    ) -> None:
        self._hear("submit", message.gid, on_reply)
        self.messages.append(message)

    def abort(self, gid: str, on_reply: OnReply, owner: Owner | None = None) -> None:
        self._hear("abort", gid, on_reply)

    def release(self, gid: str, reply: Reply = ACCEPTED) -> None:
        """Answer a held request now."""
        for index, (held, on_reply) in enumerate(self.held):
            if held == gid:
                del self.held[index]
                on_reply(reply)
                return
        raise AssertionError(f"{gid} is not held")

    async def query(self, gid: str, client: str = "") -> MessageView | None:
        if self.query_waits is not None:
            await self.query_waits.wait()
        return self.views.get(gid)

    async def overview(self) -> Overview:
        await self._read("overview")
        return Overview(0, 0, 0, None, None)

    async def horizon(self, check_prefix: str, identity: str) -> Horizon:
        await self._read("horizon", check_prefix, identity)
        return Horizon(0, 0, 0)

    async def _read(self, *asked: str) -> None:
        self.readings.append(asked)
        await self.store_answers.wait()
        if self.store_fault is not None:
            raise self.store_fault

    def gauges(self) -> Gauges:
        return Gauges(0, 0, 0, 0, 0, 0, 0, 0, 0)

    def _hear(self, what: str, gid: str, on_reply: OnReply) -> None:
        self.heard.append((what, gid))
        if self.holds:
            self.held.append((gid, on_reply))
        else:
            on_reply(self.answer(gid))


class StoppedClock:
    """A clock that always shows the same moment."""

    def now_ms(self) -> int:
        return 1_700_000_000_000


@dataclass
class Response:
    """One HTTP response as it arrived."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class _Collector:
    def __init__(self) -> None:
        self.responses: list[Response] = []
        self.now = Response()
        self.is_within = False
        self.parser = httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        self.now = Response()
        self.is_within = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self.now.headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self.now.body += body

    def on_headers_complete(self) -> None:
        self.now.status = self.parser.get_status_code()

    def on_message_complete(self) -> None:
        self.responses.append(self.now)
        self.is_within = False


class Client:
    """A connection that sends a test's bytes, also what no client should send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._collector = _Collector()

    @property
    def hears_half(self) -> bool:
        """Return True when the beginning of a response has arrived, and not its end."""
        return self._collector.is_within

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def responses(self, count: int, *, timeout_s: float = _PATIENCE_S) -> list[Response]:
        """Return the next `count` responses, in the order of arrival."""
        async with asyncio.timeout(timeout_s):
            while len(self._collector.responses) < count:
                data = await self.reader.read(65536)
                if not data:
                    raise ConnectionError(f"closed after {len(self._collector.responses)} of {count} responses")
                self._collector.parser.feed_data(data)
        taken, self._collector.responses = self._collector.responses[:count], self._collector.responses[count:]
        return taken

    async def response(self, *, timeout_s: float = _PATIENCE_S) -> Response:
        return (await self.responses(1, timeout_s=timeout_s))[0]

    async def ask(self, data: bytes) -> Response:
        await self.send(data)
        return await self.response()

    async def is_closed(self, *, timeout_s: float = _CLOSED_S) -> bool:
        """Wait for the server to close; what it still sends is discarded."""
        try:
            async with asyncio.timeout(timeout_s):
                while await self.reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def reset(self) -> None:
        """Disconnect by a reset, not by an orderly end."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        self.writer.close()


@dataclass
class Wire:
    """A listening port with a fake coordinator behind it."""

    listener: Listener
    coordinator: FakeCoordinator
    metrics: Metrics
    port: int
    context: ssl.SSLContext | None = None
    clients: list[Client] = field(default_factory=list)

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context))
        self.clients.append(client)
        return client

    def connection(self) -> Connection:
        """Return the server's side of a connection; for tests with one client."""
        first = next(iter(self.listener.port.state.connections))
        assert isinstance(first, Connection)
        return first


@contextlib.asynccontextmanager
async def listening(
    *,
    timeouts: Timeouts | None = None,
    connections_max: int = 1_000,
    per_address_percent: int = 100,
    budget: ByteBudget | None = None,
    certificates: Certificates | None = None,
) -> AsyncIterator[Wire]:
    """Run such a port for one test, with TLS where there are certificates."""
    coordinator, metrics = FakeCoordinator(), Metrics()
    cold = ColdRoutes(coordinator, metrics, StoppedClock(), lambda: listener.connections)
    decoder = Decoder(lambda url: None if url.startswith(("http://", "https://")) else "no destination for it.")
    rpc = JsonRpcApi(coordinator, decoder, StoppedClock(), metrics.refused)
    listener = Listener(
        coordinator,
        decoder,
        application([*cold.served(), *rpc.served()], metrics.refused),
        on_refused=metrics.refused,
        timeouts=timeouts,
        connections_max=connections_max,
        per_address_percent=per_address_percent,
        budget=budget,
        tls=None if certificates is None else ServerTls(str(certificates.certificate), str(certificates.key)),
    )
    urls = await listener.start("127.0.0.1", 0)
    context = None if certificates is None else certificates.context()
    wire = Wire(listener, coordinator, metrics, int(urls[0].rpartition(":")[2]), context)
    try:
        yield wire
    finally:
        for client in wire.clients:
            client.close()
        listener.stop()
        assert await listener.closed(_PATIENCE_S), "every connection ends"
        for client in wire.clients:
            with contextlib.suppress(OSError):
                await client.writer.wait_closed()


def post(path: str, body: bytes, *headers: str, version: str = "1.1") -> bytes:
    """Return a POST as bytes."""
    lines = [f"POST {path} HTTP/{version}", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def message(gid: str) -> bytes:
    """Return a small, valid message."""
    return (
        b'{"gid":"%b","trans_type":"msg","steps":[{"action":"http://b/in"}],"payloads":["{}"],'
        b'"query_prepared":"http://a/check"}' % gid.encode()
    )


def prepare(gid: str, *headers: str, version: str = "1.1") -> bytes:
    """Return a prepare as bytes."""
    return post("/api/dtmsvr/prepare", message(gid), *headers, version=version)


def get(path: str, *headers: str) -> bytes:
    """Return a GET as bytes."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers]).encode() + b"\r\n\r\n"
