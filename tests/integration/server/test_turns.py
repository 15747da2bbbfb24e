"""A client that sends without end is read from a little at a time.

Other clients are served between its turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.grpc_server.served import serving
from tests.support.fake_coordinator import Wire, get, listening, message, post, prepare
from tests.support.waiting import until
from tests.unit.grpc_server.http2.peer import PLAIN
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.http2.connection import Connection as GrpcConnection
from twophase.grpc_server.http2.limits import Limits
from twophase.grpc_server.incoming import Compressed
from twophase.grpc_server.status import framed
from twophase.grpc_server.unary import UnaryCall
from twophase.http_client.byte_budget import FREE_BYTES, MEBIBYTE, ByteBudget
from twophase.http_client.turns import BETWEEN_LONG
from twophase.server.http_port.connection import Connection as HttpConnection
from twophase.server.http_port.in_turns import TURN_REQUESTS

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


async def test_a_read_of_many_requests_waits_while_too_many_have_no_response(wire: Wire) -> None:
    """One read may not pass the bound on requests under way."""
    client = await wire.connect()
    assert (await client.ask(prepare("first"))).status == 200
    server = wire.connection()
    wire.coordinator.holds = True
    server.data_received(b"".join(prepare(f"g{number}") for number in range(1_000)))
    await until(lambda: server.flow.read_paused)
    for _ in range(100):
        await asyncio.sleep(0)
    under_way = len(wire.coordinator.held)
    assert 64 < under_way <= 64 + TURN_REQUESTS
    wire.coordinator.holds = False
    for number in range(under_way):
        wire.coordinator.release(f"g{number}")
    answers = await client.responses(1_000)
    assert {one.status for one in answers} == {200}
    assert wire.coordinator.heard[1:] == [("prepare", f"g{number}") for number in range(1_000)]


@pytest.mark.parametrize("percent", [25, 100])
async def test_the_connections_of_an_address_share_its_turns_but_not_behind_a_proxy(percent: int) -> None:
    async with listening(per_address_percent=percent) as wire:
        clients = [await wire.connect() for _ in range(4)]
        for client in clients:
            assert (await client.ask(get("/api/ping"))).status == 200
        servers = _connections(wire)
        for server in servers:
            server.data_received(prepare("g") * 60)
        left: list[int] = []

        def note() -> None:
            left.append(sum(bool(server._later) for server in servers))
            if left[-1]:
                asyncio.get_running_loop().call_soon(note)

        note()
        await until(lambda: not left[-1])
        taken = sum(len(server._pending) == 0 for server in servers)
        assert taken == 4
        turns = 3  # of each connection, behind its first
        assert len(left) > 4 * turns if percent < 100 else len(left) < 2 * turns + 2
        for client in clients:
            assert {one.status for one in await client.responses(60)} == {200}


async def test_a_rest_that_waits_for_its_turn_is_not_late(wire: Wire) -> None:
    client = await wire.connect()
    assert (await client.ask(prepare("first"))).status == 200
    server = wire.connection()
    server.data_received(prepare("g") * 60)
    server.enforce_timeouts(server.since_s + 3_600)
    assert {one.status for one in await client.responses(60)} == {200}


async def test_what_arrives_while_a_read_waits_for_its_turn_is_the_last_that_is_read(wire: Wire) -> None:
    client = await wire.connect()
    assert (await client.ask(prepare("first"))).status == 200
    server = wire.connection()
    server.data_received(prepare("g") * 60)
    server.transport.resume_reading()
    server.data_received(prepare("g"))
    assert not server.transport.is_reading()
    assert {one.status for one in await client.responses(61)} == {200}


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
        async with asyncio.timeout(60):
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
        async with asyncio.timeout(60):
            await _until(other_reader, framed(b"other"))
            await _until(reader, frames.ENHANCE_YOUR_CALM.to_bytes(4, "big") + ENDS[kind])
            await flooding
        other_writer.close()
        writer.close()


async def test_streams_that_never_end_leave_the_places_of_other_calls() -> None:
    """Health and reflection need no token; a stream may last for ever."""
    async with serving(calls_max=40) as served:
        host, port = served.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        chat = PLAIN.replace(b"/s/Echo", b"/s/Chat")
        writer.write(_HELLO + b"".join(frames.header_frames(number, chat) for number in range(1, 100, 2)))
        await _until(reader, b"too many requests are under way")
        assert len(served.services.streams) == 10
        data = frames.frame(frames.DATA, frames.END_STREAM, 101, framed(b"usual"))
        writer.write(frames.header_frames(101, PLAIN) + data)
        async with asyncio.timeout(20):
            await _until(reader, framed(b"usual"))
        writer.close()


async def _greeted(served: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Any]:
    """Return both ends of a new connection, the peer's and the server's.

    Its settings are acknowledged.
    """
    host, port = served.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(_HELLO + frames.frame(frames.SETTINGS, frames.ACK))
    await _until(reader, frames.frame(frames.SETTINGS, frames.ACK))
    (connection,) = served.port._connections
    return reader, writer, connection


def _call_that_unfolds(number: int, *, broken: bool) -> bytes:
    """Return a call of 4 KiB that becomes 4 MiB; a broken one has a wrong checksum."""
    content = gzip.compress(bytes(4 * MEBIBYTE), mtime=0)
    content = content[:-8] + bytes(4) + content[-4:] if broken else content
    message = b"\1" + len(content).to_bytes(4, "big") + content
    headers = frames.header_frames(number, PLAIN + frames.field(b"grpc-encoding", b"gzip"))
    return headers + frames.frame(frames.DATA, frames.END_STREAM, number, message)


@pytest.mark.parametrize("broken", [False, True])
async def test_messages_that_unfold_end_the_turn_and_too_many_the_connection(*, broken: bool) -> None:
    async with serving() as served:
        reader, writer, hostile = await _greeted(served)
        for number in range(1, 30, 2):
            hostile.data_received(_call_that_unfolds(number, broken=broken))
            assert hostile.tired
            hostile.begin_turn()
        hostile.data_received(_call_that_unfolds(31, broken=broken))
        async with asyncio.timeout(20):
            await _until(reader, frames.ENHANCE_YOUR_CALM.to_bytes(4, "big") + ENDS["data"])
        writer.close()


async def test_one_long_message_of_all_connections_is_decompressed_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    plain = Compressed.plain

    def note(message: Compressed) -> bytes:
        done.append(len(message))
        return plain(message)

    monkeypatch.setattr(Compressed, "plain", note)
    async with serving() as served:
        host, port = served.address.split(":")
        clients = [await asyncio.open_connection(host, int(port)) for _ in range(6)]
        for _, writer in clients:
            writer.write(_HELLO)
        await until(lambda: sum(one.greeted for one in served.port._connections) == len(clients))
        for connection in list(served.port._connections):
            connection.data_received(_call_that_unfolds(1, broken=False))
        seen = [len(done)]
        while seen[-1] < len(clients):
            await asyncio.sleep(0)
            seen.append(len(done))
        assert all(after - before <= 1 for before, after in itertools.pairwise(seen)), seen
        for _, writer in clients:
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
        async with asyncio.timeout(60):
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


def _long(gid: str) -> bytes:
    return message(gid)[:-1] + b',"x":"%b"}' % (b"x" * 100_000)


def _connections(wire: Wire) -> list[HttpConnection]:
    return [one for one in wire.listener.port.state.connections if isinstance(one, HttpConnection)]


async def test_long_bodies_that_are_whole_at_one_moment_are_decoded_one_in_a_turn(wire: Wire) -> None:
    clients = [await wire.connect() for _ in range(9)]
    for client in clients:
        assert (await client.ask(prepare("first"))).status == 200
    wire.coordinator.heard.clear()
    *flooding, other = _connections(wire)
    for number, connection in enumerate(flooding):
        connection.data_received(post("/api/dtmsvr/prepare", _long(f"g{number}")))
    assert wire.coordinator.heard == []
    other.data_received(prepare("other"))
    assert wire.coordinator.heard == [("prepare", "other")], "a short one does not wait"
    for number in range(8 * BETWEEN_LONG):
        await asyncio.sleep(0)
        assert len(wire.coordinator.heard) <= number // BETWEEN_LONG + 2, "short ones have some turns between"
    assert wire.coordinator.heard[1:] == [("prepare", f"g{number}") for number in range(8)]
    assert {(await client.response()).status for client in clients} == {200}


async def test_a_short_request_behind_a_long_one_is_taken_after_it(wire: Wire) -> None:
    client = await wire.connect()
    submit = post("/api/dtmsvr/submit", message("g"))
    assert (await client.ask(submit)).status == 200  # from now on its head is known
    (server,) = _connections(wire)
    server.data_received(post("/api/dtmsvr/prepare", _long("g")))
    server.data_received(submit)
    server.data_received(post("/api/dtmsvr/abort", message("g"), "Expect: 100-continue")[: -len(message("g"))])
    assert [one.status for one in await client.responses(3)] == [200, 200, 100]
    await client.send(message("g"))
    assert (await client.response()).status == 200
    assert wire.coordinator.heard == [("submit", "g"), ("prepare", "g"), ("submit", "g"), ("abort", "g")]
    assert (await client.ask(submit)).status == 200
    assert not server._waiting.requests
    assert server._heads is wire.listener.port.heads


async def test_long_bodies_that_wait_for_their_turn_count_in_the_budget() -> None:
    budget = ByteBudget(64 * MEBIBYTE)
    async with listening(budget=budget) as wire:
        clients = [await wire.connect() for _ in range(3)]
        for client in clients:
            assert (await client.ask(prepare("first"))).status == 200
        wire.coordinator.heard.clear()
        of_port = {one.client[1]: one for one in _connections(wire) if one.client}
        first, second, gone = (of_port[client.writer.get_extra_info("sockname")[1]] for client in clients)
        first.data_received(post("/api/dtmsvr/submit", _long("g")))
        gone.data_received(post("/api/dtmsvr/submit", _long("gone")))
        assert budget.used > 2 * (100_000 - FREE_BYTES)
        rest = budget.account("another", 100)
        assert rest.keep(budget.bytes_max - budget.used + FREE_BYTES)
        second.data_received(post("/api/dtmsvr/submit", _long("too much")))
        gone._forget_responses()
        assert budget.used < budget.bytes_max
        assert [(await client.response()).status for client in clients[:2]] == [200, 503]
        assert wire.coordinator.heard == [("submit", "g")]
        rest.release()
        assert budget.used == 0


async def test_long_messages_of_grpc_are_handled_one_in_a_turn() -> None:
    budget = ByteBudget()
    async with serving(budget=budget) as served:
        handled: list[int] = []
        echo = served.echo

        def note(call: UnaryCall, message: bytes) -> None:
            handled.append(len(message))
            echo(call, b"")  # a long answer would count until it is sent

        served.services.unary("/s/Echo", note)
        host, port = served.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(_HELLO)
        await _until(reader, frames.settings(served.port.settings))
        (connection,) = served.port._connections
        long = framed(bytes(65_530)), framed(bytes(65_537))
        for stream in (1, 3, 5):
            connection.take_block(0, stream, PLAIN)
            connection.streams[stream].window = len(long[1])
            connection.take_data(frames.END_STREAM, stream, long[1])
        connection.take_block(0, 7, PLAIN)
        connection.take_data(frames.END_STREAM, 7, long[0])
        assert handled == [65_530], "a shorter one does not wait"
        assert budget.used == 3 * 65_537 - FREE_BYTES
        connection.take_reset(5)
        assert budget.used == 2 * 65_537 - FREE_BYTES
        for number in range(3 * BETWEEN_LONG):
            await asyncio.sleep(0)
            assert len(handled) <= number // BETWEEN_LONG + 2
        assert handled == [65_530, 65_537, 65_537]
        assert budget.used == 0
        writer.close()


async def test_new_fields_of_grpc_end_the_turn() -> None:
    """A kilobyte may unfold to a thousand of them; the calls behind wait."""
    async with serving() as served:
        reader, writer, connection = await _greeted(served)
        calls = [
            frames.header_frames(number, PLAIN + frames.field(b"x", b"%d" % number) + b"\x90" * 100)
            + frames.frame(frames.DATA, frames.END_STREAM, number, framed(b"m%d." % number))
            for number in range(1, 301, 2)
        ]
        taken: list[int] = []

        def note() -> None:
            taken.append(connection._blocks.fields)
            if connection.tired or connection._later:
                asyncio.get_running_loop().call_soon(note)

        connection.data_received(b"".join(calls[:100]))
        note()
        connection.data_received(b"".join(calls[100:]))  # what arrives meanwhile goes behind it
        async with asyncio.timeout(60):
            await _until(reader, framed(b"m299."))
        assert len(served.metadata) == 150
        assert max(after - before for before, after in itertools.pairwise(taken)) <= 512 + 128
        assert len(taken) > 20
        writer.close()
