"""Answers leave in the order of the requests, whichever is ready first.

Every request gets exactly one.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import httptools
import pytest

from tests.support.fake_coordinator import ACCEPTED, Wire, get, post, prepare
from tests.support.waiting import until
from twophase.coordinator.state.active_message import Reply
from twophase.core.errors import StateConflict
from twophase.core.lifecycle import State
from twophase.server.http_port.connection import Connection

REFUSED = Reply(StateConflict(), State.SUBMITTED)


async def _until_heard(wire: Wire, count: int) -> None:
    await until(lambda: len(wire.coordinator.heard) >= count)


async def test_a_prepare_is_answered_with_its_time(wire: Wire) -> None:
    client = await wire.connect()
    response = await client.ask(prepare("g1"))
    assert response.status == 200
    assert json.loads(response.body) == {"dtm_result": "SUCCESS", "prepared_at": 1_700_000_000_000}
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert "date" in response.headers


async def test_one_connection_serves_many_requests(wire: Wire) -> None:
    client = await wire.connect()
    for number in range(20):
        assert (await client.ask(prepare(f"g{number}"))).status == 200
    assert wire.listener.connections == 1


async def test_pipelined_answers_keep_the_order_of_the_requests(wire: Wire) -> None:
    wire.coordinator.holds = True
    client = await wire.connect()
    await client.send(prepare("g1") + prepare("g2") + prepare("g3"))
    await _until_heard(wire, 3)
    wire.coordinator.release("g3")
    wire.coordinator.release("g2", REFUSED)
    wire.coordinator.release("g1")
    assert [one.status for one in await client.responses(3)] == [200, 409, 200]


class Writes:
    """A server's transport that notes what is written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_answers_of_one_turn_to_one_connection_leave_in_one_write(wire: Wire) -> None:
    wire.coordinator.holds = True
    client = await wire.connect()
    gids = [f"g{number}" for number in range(6)]
    await client.send(b"".join(map(prepare, gids)))
    await _until_heard(wire, 6)
    connection = wire.connection()
    connection.transport = writes = Writes(connection.transport)  # type: ignore[assignment]
    for gid in (gids[1], gids[0], gids[2], gids[4]):
        wire.coordinator.release(gid)
    assert [one.status for one in await client.responses(3)] == [200, 200, 200]
    for gid in gids[3:4] + gids[5:]:
        wire.coordinator.release(gid)
    assert [one.status for one in await client.responses(3)] == [200, 200, 200]
    assert [data.count(b"HTTP/1.1 200 OK") for data in writes.written] == [3, 3]


async def test_an_answer_that_is_alone_is_written_at_once(wire: Wire) -> None:
    wire.coordinator.holds = True
    client = await wire.connect()
    await client.send(prepare("g1"))
    await _until_heard(wire, 1)
    connection = wire.connection()
    connection.transport = writes = Writes(connection.transport)  # type: ignore[assignment]
    wire.coordinator.release("g1")
    assert len(writes.written) == 1
    assert (await client.response()).status == 200


async def test_answers_are_written_before_a_cold_request_behind_them_begins(wire: Wire) -> None:
    wire.coordinator.holds = True
    client = await wire.connect()
    await client.send(prepare("g1") + prepare("g2") + get("/api/dtmsvr/query?gid=g1"))
    await _until_heard(wire, 2)
    wire.coordinator.query_waits = asyncio.Event()
    wire.coordinator.release("g1")
    wire.coordinator.release("g2")
    assert [one.status for one in await client.responses(2)] == [200, 200]
    wire.coordinator.query_waits.set()
    assert (await client.response()).status == 200


async def test_a_client_that_leaves_before_the_write_of_its_answers_harms_nobody(wire: Wire) -> None:
    wire.coordinator.holds = True
    client = await wire.connect()
    await client.send(prepare("g1") + prepare("g2"))
    await _until_heard(wire, 2)
    connection = wire.connection()
    other = await wire.connect()
    wire.coordinator.release("g1")
    wire.coordinator.release("g2")
    connection.transport.abort()
    wire.coordinator.holds = False
    assert (await other.ask(prepare("g3"))).status == 200


async def test_a_cold_request_waits_for_the_hot_one_before_it(wire: Wire) -> None:
    wire.coordinator.holds = True
    client = await wire.connect()
    await client.send(prepare("g1") + get("/api/ping") + prepare("g2") + get("/api/dtmsvr/newGid"))
    await _until_heard(wire, 2)
    wire.coordinator.release("g2", REFUSED)
    wire.coordinator.release("g1")
    responses = await client.responses(4)
    assert [one.status for one in responses] == [200, 200, 409, 200]
    assert responses[1].body == b'{"msg":"pong"}'
    assert b"gid" in responses[3].body


