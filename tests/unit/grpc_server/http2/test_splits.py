"""The same bytes are the same frames, however they are split.

Whatever arrives, no exception escapes and nothing accumulates.
"""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.grpc_server.http2.peer import CALL, PLAIN, Peer, answers
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.status import framed


def _in_pieces(peer: Peer, data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, stop in itertools.pairwise(edges):
        if stop > start:
            peer.send(data[start:stop])


def _session(peer: Peer, messages: list[bytes]) -> bytes:
    """Return the bytes of a connection's whole life.

    Calls come in one frame, in several, with padding, with continuations and a ping.
    """
    data = frames.PREFACE + frames.settings({}) + frames.frame(frames.SETTINGS, frames.ACK)
    for index, message in enumerate(messages):
        stream, body = 2 * index + 1, framed(message)
        block = PLAIN if index % 2 else peer.encoder.encode([*CALL, ("x-number", str(index))])
        half, middle = len(block) // 2, len(body) // 2
        data += frames.frame(frames.HEADERS, 0, stream, block[:half])
        data += frames.frame(frames.CONTINUATION, frames.END_HEADERS, stream, block[half:])
        data += frames.frame(frames.DATA, frames.PADDED, stream, b"\x03" + body[:middle] + bytes(3))
        data += frames.frame(frames.PING, 0, 0, b"12345678")
        data += frames.frame(frames.DATA, frames.END_STREAM, stream, body[middle:])
    return data


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4), st.lists(st.integers(0, 2000), max_size=30))
@settings(max_examples=60, deadline=None)
def test_answers_do_not_depend_on_how_the_bytes_are_split(messages: list[bytes], cuts: list[int]) -> None:
    async def main() -> None:
        peer = Peer()
        _in_pieces(peer, _session(peer, messages), cuts)
        found = answers(peer.said)
        assert [found[2 * index + 1].body for index in range(len(messages))] == [framed(one) for one in messages]
        assert all(one.ended and one.headers["grpc-status"] == "0" for one in found.values())
        assert peer.received == messages
        assert not peer.connection.streams

    asyncio.run(main())


async def test_byte_by_byte_is_as_good_as_at_once() -> None:
    peer = Peer()
    for byte in _session(peer, [b"one", b"", b"three"]):
        peer.send(bytes((byte,)))
    assert peer.received == [b"one", b"", b"three"]


def _damaged(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(frames.PREFACE), len(changed))
        kind = draw.randrange(3)
        if kind == 0:
            changed[at] = draw.randrange(256)
        elif kind == 1:
            del changed[at : at + draw.randint(1, 12)]
        else:
            changed[at:at] = draw.randbytes(draw.randint(1, 12))
    return bytes(changed)


_anything = st.lists(
    st.builds(
        frames.frame,
        st.integers(0, 12),
        st.sampled_from([0, 1, 4, 5, 8, 9, 0x20, 0x2D, 0xFF]),
        st.sampled_from([0, 1, 1, 2, 3, 5, 7, frames.NUMBER_MAX]),
        st.binary(max_size=40) | st.just(PLAIN) | st.just(framed(b"m")) | st.just(bytes(4)) | st.just(b"\0\0\0\1"),
    ),
    max_size=25,
)


@given(_anything, st.integers(0, 2**32))
@settings(max_examples=250, deadline=None)
def test_any_frames_are_answered_or_refused(sent: list[bytes], seed: int) -> None:
    async def main() -> None:
        peer = Peer()
        peer.greet()
        for piece in sent:
            peer.send(piece)
        _require_sound(peer)
        draw = random.Random(seed)
        peer.connect()
        peer.send(_damaged(draw, _session(peer, [b"one", b"two"])))
        _require_sound(peer)

    asyncio.run(main())


def _require_sound(peer: Peer) -> None:
    assert not peer.crashes, "a fault of the peer's is none of ours"
    connection = peer.connection
    assert len(connection._rest) < frames.HEAD_BYTES + frames.DEFAULT_FRAME_BYTES
    connection.connection_lost(None)
    assert not connection.streams
    assert peer.services.calls == 0


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"POST /x HTTP/1.1\r\n\r\n"])
async def test_http_1_is_answered_with_the_protocol_spoken_here(sent: bytes) -> None:
    for size in (1, 3, len(sent)):
        peer = Peer()
        for at in range(0, len(sent), size):
            peer.send(sent[at : at + size])
        assert bytes(peer.transport.written).startswith(b"HTTP/1.1 505 ")
        assert peer.transport.eof


@pytest.mark.parametrize("sent", [b"hello", b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"])
async def test_anything_else_is_ended_without_a_word(sent: bytes) -> None:
    peer = Peer()
    peer.send(sent)
    assert (bytes(peer.transport.written), peer.transport.eof) == (b"", True)


async def test_settings_must_come_first() -> None:
    peer = Peer()
    peer.send(frames.PREFACE + frames.frame(frames.PING, 0, 0, bytes(8)))
    assert peer.given_up == frames.PROTOCOL_ERROR
