"""Clients that are slow, huge, many, wrong or gone.

Each is bounded, each gets HTTP's answer, and others are served.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.server.running import running
from tests.support.fake_coordinator import Client, Response, Wire, get, listening, message, post, prepare
from tests.support.waiting import until
from twophase.core.errors import ServerFault
from twophase.core.limits import REQUEST_HEADER_BYTES_MAX
from twophase.server.http_port.port import Timeouts

PATIENT_S = 60.0


def _quick(**changed: float) -> Timeouts:
    """Return long timeouts, except for those named."""
    patient: dict[str, Any] = dict.fromkeys(("head_s", "body_s", "idle_s", "write_s", "linger_s"), PATIENT_S)
    return Timeouts(**(patient | changed))


async def _still_serves(wire: Wire) -> None:
    client = await wire.connect()
    assert (await client.ask(prepare("after"))).status == 200


async def test_a_body_that_goes_on_behind_its_answer_gets_no_second_one(wire: Wire) -> None:
    client = await wire.connect()
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    await client.send(b"POST /nosuch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
    assert (await client.response()).status == 404
    with contextlib.suppress(ConnectionError):
        for _ in range(80):
            await client.send(chunk)
    with pytest.raises(ConnectionError):
        await client.response()
    await _still_serves(wire)


NOT_HTTP = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"HELO mail.example\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /api/dtmsvr/prepare HTTP/1.1\r\nContent-Length: nine\r\n\r\n",
    b"POST /api/dtmsvr/prepare HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /api/dtmsvr/prepare HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    b"POST /api/dtmsvr/prepare HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    b"POST /api/dtmsvr/prepare HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    b"CONNECT bank:443 HTTP/1.1\r\nHost: bank\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
]


@pytest.mark.parametrize("raw", NOT_HTTP, ids=[raw[:24].decode("latin-1").strip() for raw in NOT_HTTP])
async def test_what_is_not_http_is_answered_400_and_closed(wire: Wire, raw: bytes) -> None:
    client = await wire.connect()
    response = await client.ask(raw)
    assert response.status in {400, 413}
    assert response.headers["connection"] == "close"
    assert "Traceback" not in response.body.decode()
    assert await client.is_closed()
    await _still_serves(wire)


async def test_a_bad_request_behind_a_good_one_is_answered_second(wire: Wire) -> None:
    client = await wire.connect()
    await client.send(prepare("g1") + b"nonsense\r\n\r\n")
    assert [one.status for one in await client.responses(2)] == [200, 400]
    assert await client.is_closed()


async def test_bad_json_keeps_the_connection(wire: Wire) -> None:
    client = await wire.connect()
    response = await client.ask(post("/api/dtmsvr/prepare", b"{bad"))
    assert response.status == 400
    assert json.loads(response.body)["code"] == "TP-1000"
    assert (await client.ask(prepare("g1"))).status == 200


async def test_a_refusal_does_not_repeat_a_long_text_of_the_request(tmp_path: Path) -> None:
    long = "x" * 100_000
    hostile = {
        "/api/json-rpc": {"jsonrpc": "2.0", "id": long, "method": "newGid"},
        "/api/twophase/prepare-many": {"messages": [{long: 1}]},
        "/api/twophase/queues/decide": {"transaction_id": "t", "decision": long, "client": "c"},
    }
    async with running(tmp_path) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        for path, body in hostile.items():
            answer = await client.ask(post(path, json.dumps(body).encode()))
            assert (answer.status, path) in {(400, path), (200, "/api/json-rpc")}
            assert len(answer.body) < 2_000, answer.body[:1_000]
        properties = {f"p{number}": "" for number in range(20_000)}
        many = json.dumps({"numbers": [0], "set_properties": properties}).encode()
        answer = await client.ask(post("/api/twophase/letters/group/redrive", many))
        assert (answer.status, json.loads(answer.body)["code"]) == (400, "TP-1001")
        for path in ("receive", "questions"):
            poll = {"group": "g", "topic": "t", "client": "c", "wait_ms": 0, "x": "y" * 32_768}
            answer = await client.ask(post(f"/api/twophase/queues/{path}", json.dumps(poll).encode()))
            assert (answer.status, json.loads(answer.body)["code"]) == (400, "TP-1001")
        client.writer.close()
        await client.writer.wait_closed()


async def test_a_declared_body_beyond_the_limit_is_refused_unread(wire: Wire) -> None:
    client = await wire.connect()
    head = b"POST /api/dtmsvr/prepare HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4194305\r\n\r\n"
    response = await client.ask(head)
    assert response.status == 413
    said = json.loads(response.body)
    assert said["code"] == "TP-1001"
    assert "request body is 4194305 bytes or more, at most 4194304" in said["message"]
    assert wire.coordinator.heard == []


async def test_a_refused_body_may_be_sent_whole_and_the_refusal_still_arrives(wire: Wire) -> None:
    client = await wire.connect()
    body = b"x" * 6_000_000
    await client.send(post("/api/dtmsvr/prepare", body))
    assert (await client.response()).status == 413
    assert await client.is_closed()


async def test_a_chunked_body_beyond_the_limit_is_refused_on_the_way(wire: Wire) -> None:
    client = await wire.connect()
    await client.send(b"POST /api/dtmsvr/prepare HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    for _ in range(65):
        await client.send(piece)
    assert (await client.response()).status == 413
    await _still_serves(wire)


async def test_a_body_sent_to_a_cold_route_is_bounded_too(wire: Wire) -> None:
    client = await wire.connect()
    await client.send(b"POST /api/ping HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert await _is_cut_off_while_sending(client, b"10000\r\n" + b"x" * 65536 + b"\r\n")
    await _still_serves(wire)


async def test_a_body_of_exactly_the_limit_is_read(wire: Wire) -> None:
    filler = b" " * (4 * 1024 * 1024 - len(message("g1")))
    client = await wire.connect()
    assert (await client.ask(post("/api/dtmsvr/prepare", message("g1") + filler))).status == 200


@pytest.mark.parametrize(
    "head",
    [
        b"POST /api/dtmsvr/prepare HTTP/1.1\r\nX: " + b"a" * 400_000,
        b"POST /api/dtmsvr/prepare HTTP/1.1\r\n" + b"X-A: b\r\n" * 50_000,
        b"GET /" + b"a" * 400_000,
        b"POST /api/dtmsvr/prepare HTTP/1.1\r\n" + b"a" * 400_000,
    ],
    ids=["value", "number", "url", "name"],
)
async def test_huge_headers_are_refused_431(wire: Wire, head: bytes) -> None:
    client = await wire.connect()
    for position in range(0, len(head), 16_384):
        if wire.metrics._refused:
            break
        await client.send(head[position : position + 16_384])
        await asyncio.sleep(0)
    assert (await client.response()).status in {431, 400}
    assert await client.is_closed()
    await _still_serves(wire)


@pytest.mark.parametrize("headers", [["X: " + "a" * 65_600], ["X: a"] * 20_000], ids=["long", "repeated"])
async def test_large_headers_in_one_piece_are_refused_by_their_size(wire: Wire, headers: list[str]) -> None:
    client = await wire.connect()
    await until(lambda: wire.listener.connections)
    wire.connection().data_received(prepare("g1", *headers))
    response = await client.response()
    assert response.status == 431
    assert "request headers is" in json.loads(response.body)["message"]
    assert wire.coordinator.heard == []


async def test_huge_trailers_are_refused(wire: Wire) -> None:
    client = await wire.connect()
    await client.send(
        b"POST /api/dtmsvr/abort HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'c\r\n{"gid":"g1"}\r\n0\r\nX: '
    )
    assert await _is_cut_off_while_sending(client, b"a" * 16_384)
    assert wire.coordinator.heard == []
    await _still_serves(wire)


async def test_a_head_that_never_ends_is_answered_408() -> None:
    async with listening(timeouts=_quick(head_s=0.2, linger_s=0.2)) as wire:
        client = await wire.connect()
        await client.send(b"POST /api/dtmsvr/prepare HTTP/1.1\r\nHost: localhost\r\n")
        dripping = asyncio.create_task(_drip(client, b"X: y\r\n"))
        assert (await client.response()).status == 408
        assert await client.is_closed()
        await dripping


async def test_a_body_that_never_ends_is_answered_408() -> None:
    async with listening(timeouts=_quick(body_s=0.2, linger_s=0.2)) as wire:
        client = await wire.connect()
        await client.send(b"POST /api/dtmsvr/prepare HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        dripping = asyncio.create_task(_drip(client, b" "))
        assert (await client.response()).status == 408
        await dripping
        assert wire.coordinator.heard == []


async def test_an_idle_connection_is_closed_without_a_word() -> None:
    async with listening(timeouts=_quick()) as wire:
        client = await wire.connect()
        assert (await client.ask(get("/api/ping"))).status == 200
        wire.listener.port.timeouts = _quick(idle_s=0.1)
        assert await client.reader.read() == b""


async def test_a_request_under_way_is_not_idle() -> None:
    async with listening(timeouts=_quick()) as wire:
        wire.coordinator.holds = True
        other = await wire.connect()
        client = await wire.connect()
        await client.send(prepare("g1"))
        await until(lambda: wire.coordinator.held)
        wire.listener.port.timeouts = _quick(idle_s=0.1)
        assert await other.is_closed()
        wire.coordinator.release("g1")
        assert (await client.response()).status == 200


async def test_a_client_that_reads_nothing_is_cut_and_bounded() -> None:
    async with listening(timeouts=_quick(write_s=0.3)) as wire:
        client = await wire.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a StreamWriter's transport reads too
        requests = b"".join(prepare(f"g{number}") for number in range(200))
        assert await _is_cut_off_while_sending(client, requests)
        assert len(wire.coordinator.heard) < 200_000


async def test_a_client_that_reads_nothing_is_not_read_from() -> None:
    async with listening(timeouts=_quick()) as wire:
        client = await wire.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a StreamWriter's transport reads too
        await until(lambda: wire.listener.connections)
        requests = b"".join(prepare(f"g{number}") for number in range(200))
        sending = asyncio.create_task(_is_cut_off_while_sending(client, requests))
        async with asyncio.timeout(60):
            while not (connection := wire.connection()).flow.write_paused:
                await asyncio.sleep(0)
        assert connection.flow.read_paused
        sending.cancel()
        await asyncio.wait([sending])


async def test_one_request_never_gets_two_answers(wire: Wire) -> None:
    wire.coordinator.query_waits = asyncio.Event()
    client = await wire.connect()
    await client.send(b"GET /api/dtmsvr/query?gid=g1 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        await client.send((b"10000\r\n" + b"x" * 65536 + b"\r\n") * 65)
    await until(lambda: wire.metrics._refused or not wire.listener.connections)
    wire.coordinator.query_waits.set()
    received = b""
    with contextlib.suppress(ConnectionError):
        received = await client.reader.read()
    assert received.count(b"HTTP/1.1") <= 1
    await _still_serves(wire)


async def test_beyond_the_bound_of_connections_clients_get_503() -> None:
    async with listening(connections_max=5) as wire:
        kept = [await wire.connect() for _ in range(5)]
        for client in kept:
            assert (await client.ask(get("/api/ping"))).status == 200
        late = await wire.connect()
        response = await late.ask(get("/api/ping"))
        assert response.status == 503
        assert response.headers["retry-after"] == "1"
        assert await late.is_closed()
        late.close()
        kept[0].close()
        await until(lambda: wire.listener.connections < 5)
        again = await wire.connect()
        assert (await again.ask(get("/api/ping"))).status == 200


async def test_health_is_answered_when_all_connections_are_taken() -> None:
    async with listening(connections_max=5) as wire:
        kept = [await wire.connect() for _ in range(5)]
        assert (await kept[0].ask(prepare("g0"))).status == 200
        probe = await wire.connect()
        assert (await probe.ask(get("/health/live"))).status == 200
        assert (await probe.ask(get("/health/ready"))).status == 200
        refused = await probe.ask(prepare("g1"))
        assert refused.status == 503
        assert json.loads(refused.body)["code"] == "TP-3001"
        assert await probe.is_closed()
        assert wire.coordinator.heard == [("prepare", "g0")]


async def test_one_address_holds_its_share_of_the_connections_only() -> None:
    async with listening(connections_max=8, per_address_percent=25) as wire:
        kept = [await wire.connect() for _ in range(2)]
        for client in kept:
            assert (await client.ask(get("/api/ping"))).status == 200
        third = await wire.connect()
        assert (await third.ask(get("/api/ping"))).status == 503
        assert await _status_from("127.0.0.2", wire) == 200
        kept[0].close()
        third.close()
        await until(lambda: wire.listener.connections <= 1)
        assert (await (await wire.connect()).ask(get("/api/ping"))).status == 200
    assert not wire.listener.port.by_address


async def _status_from(address: str, wire: Wire) -> int:
    client = Client(*await asyncio.open_connection("127.0.0.1", wire.port, local_addr=(address, 0)))
    response = await client.ask(get("/api/ping", "Connection: close"))
    client.close()
    return response.status


async def test_reserved_places_go_to_the_youngest_connections() -> None:
    async with listening(connections_max=5, timeouts=Timeouts(head_s=PATIENT_S)) as wire:
        for _ in range(5 + 400):
            await (await wire.connect()).send(b"GET /health/li")
        probe = await wire.connect()
        assert (await probe.ask(get("/health/live"))).status == 200
        assert len(wire.listener.port.reserved) == 16
        assert wire.listener.connections < 5 + 300


async def test_silent_connections_of_one_address_keep_the_reserved_places_from_no_other() -> None:
    async with listening(connections_max=5, timeouts=Timeouts(head_s=PATIENT_S)) as wire:
        for _ in range(5):
            await wire.connect()
        probe = await wire.connect()
        silent: list[asyncio.StreamWriter] = []
        for _ in range(100):
            _, writer = await asyncio.open_connection("127.0.0.1", wire.port, local_addr=("127.0.0.2", 0))
            writer.write(b"GET /health/li")
            silent.append(writer)
        assert (await probe.ask(get("/health/live"))).status == 200
        for writer in silent:
            writer.transport.abort()


async def test_thousands_of_idle_connections_do_not_keep_others_from_being_served() -> None:
    async with listening(connections_max=3_000, timeouts=_quick()) as wire:
        idle = [await wire.connect() for _ in range(2_000)]
        for client in idle[:200]:
            await client.send(b"POST /api/dtmsvr/prep")
        busy = await wire.connect()
        for number in range(50):
            assert (await busy.ask(prepare(f"g{number}"))).status == 200
        assert wire.listener.connections == 2_001


async def test_abrupt_resets_at_every_stage_leave_nothing_behind(wire: Wire) -> None:
    whole = prepare("g1") + get("/api/ping")
    for position in range(0, len(whole), 7):
        client = await wire.connect()
        await client.send(whole[:position])
        client.reset()
    await until(lambda: not wire.listener.connections)
    await _still_serves(wire)


async def test_a_fault_in_the_coordinator_is_500_without_a_trace(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(wire.coordinator, "prepare", fail)
    client = await wire.connect()
    response = await client.ask(prepare("g1"))
    _told_of_a_fault(response)
    assert (await client.ask(get("/api/ping"))).status == 200


async def test_a_fault_in_a_cold_route_is_500_without_a_trace(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_gid: str) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(wire.coordinator, "query", fail)
    client = await wire.connect()
    response = await client.ask(get("/api/dtmsvr/query?gid=g1"))
    _told_of_a_fault(response)
    await _still_serves(wire)


def _told_of_a_fault(response: Response) -> None:
    """Assert that the answer names a remedy, and nothing of the server's insides.

    Whether the request took effect is unknown.
    """
    assert response.status == 500
    assert b"secret" not in response.body
    assert b"Traceback" not in response.body
    told = msgspec.json.decode(response.body)
    assert (told["code"], told["remedy"]) == (ServerFault.code, ServerFault.remedy)


async def _is_cut_off_while_sending(client: Client, piece: bytes) -> bool:
    """Send for ever; return True when the server ends that."""
    try:
        async with asyncio.timeout(60):
            while True:
                await client.send(piece)
                await asyncio.sleep(0)
    except ConnectionError:
        return True
    except TimeoutError:
        return False


async def _drip(client: Client, drop: bytes) -> None:
    """Send always a little more and never the end, like a slow-loris."""
    try:
        while True:
            await client.send(drop)
            await asyncio.sleep(0.02)
    except ConnectionError:
        return


@pytest.mark.parametrize(
    "rest",
    [
        b"Upgrade: h2c\r\nConnection: upgrade\r\n\r\nmore",
        b"Transfer-Encoding: chunked\r\n\r\nno chunk size\r\n",
        b"Content-Length: 2\r\n\r\n{}\x00 and no request",
    ],
)
@pytest.mark.parametrize("method", [b"CONNECT a:1", b"POST /api/dtmsvr/prepare"])
async def test_what_follows_a_head_that_was_refused_is_not_refused_again(
    wire: Wire, method: bytes, rest: bytes
) -> None:
    """A second answer would be written to a connection whose sending side is closed."""
    client = await wire.connect()
    await until(lambda: wire.listener.connections)

    # All in one read, which a socket does not promise.
    head = method + b" HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * REQUEST_HEADER_BYTES_MAX.value + b"\r\n"
    wire.connection().data_received(head + rest)

    assert (await client.response()).status == 431
    assert await client.is_closed()
