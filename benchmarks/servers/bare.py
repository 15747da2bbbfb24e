"""A server in sixty lines on httptools; null is measured beside it.

Null must not be slow itself. This one understands what the generator sends, answers prepare and submit at once, and
calls every branch of a submit.
"""

from __future__ import annotations

import asyncio
import signal
from typing import cast

import httptools
import msgspec
import uvloop

_ANSWER = b'{"dtm_result":"SUCCESS"}'
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_ANSWER), _ANSWER)


class _Step(msgspec.Struct):
    action: str


class _Message(msgspec.Struct):
    gid: str
    steps: list[_Step] = []
    payloads: list[str] = []


_connecting: set[asyncio.Future[None]] = set()
_decode = msgspec.json.Decoder(_Message).decode


class _Connection(asyncio.Protocol):
    """One connection: of a producer, or to a branch."""

    def __init__(self, idle: dict[str, list[_Connection]], kind: type, host: str = "") -> None:
        self._idle, self._parser, self._host = idle, kind(self), host

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url, self._body = b"", b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._host:
            self._idle.setdefault(self._host, []).append(self)
            return
        self.transport.write(_OK)
        message = _decode(self._body)
        if self._url.endswith(b"/submit"):
            for step, payload in zip(message.steps, message.payloads, strict=True):
                host, _, path = step.action.removeprefix("http://").partition("/")
                head = (
                    f"POST /{path}?gid={message.gid} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(payload)}\r\n\r\n"
                )
                _call(self._idle, host, (head + payload).encode())


def _call(idle: dict[str, list[_Connection]], host: str, request: bytes) -> None:
    waiting = idle.get(host)
    if waiting:
        waiting.pop().transport.write(request)
    else:
        _connecting.add(asyncio.ensure_future(_connect(idle, host, request)))


async def _connect(idle: dict[str, list[_Connection]], host: str, request: bytes) -> None:
    name, _, port = host.partition(":")
    loop = asyncio.get_running_loop()
    made, _ = await loop.create_connection(
        lambda: _Connection(idle, httptools.HttpResponseParser, host), name, int(port)
    )
    made.write(request)


async def serve() -> None:
    """Serve until a signal arrives."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    idle: dict[str, list[_Connection]] = {}
    server = await loop.create_server(lambda: _Connection(idle, httptools.HttpRequestParser), "127.0.0.1", 0)
    print(f"bare server ready: http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()


if __name__ == "__main__":
    uvloop.run(serve())
