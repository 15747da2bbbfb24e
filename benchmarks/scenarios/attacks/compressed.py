"""Attacks by short messages of gRPC that unfold to long ones."""

from __future__ import annotations

import asyncio
import gzip
from typing import Final

from benchmarks.scenarios.attacks.client import PIECE, Victim, at_once, connected
from twophase.core.limits import BODY_BYTES_MAX
from twophase.grpc_server.http2 import frames

_CONNECTIONS: Final = 16
_ANSWERED_S: Final = 0.2
_GREETING: Final = frames.PREFACE + frames.settings({})
_WINDOW_BYTES: Final = 60_000
"""Less than the server reads of a connection before it opens the window."""
_COMPRESSED: Final = b"\x01"
_REFLECTION: Final = b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
_LONG_NAME: Final = b"\x0a\x80\x7d" + bytes(16_000) + b"\x3a\x00"
"""A request for the list of services, in 16 KB."""


async def submits(victim: Victim) -> None:
    """Sixteen connections submit messages of 4 MiB in 4 KB each."""
    body = _folded(bytes(BODY_BYTES_MAX.value))
    calls = range(1, 2 * (_WINDOW_BYTES // len(body)), 2)
    await _flood(victim, b"".join(_call(stream, b"/dtmgimp.Dtm/Submit", [body]) for stream in calls))


async def reflection(victim: Victim) -> None:
    """Sixteen connections ask for the services, by messages of 16 KB.

    These are short on the way. Reflection needs no token.
    """
    body = _folded(_LONG_NAME)
    await _flood(victim, _call(1, _REFLECTION, [body] * (_WINDOW_BYTES // len(body))))


def _folded(plain: bytes) -> bytes:
    """Return a compressed message as it travels."""
    packed = gzip.compress(plain, 9)
    return _COMPRESSED + len(packed).to_bytes(4, "big") + packed


def _call(stream: int, path: bytes, messages: list[bytes]) -> bytes:
    """Return a call with these messages."""
    fields = (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"127.0.0.1"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"), (b"grpc-encoding", b"gzip"),
    )  # fmt: skip
    data = b"".join(messages)
    parts = [data[at : at + frames.DEFAULT_FRAME_BYTES] for at in range(0, len(data), frames.DEFAULT_FRAME_BYTES)]
    return b"".join(
        [
            frames.header_frames(stream, b"".join(frames.field(name, value) for name, value in fields)),
            *(frames.frame(frames.DATA, 0, stream, part) for part in parts),
            frames.frame(frames.DATA, frames.END_STREAM, stream),
        ]
    )


async def _flood(victim: Victim, calls: bytes) -> None:
    """Send these on new connections again and again, each until its answers have come."""

    async def play() -> None:
        async with connected(victim.grpc) as (reader, writer), asyncio.timeout(_ANSWERED_S):
            writer.write(_GREETING + calls)
            await writer.drain()
            while await reader.read(PIECE):
                pass

    await at_once(_CONNECTIONS, play)
