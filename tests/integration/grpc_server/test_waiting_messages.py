"""A peer that sends messages ahead, and does not read the answers to those before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.grpc_server.served import Served, serving
from tests.support.waiting import until
from tests.unit.grpc_server.http2.peer import PLAIN
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.http2.limits import Limits
from twophase.grpc_server.status import framed

_TELL = PLAIN.replace(b"/s/Echo", b"/s/Tell")
_ODD = PLAIN.replace(b"/s/Echo", b"/s/Odds")
_CHAT = PLAIN.replace(b"/s/Echo", b"/s/Chat")
_READS_NOTHING = frames.PREFACE + frames.settings({frames.INITIAL_WINDOW_SIZE: 0})
_PATIENCE_S = 60.0
_MESSAGE = framed(b"hello")


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as one:
        yield one


async def _connected(
    served: Served, greeting: bytes, block: bytes = _CHAT
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = served.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(greeting + frames.header_frames(1, block))
    return reader, writer


async def _until(reader: asyncio.StreamReader, wanted: bytes, times: int = 1) -> None:
    received = b""
    async with asyncio.timeout(_PATIENCE_S):
        while received.count(wanted) < times:
            piece = await reader.read(1 << 16)
            assert piece, "the server answers before it closes"
            received += piece


async def _taken(connection: Any, size: int) -> None:
    """Wait until `size` bytes of messages count in the budget."""
    await until(lambda: connection._account.kept >= size)


async def test_many_small_frames_behind_a_message_that_waits_end_the_connection(served: Served) -> None:
    reader, writer = await _connected(served, _READS_NOTHING)
    for _ in range(1_003):  # the first is taken, the second waits
        writer.write(frames.frame(frames.DATA, 0, 1, _MESSAGE))

    await _until(reader, frames.ENHANCE_YOUR_CALM.to_bytes(4, "big") + b"too many frames that bring nothing")

    writer.close()


async def test_many_small_frames_that_are_taken_are_no_flood(served: Served) -> None:
    reader, writer = await _connected(served, frames.PREFACE + frames.settings({}))
    for _ in range(1_500):
        writer.write(frames.frame(frames.DATA, 0, 1, _MESSAGE))
        await _until(reader, _MESSAGE)
    writer.close()


async def test_messages_in_long_frames_may_wait(served: Served) -> None:
    reader, writer = await _connected(served, _READS_NOTHING)
    many = 1_500
    writer.write(frames.frame(frames.DATA, 0, 1, _MESSAGE * many))
    writer.write(frames.window_update(1, 1 << 20))

    await _until(reader, _MESSAGE, many)

    writer.close()


async def test_messages_of_no_byte_that_wait_count_in_the_budget(served: Served) -> None:
    _, writer = await _connected(served, _READS_NOTHING)
    writer.write(frames.frame(frames.DATA, 0, 1, framed(b"")))
    writer.write(frames.frame(frames.DATA, 0, 1, framed(b"") * 3_000))
    await until(lambda: served.port._connections)
    (connection,) = served.port._connections

    await _taken(connection, 2_999 * 8)

    writer.close()


async def _frames(reader: asyncio.StreamReader, ends: int) -> list[tuple[int, int, bytes]]:
    """Return kind, stream and payload of frames, until as many streams have ended."""
    found: list[tuple[int, int, bytes]] = []
    async with asyncio.timeout(_PATIENCE_S):
        while ends:
            high, low, kind, flags, stream = frames.HEAD.unpack(await reader.readexactly(frames.HEAD_BYTES))
            found.append((kind, stream, await reader.readexactly(high << 16 | low)))
            ends -= kind in {frames.HEADERS, frames.DATA} and bool(flags & frames.END_STREAM)
    return found


@pytest.mark.parametrize(("message", "status"), [(b"hello", b"0"), (b"crash", b"2")])
@pytest.mark.parametrize("part", [0, 3])
async def test_the_end_of_a_stream_leaves_behind_the_message_that_waits(
    served: Served, message: bytes, status: bytes, part: int
) -> None:
    reads_little = frames.PREFACE + frames.settings({frames.INITIAL_WINDOW_SIZE: part})
    reader, writer = await _connected(served, reads_little, _TELL)
    writer.write(frames.frame(frames.DATA, 0, 1, framed(message)))
    await asyncio.wait_for(served.told.wait(), _PATIENCE_S)
    writer.write(frames.frame(frames.DATA, frames.END_STREAM, 1))
    async with asyncio.timeout(_PATIENCE_S):
        while served.services.streams:
            await asyncio.sleep(0)
    assert len(served.port._connections) == 1, "it lives"
    writer.write(frames.window_update(1, 100))

    said = [(kind, payload) for kind, stream, payload in await _frames(reader, 1) if stream == 1]

    assert said[0][0] == frames.HEADERS
    assert b"".join(payload for kind, payload in said if kind == frames.DATA) == framed(message)
    assert said[-1][0] == frames.HEADERS
    assert said[-1][1].startswith(frames.field(b"grpc-status", status))
    (connection,) = served.port._connections
    assert not connection.streams
    assert not connection.outbox.waits
    writer.close()


async def test_streams_that_end_before_their_messages_are_read_count_until_they_are_cut() -> None:
    async with serving(Limits(streams_max=8, write_s=0.2)) as served:
        reader, writer = await _connected(served, _READS_NOTHING, _TELL)
        for number in range(1, 41, 2):
            if number > 1:
                writer.write(frames.header_frames(number, _TELL))
            writer.write(frames.frame(frames.DATA, frames.END_STREAM, number, framed(b"hello")))

        await _until(reader, frames.REFUSED_STREAM.to_bytes(4, "big"), 12)
        async with asyncio.timeout(_PATIENCE_S):
            while await reader.read(1 << 16):
                pass  # the connection is cut, and no end of a call is read
        writer.close()


@pytest.mark.parametrize(("many", "status"), [(1_002, b"8"), (999, b"0")])
async def test_too_many_messages_that_bring_nothing_end_their_stream(many: int, status: bytes) -> None:
    async with serving(Limits(oddities_max=1_001)) as served:
        reader, writer = await _connected(served, frames.PREFACE + frames.settings({}), _ODD)
        writer.write(frames.frame(frames.DATA, frames.END_STREAM, 1, framed(b"") * many))

        said = [payload for kind, stream, payload in await _frames(reader, 1) if stream == 1 and kind == frames.HEADERS]

        assert frames.field(b"grpc-status", status) in said[-1]
        writer.close()
