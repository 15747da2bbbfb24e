"""One hostile client, as a process of its own.

`python -m benchmarks.scenarios.flood NAME HTTP_PORT GRPC_PORT` attacks until it is ended, from an address of its own
(127.0.0.2), as fast as the server lets it. Each attack is one that stalled a server or used up its memory before there
were bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import uvloop

from twophase.core.limits import BODY_BYTES_MAX
from twophase.grpc_server.http2 import frames

ADDRESS: Final = "127.0.0.2"
"""The address that the attacks come from."""
_SUBMIT: Final = b"POST /api/dtmsvr/submit HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
_CONNECTIONS: Final = 60
_PIECE: Final = 64 * 1024
_PAUSE_S: Final = 0.01
_SILENT_PORTS: Final = 9
_STEPS: Final = 120_000
_STREAMS: Final = 250

Attack = Callable[[int, int], Awaitable[None]]


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(ADDRESS, 0))


async def _again(play: Callable[[], Awaitable[None]]) -> None:
    """Play a client again and again, also after it was cut off."""
    while True:
        with contextlib.suppress(OSError, EOFError):
            await play()
        await asyncio.sleep(_PAUSE_S)


async def _send(port: int, pieces: itertools.repeat[bytes] | list[bytes]) -> None:
    """Send pieces on one connection as fast as they are read.

    What comes back is discarded.
    """
    reader, writer = await _connected(port)

    async def discard() -> None:
        while await reader.read(_PIECE):
            pass

    discarding = asyncio.create_task(discard())
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        await discarding
    finally:
        discarding.cancel()
        writer.close()


async def _unfinished_bodies(http: int, _grpc: int) -> None:
    """Many connections hold a body of 4 MiB that lacks its end."""
    request = _SUBMIT % BODY_BYTES_MAX.value + bytes(BODY_BYTES_MAX.value - 1)
    await asyncio.gather(*(_again(lambda: _send(http, [request])) for _ in range(_CONNECTIONS)))


async def _refused_requests(http: int, _grpc: int) -> None:
    """One connection pipelines requests that are refused."""
    piece = (_SUBMIT % 2 + b"{}") * (_PIECE // 70)
    await _again(lambda: _send(http, itertools.repeat(piece)))


async def _upgrades(http: int, _grpc: int) -> None:
    """One connection pipelines requests that offer another protocol."""
    head = b"GET /api/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    await _again(lambda: _send(http, itertools.repeat(head * (_PIECE // len(head)))))


async def _many_steps(http: int, _grpc: int) -> None:
    """One connection sends bodies of nearly 4 MiB with 120 000 branches."""
    steps = [{"action": "http://a/b"}] * _STEPS
    body = json.dumps({"gid": "flood", "trans_type": "msg", "steps": steps, "payloads": []}).encode()
    assert len(body) <= BODY_BYTES_MAX.value
    await _again(lambda: _send(http, itertools.repeat(_SUBMIT % len(body) + body)))


async def _half_heads(http: int, _grpc: int) -> None:
    """Four thousand connections hold half a head."""
    await asyncio.gather(*(_again(lambda: _send(http, [b"GET /api/ping HT"])) for _ in range(4_000)))


async def _silent_receivers(http: int, _grpc: int) -> None:
    """Messages whose nine receivers take every call and never answer."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    servers = [await asyncio.start_server(take, "127.0.0.1", 0) for _ in range(_SILENT_PORTS)]
    urls = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/in" for server in servers]

    async def submit() -> None:
        reader, writer = await _connected(http)
        try:
            for number in itertools.count():
                steps = [{"action": urls[number % _SILENT_PORTS]}]
                message = {
                    "gid": f"flood-{id(writer)}-{number}",
                    "trans_type": "msg",
                    "steps": steps,
                    "payloads": ["{}"],
                }
                body = json.dumps(message | {"request_timeout": 600}).encode()
                writer.write(_SUBMIT % len(body) + body)
                if not await reader.read(_PIECE):
                    return
        finally:
            writer.close()

    await asyncio.gather(*(_again(submit) for _ in range(8)))


def _grpc_head(stream: int) -> bytes:
    """Return the headers of a Submit."""
    fields = (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/dtmgimp.Dtm/Submit"), (b":authority", b"127.0.0.1"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"),
    )  # fmt: skip
    return frames.header_frames(stream, b"".join(frames.field(name, value) for name, value in fields))


async def _unfinished_calls(_http: int, grpc: int) -> None:
    """Many gRPC connections hold 250 calls each.

    Each call has 60 KB of a message that lacks its end.
    """
    greeting = frames.PREFACE + frames.settings({})
    start = b"\x00" + (65_000).to_bytes(4, "big")

    async def hold() -> None:
        pieces = [greeting]
        for stream in range(1, 2 * _STREAMS, 2):
            data = (start + bytes(60_000))[:60_000]
            parts = [data[at : at + 16_384] for at in range(0, len(data), 16_384)]
            pieces.append(_grpc_head(stream) + b"".join(frames.frame(frames.DATA, 0, stream, part) for part in parts))
        await _send(grpc, pieces)

    await asyncio.gather(*(_again(hold) for _ in range(_CONNECTIONS)))


async def _frames(_http: int, grpc: int) -> None:
    """One gRPC connection sends pings that ask for an answer each."""
    ping = frames.frame(frames.PING, 0, 0, bytes(8))
    greeting = frames.PREFACE + frames.settings({})
    await _again(lambda: _send(grpc, [greeting, *[ping * 500] * 1_000]))


ATTACKS: Final[dict[str, Attack]] = {
    "unfinished bodies": _unfinished_bodies,
    "unfinished gRPC calls": _unfinished_calls,
    "refused requests, pipelined": _refused_requests,
    "offers to upgrade, pipelined": _upgrades,
    "bodies of 120 000 branches": _many_steps,
    "half heads": _half_heads,
    "nine silent receivers": _silent_receivers,
    "HTTP/2 pings": _frames,
}


def main() -> None:
    """Attack until the process is ended."""
    name, http, grpc = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_attack(ATTACKS[name], http, grpc))


async def _attack(attack: Attack, http: int, grpc: int) -> None:
    await attack(http, grpc)


if __name__ == "__main__":
    main()
