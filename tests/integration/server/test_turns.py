"""A client that sends without end is read from a little at a time.

Other clients are served between its turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.grpc_server.served import serving
from tests.support.fake_coordinator import Wire, prepare
from tests.unit.grpc_server.http2.peer import PLAIN
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.http2.connection import Connection as GrpcConnection
from twophase.grpc_server.http2.limits import Limits
from twophase.grpc_server.status import framed
from twophase.server.http_port.connection import Connection as HttpConnection

LONG_BYTES = 16 * 1024
_HELLO = frames.PREFACE + frames.settings({})


def _note_reads(monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> list[tuple[int, bool]]:
    """Return a list that each read adds to.

    It adds its bytes, and True when the socket is still read from after it.
    """
    reads: list[tuple[int, bool]] = []
    received: Callable[[Any, bytes], None] = kind.data_received

    def note(connection: Any, data: bytes) -> None:
        received(connection, data)
        transport = getattr(connection, "_transport", None) or connection.transport
        reads.append((len(data), transport.is_reading()))

    monkeypatch.setattr(kind, "data_received", note)
    return reads


async def test_a_long_read_of_http_ends_the_turn(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = _note_reads(monkeypatch, HttpConnection)
    client = await wire.connect()
    assert (await client.ask(prepare("short"))).status == 200
    await client.send(b"".join(prepare(f"g{number}") for number in range(1_000)))
    assert {one.status for one in await client.responses(1_000)} == {200}
    long = [reading for size, reading in reads if size >= LONG_BYTES]
    assert long
    assert not any(long)
    assert reads[0][1], "a short read does not end the turn"


@pytest.mark.parametrize(
    "request_bytes",
    [
        prepare("g"),
        b"POST /api/dtmsvr/submit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n[]",
        b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["prepare", "refused", "without a body"],
)
@pytest.mark.parametrize("begun", [0, 30], ids=["whole", "behind a part of one"])
async def test_the_requests_of_one_read_are_taken_in_turns(wire: Wire, request_bytes: bytes, begun: int) -> None:
    client = await wire.connect()
    assert (await client.ask(prepare("first"))).status == 200
    server = wire.connection()
    flood = request_bytes * (8 * LONG_BYTES // len(request_bytes))
    taken: list[int] = []

    def note() -> None:
        taken.append(len(server._later))
        if server._later:
            asyncio.get_running_loop().call_soon(note)

    if begun:
        server.data_received(flood[:begun])
    server.data_received(flood[begun:])
    note()
    while server._later:
        await asyncio.sleep(0)
    assert taken == sorted(taken, reverse=True)
    assert len(set(taken)) >= 7, taken
    assert all(before - after <= LONG_BYTES + len(request_bytes) for before, after in itertools.pairwise(taken))
    assert len(flood) - taken[0] <= LONG_BYTES + len(request_bytes)


async def test_what_arrives_between_two_turns_is_taken_behind_the_rest(wire: Wire) -> None:
    client = await wire.connect()
    assert (await client.ask(prepare("first"))).status == 200
    server = wire.connection()
    requests = [prepare(f"g{number}") for number in range(400)]
    server.data_received(b"".join(requests[:300]))
    assert server._later
    for one in requests[300:]:
        server.data_received(one)
    answers = await client.responses(400)
    assert {one.status for one in answers} == {200}
    assert wire.coordinator.heard[1:] == [("prepare", f"g{number}") for number in range(400)]


async def test_a_long_read_of_grpc_ends_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = _note_reads(monkeypatch, GrpcConnection)
    async with serving() as served:
        host, port = served.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(_HELLO + frames.header_frames(1, PLAIN))
        message = framed(bytes(40_000))
        pieces = [message[at : at + 16_384] for at in range(0, len(message), 16_384)]
        writer.write(b"".join(frames.frame(frames.DATA, 0, 1, piece) for piece in pieces[:-1]))
        writer.write(frames.frame(frames.DATA, frames.END_STREAM, 1, pieces[-1]))
        answered = b""
        while len(answered) < len(message):
            answered += await reader.read(1 << 16)
        long = [reading for size, reading in reads if size >= LONG_BYTES]
        assert long
        assert not any(long)
        writer.close()


async def test_one_long_read_of_grpc_is_taken_in_turns_between_which_another_is_served() -> None:
    async with serving() as served:
        host, port = served.address.split(":")
        first = await asyncio.open_connection(host, int(port))
        first[1].write(_HELLO + frames.frame(frames.SETTINGS, frames.ACK))
        await _until(first[0], frames.frame(frames.SETTINGS, frames.ACK))
        (flooded,) = served.port._connections
        second = await asyncio.open_connection(host, int(port))
        second[1].write(_HELLO + frames.frame(frames.SETTINGS, frames.ACK))
        await _until(second[0], frames.frame(frames.SETTINGS, frames.ACK))
        (other,) = served.port._connections - {flooded}
        flood = frames.window_update(0, 1) * 4_000 + frames.header_frames(1, PLAIN)
        flood += frames.frame(frames.DATA, 0, 1, b"\0" + (8_000).to_bytes(4, "big"))
        flood += frames.frame(frames.DATA, 0, 1, b"x") * 7_999 + frames.frame(frames.DATA, frames.END_STREAM, 1, b"x")
        assert len(flood) > 8 * LONG_BYTES
        left: list[int] = []

        def note() -> None:
            left.append(len(flooded._later))
            if len(left) == 2:
                data = frames.frame(frames.DATA, frames.END_STREAM, 1, framed(b"other"))
                other.data_received(frames.header_frames(1, PLAIN) + data)
            if flooded._later:
                asyncio.get_running_loop().call_soon(note)

        flooded.data_received(flood[:100_000])
        flooded.data_received(flood[100_000:])  # what arrives meanwhile goes behind it
        note()
        await _until(second[0], framed(b"other"))
        async with asyncio.timeout(10):
            await _until(first[0], framed(b"x" * 8_000))
        assert left == sorted(left, reverse=True)
        assert max(before - after for before, after in itertools.pairwise(left)) <= LONG_BYTES
        assert len(left) >= 8
        first[1].close()
        second[1].close()


FLOODS = {
    "windows": frames.window_update(0, 1) * 1_000,
    "settings": frames.frame(frames.SETTINGS, 0, 0, b"\0\x04\0\0\xff\xff" * 2_700),
    "data": frames.frame(frames.DATA, 0, 1, b"x") * 1_000,
    "headers": frames.header_frames(1, PLAIN) * 200,
}
ENDS = {
    "windows": b"too many changes of a window",
    "settings": b"more than 64 settings in a frame",
    "data": b"too many frames that bring nothing",
    "headers": b"too many frames that bring nothing",
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_of_frames_is_ended_and_another_client_is_served(kind: str) -> None:
    async with serving() as served:
        host, port = served.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(_HELLO + frames.header_frames(1, b"\x88"))  # a request that is none, so it is reset

        async def flood() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(FLOODS[kind])
                    await writer.drain()

        flooding = asyncio.create_task(flood())
        other_reader, other_writer = await asyncio.open_connection(host, int(port))
        data = frames.frame(frames.DATA, frames.END_STREAM, 1, framed(b"other"))
        other_writer.write(_HELLO + frames.header_frames(1, PLAIN) + data)
        async with asyncio.timeout(10):
            await _until(other_reader, framed(b"other"))
            await _until(reader, frames.ENHANCE_YOUR_CALM.to_bytes(4, "big") + ENDS[kind])
            await flooding
        other_writer.close()
        writer.close()


async def _until(reader: asyncio.StreamReader, wanted: bytes) -> None:
    received = b""
    while wanted not in received:
        piece = await reader.read(1 << 16)
        assert piece, "the server answers before it closes"
        received += piece


async def test_one_address_cannot_flood_by_many_connections_each_within_its_bounds() -> None:
    """Hold what the address sends until the next sweep; nothing of it is refused."""
    limits = Limits(updates_max=1_000, per_address_percent=50)
    async with serving(limits) as served:
        host, port = served.address.split(":")
        hostile = [await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0)) for _ in range(8)]
        for _, writer in hostile:
            writer.write(_HELLO + frames.window_update(0, 1) * 900)
        other_reader, other_writer = await asyncio.open_connection(host, int(port))
        data = frames.frame(frames.DATA, frames.END_STREAM, 1, framed(b"other"))
        call = frames.header_frames(1, PLAIN) + data
        async with asyncio.timeout(20):
            while not any(one.held for one in served.port._connections):
                await asyncio.sleep(0)
            assert {one.address for one in served.port._connections if one.held} == {"127.0.0.2"}
            other_writer.write(_HELLO + call)
            await _until(other_reader, framed(b"other"))
            for reader, writer in hostile:
                writer.write(call)
                await _until(reader, framed(b"other"))
        for _, writer in [*hostile, (other_reader, other_writer)]:
            writer.close()