async def test_a_hot_request_waits_for_the_cold_one_before_it(wire: Wire) -> None:
    wire.coordinator.query_waits = asyncio.Event()
    client = await wire.connect()
    await client.send(get("/api/dtmsvr/query?gid=g1") + prepare("g2") + get("/api/ping"))
    await _until_heard(wire, 1)
    wire.coordinator.query_waits.set()
    bodies = [one.body for one in await client.responses(3)]
    assert bodies[0] == b'{"branches":[],"transaction":null}'
    assert b"prepared_at" in bodies[1]
    assert b"pong" in bodies[2]


async def test_requests_split_at_every_byte_are_understood(wire: Wire) -> None:
    client = await wire.connect()
    whole = prepare("g1") + get("/api/ping")
    for position in range(len(whole)):
        await client.send(whole[position : position + 1])
    assert [one.status for one in await client.responses(2)] == [200, 200]


async def test_a_thousand_pipelined_requests_are_all_answered(wire: Wire) -> None:
    client = await wire.connect()
    await client.send(b"".join(prepare(f"g{number}") for number in range(1_000)))
    responses = await client.responses(1_000)
    assert {one.status for one in responses} == {200}
    assert [gid for _, gid in wire.coordinator.heard] == [f"g{number}" for number in range(1_000)]


@pytest.mark.parametrize("half_closes", [False, True])
async def test_requests_behind_too_many_are_answered_when_the_app_asks_for_a_body(
    wire: Wire, *, half_closes: bool
) -> None:
    """To ask for a body ends no pause of reading that is not the app's."""
    wire.coordinator.query_waits = asyncio.Event()
    client = await wire.connect()
    call = post("/api/json-rpc", b'{"jsonrpc":"2.0","id":"1","method":"newGid"}')
    await client.send(get("/api/dtmsvr/query?gid=g") + call + b"".join(prepare(f"g{number}") for number in range(200)))
    if half_closes:
        client.writer.write_eof()
    server = wire.connection()
    await until(lambda: server.flow.read_paused and not server._waits)
    assert server._later
    wire.coordinator.query_waits.set()
    async with asyncio.timeout(20):
        responses = await client.responses(202)
    assert {one.status for one in responses} == {200}
    assert [gid for _, gid in wire.coordinator.heard] == [f"g{number}" for number in range(200)]


async def test_connection_close_is_honoured_after_the_answer(wire: Wire) -> None:
    client = await wire.connect()
    response = await client.ask(prepare("g1", "Connection: close"))
    assert response.headers["connection"] == "close"
    assert await client.is_closed()


async def test_a_request_after_connection_close_is_not_served(wire: Wire) -> None:
    client = await wire.connect()
    await client.send(prepare("g1", "Connection: close") + prepare("g2"))
    assert (await client.response()).status == 200
    assert await client.is_closed()
    assert wire.coordinator.heard == [("prepare", "g1")]


async def test_http_1_0_gets_one_answer_a_connection(wire: Wire) -> None:
    wire.coordinator.holds = True
    client = await wire.connect()
    old = "Connection: keep-alive"
    await client.send(prepare("g1", old, version="1.0") + prepare("g2", old, version="1.0"))
    await _until_heard(wire, 1)
    wire.coordinator.release("g1")
    assert (await client.response()).headers["connection"] == "close"
    assert await client.is_closed()
    assert wire.coordinator.heard == [("prepare", "g1")]


async def test_a_request_behind_a_cold_connection_close_is_not_served(wire: Wire) -> None:
    client = await wire.connect()
    await client.send(get("/api/ping", "Connection: close") + prepare("g2"))
    assert (await client.response()).status == 200
    assert await client.is_closed()
    assert wire.coordinator.heard == []


async def test_http_1_0_is_answered_and_closed(wire: Wire) -> None:
    client = await wire.connect()
    response = await client.ask(prepare("g1", version="1.0"))
    assert response.status == 200
    assert await client.is_closed()


