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
from twophase.grpc_server.status import framed

_CHAT = PLAIN.replace(b"/s/Echo", b"/s/Chat")
_READS_NOTHING = frames.PREFACE + frames.settings({frames.INITIAL_WINDOW_SIZE: 0})
_PATIENCE_S = 60.0
_MESSAGE = framed(b"hello")


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as one:
        yield one


async def _connected(served: Served, greeting: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = served.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(greeting + frames.header_frames(1, _CHAT))
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
