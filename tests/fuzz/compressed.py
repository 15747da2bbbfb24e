"""Calls of gRPC whose messages are compressed, rightly and wrongly.

Some are compressed to a thousandth of their length.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Final

from benchmarks.load import http2
from tests.fuzz import seeds
from tests.fuzz.mutation import Mutator
from twophase.core.limits import BODY_BYTES_MAX
from twophase.grpc_server.http2 import frames
from twophase.grpc_wire.messages import SERVICE

_REFLECTION: Final = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
_PATHS: Final = (
    *(f"/{SERVICE}/{method}" for method in ("Prepare", "Submit", "Abort", "NewGid", "Subscribe")),
    *("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", _REFLECTION, _REFLECTION),
)
_PLAIN: Final = [*seeds.GRPC_MESSAGES, b"\x3a\x00", b"\x22\x0bdtmgimp.Dtm", b"\x0a\x01a\x3a\x00" * 30]
_GREETING: Final = frames.PREFACE + frames.settings({})
_BOMBS: Final = [gzip.compress(bytes(size), 9) for size in (20_000, BODY_BYTES_MAX.value, BODY_BYTES_MAX.value + 1)]
_ENCODINGS: Final = (b"gzip", b"gzip", b"gzip", b"deflate", b"identity", b"br", b"")
_MESSAGES_MAX: Final = 8


def drawing(seed: int) -> Callable[[], list[bytes]]:
    """Return what draws the reads of a connection."""
    mutator = Mutator(_PLAIN, seeds.GRPC_WORDS, seed)
    damage = Mutator([b"?"], seeds.GRPC_WORDS, seed)
    drawn = mutator.random

    def message(encoding: bytes) -> bytes:
        if drawn.random() < 0.005:
            packed = drawn.choice(_BOMBS)
        else:
            plain = mutator.draw()
            packed = zlib.compress(plain) if encoding == b"deflate" else gzip.compress(plain, 1)
        if drawn.random() < 0.2:
            damaged = bytearray(packed)
            damaged[drawn.randrange(len(damaged))] ^= 1 << drawn.randrange(8)
            packed = bytes(damaged)
        length = len(packed) + (drawn.choice((-1, 1, 70_000)) if drawn.random() < 0.05 else 0)
        return drawn.choice((b"\x01", b"\x01", b"\x01", b"\x00", b"\x02")) + length.to_bytes(4, "big") + packed

    def call(stream: int) -> bytes:
        encoding = drawn.choice(_ENCODINGS)
        block = http2.head(drawn.choice(_PATHS), "localhost") + frames.field(b"grpc-encoding", encoding)
        data = b"".join(message(encoding) for _ in range(drawn.randint(1, _MESSAGES_MAX)))
        parts = [data[at : at + 16_000] for at in range(0, len(data), 16_000)]
        body = b"".join(frames.frame(frames.DATA, 0, stream, part) for part in parts)
        return frames.header_frames(stream, block) + body + frames.frame(frames.DATA, frames.END_STREAM, stream)

    def draw() -> list[bytes]:
        raw = _GREETING + b"".join(call(1 + 2 * number) for number in range(drawn.randint(1, 3)))
        return damage.pieces(raw)

    return draw