async def test_head_gets_no_body(wire: Wire) -> None:
    client = await wire.connect()
    await client.send(b"HEAD /api/ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    raw = await client.reader.read()
    assert raw.startswith(b"HTTP/1.1 200")
    assert raw.endswith(b"\r\n\r\n")


async def test_head_of_a_hot_path_is_not_found(wire: Wire) -> None:
    client = await wire.connect()
    await client.send(b"HEAD /api/dtmsvr/prepare HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert (await client.reader.read()).startswith(b"HTTP/1.1 404")


async def test_expect_100_continue_is_invited_before_the_body(wire: Wire) -> None:
    client = await wire.connect()
    whole = prepare("g1", "Expect: 100-continue")
    head, _, body = whole.partition(b"\r\n\r\n")
    await client.send(head + b"\r\n\r\n")
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await client.ask(body)).status == 200


async def test_the_invitation_waits_for_the_answers_before_it(wire: Wire) -> None:
    wire.coordinator.holds = True
    client = await wire.connect()
    head, _, body = prepare("g2", "Expect: 100-continue").partition(b"\r\n\r\n")
    await client.send(prepare("g1") + head + b"\r\n\r\n")
    await _until_heard(wire, 1)
    wire.coordinator.release("g1")
    first = await client.reader.readuntil(b"}")
    assert first.startswith(b"HTTP/1.1 200")
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await client.send(body)
    await _until_heard(wire, 2)
    wire.coordinator.release("g2")
    assert (await client.response()).status == 200


async def test_a_body_may_come_in_chunks(wire: Wire) -> None:
    client = await wire.connect()
    head = b"POST /api/dtmsvr/abort HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await client.ask(head + b'8\r\n{"gid":"\r\n4\r\ng1"}\r\n0\r\n\r\n')).status == 200
    assert wire.coordinator.heard == [("abort", "g1")]


async def test_an_offer_of_h2c_is_declined_and_the_request_served(wire: Wire) -> None:
    client = await wire.connect()
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    await client.send(prepare("g1", *upgrade) + prepare("g2"))
    assert [one.status for one in await client.responses(2)] == [200, 200]


async def test_many_offers_of_h2c_in_one_read_copy_nothing_behind_them(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied_bytes = 0

    class Counting:
        def __init__(self, connection: object) -> None:
            self._parser = real(connection)

        def feed_data(self, data: bytes | memoryview) -> None:
            nonlocal copied_bytes
            if isinstance(data, bytes):
                copied_bytes += len(data)
            self._parser.feed_data(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._parser, name)

    real = httptools.HttpRequestParser
    monkeypatch.setattr(httptools, "HttpRequestParser", Counting)
    client = await wire.connect()
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    heads = b"".join(get(f"/api/ping?number={number}", *upgrade) for number in range(50))
    await client.send(heads)
    assert [one.status for one in await client.responses(50)] == [200] * 50
    assert copied_bytes <= 2 * len(heads)


async def test_other_spellings_of_a_hot_path_are_served_too(wire: Wire) -> None:
    client = await wire.connect()
    for path in ("/api/dtmsvr/abort?x=1", "/api/dtmsvr/abort/", "http://localhost/api/dtmsvr/abort"):
        assert (await client.ask(post(path, b'{"gid":"g1"}'))).status == 200
    assert wire.coordinator.heard == [("abort", "g1")] * 3


async def test_a_client_gone_before_its_answer_harms_no_other(wire: Wire) -> None:
    wire.coordinator.holds = True
    gone = await wire.connect()
    await gone.send(prepare("g1") + get("/api/ping"))
    await _until_heard(wire, 1)
    gone.reset()
    await until(lambda: not wire.listener.connections)
    wire.coordinator.release("g1", ACCEPTED)
    other = await wire.connect()
    assert (await other.ask(get("/api/ping"))).status == 200


async def test_a_client_that_half_closes_in_the_middle_of_a_request_is_answered_what_is_whole_and_let_go(
    wire: Wire,
) -> None:
    wire.coordinator.holds = True
    client = await wire.connect()
    await client.send(prepare("g1") + prepare("g2")[:-5])
    client.writer.write_eof()
    await until(lambda: wire.connection().half_closed)
    wire.coordinator.release("g1")

    assert (await client.response()).status == 200
    assert await client.is_closed()


async def test_a_client_that_half_closes_still_gets_its_answer(wire: Wire) -> None:
    wire.coordinator.holds = True
    client = await wire.connect()
    await client.send(prepare("g1"))
    client.writer.write_eof()
    await _until_heard(wire, 1)
    for _ in range(10):
        await asyncio.sleep(0)
    wire.coordinator.release("g1")
    assert (await client.response()).status == 200
    assert await client.is_closed()


async def test_an_answer_after_the_answer_is_ignored(wire: Wire) -> None:
    wire.coordinator.holds = True
    client = await wire.connect()
    await client.send(prepare("g1"))
    await _until_heard(wire, 1)
    _, on_reply = wire.coordinator.held[0]
    on_reply(ACCEPTED)
    on_reply(REFUSED)
    assert (await client.response()).status == 200
    assert (await client.ask(get("/api/ping"))).body == b'{"msg":"pong"}'


async def test_drain_answers_what_is_under_way_and_closes(wire: Wire) -> None:
    wire.coordinator.holds = True
    busy, idle = await wire.connect(), await wire.connect()
    assert (await idle.ask(get("/api/ping"))).status == 200
    await busy.send(prepare("g1"))
    await _until_heard(wire, 1)
    wire.listener.stop_accepting()
    assert await idle.is_closed()
    assert not await wire.listener.closed(0.01)
    wire.coordinator.release("g1")
    response = await busy.response()
    assert response.status == 200
    assert response.headers["connection"] == "close"
    assert await wire.listener.closed(60)


async def test_a_connection_that_is_accepted_as_the_port_closes_is_closed(wire: Wire) -> None:
    """Its protocol is made behind the closing of all others."""
    wire.listener.stop_accepting()
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(lambda: Connection(wire.listener.port, loop), theirs)
    ours.setblocking(False)
    async with asyncio.timeout(60):
        assert await loop.sock_recv(ours, 1) == b""
    ours.close()
    assert await wire.listener.closed(60)
