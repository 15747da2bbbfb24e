"""A known head changes no outcome of a request."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from tests.support.fake_coordinator import FakeCoordinator
from tests.support.memory_transport import MemoryTransport
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.encode import Route
from twophase.server.http_port.connection import Connection
from twophase.server.http_port.known_heads import HEAD_BYTES_MAX, HEADS_MAX, KnownHeads
from twophase.server.http_port.listener import Listener
from twophase.server.http_port.parser import RequestParser

Outcome = tuple[list[tuple[str, str]], list[Any], bytes, bool]


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    request = await receive()
    body = scope["path"].encode() + request["body"]
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def _outcome(pieces: list[bytes], heads: KnownHeads) -> Outcome:
    """Return what the coordinator was asked, and what the client reads."""
    coordinator = FakeCoordinator()
    listener = Listener(coordinator, Decoder(lambda url: None), _app, on_refused=lambda code: None)
    listener.port.heads = heads
    connection, transport = Connection(listener.port, asyncio.get_running_loop()), MemoryTransport()
    connection.connection_made(transport)
    for piece in pieces:
        connection.data_received(piece)
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    return coordinator.heard, coordinator.messages, bytes(transport.written), transport.closed


def _body(gid: str, text: str) -> bytes:
    return b'{"gid":"%b","trans_type":"msg","steps":[{"action":"http://b/in"}],"payloads":["%b"]}' % (
        gid.encode(),
        text.encode(),
    )


_HOST = "Host: localhost\r\n"
_LINES = (
    _HOST,
    f"{_HOST}User-Agent: c\r\n",
    f"{_HOST}Content-Type: application/json\r\n",
    f"{_HOST}traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n",
    f"{_HOST}Connection: close\r\n",
    f"{_HOST}Expect: 100-continue\r\n",
    f"{_HOST}Connection: Upgrade\r\nUpgrade: h2c\r\n",
    f"{_HOST}{_HOST}",
    f"{_HOST}Origin: https://evil.example\r\n",
    "Host: evil.example\r\n",
    "",
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Draw one request, nearly always a usual one."""
    path = draw(st.sampled_from(["/api/dtmsvr/prepare", "/api/dtmsvr/submit", "/api/dtmsvr/abort", "/api/ping"]))
    line = draw(st.sampled_from([*_LINES[:3] * 4, *_LINES[3:]]))
    http = draw(st.sampled_from(["1.1"] * 9 + ["1.0"]))
    body = _body(draw(st.sampled_from(["g1", "g2"])), draw(st.text("ab", max_size=3)))
    if draw(st.sampled_from([False] * 5 + [True])):
        chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        return f"POST {path} HTTP/{http}\r\n{line}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks
    return f"POST {path} HTTP/{http}\r\n{line}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _pieces(sent: list[bytes], cuts: list[int], *, apart: bool) -> list[bytes]:
    """Return the requests in reads: one a request where `apart`, else cut anywhere."""
    if apart:
        return sent
    data = b"".join(sent)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@settings(max_examples=150)
@example(
    [b"POST /api/dtmsvr/abort HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n" + b'{"gid":"g"}'] * 3, [], True
)
@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.integers(0, 2_000), max_size=4), st.booleans())
def test_a_known_head_changes_no_outcome(sent: list[bytes], cuts: list[int], apart: bool) -> None:
    async def compare() -> None:
        pieces = _pieces(sent, cuts, apart=apart)
        known, full = KnownHeads(), KnownHeads()
        for request in sent:
            await _outcome([request], known)
        for number in range(HEADS_MAX):
            head = b"POST /api/dtmsvr/submit HTTP/1.1\r\nHost: localhost\r\nX: %d\r\nContent-Length: 0\r\n\r\n" % number
            full.learn(head, Route.SUBMIT, 0)
        expected = await _outcome(pieces, KnownHeads())
        assert await _outcome(pieces, known) == expected
        assert await _outcome(pieces, full) == expected

    asyncio.run(compare())


_USUAL = b"POST /api/dtmsvr/submit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


async def test_a_known_head_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = KnownHeads()
    body = _body("g", "a")
    request = _USUAL.replace(b"2\r\n\r\n{}", b"%d\r\n\r\n" % len(body)) + body
    expected = await _outcome([request], heads)
    assert len(heads) == 1
    monkeypatch.setattr(RequestParser, "on_headers_complete", None)
    assert await _outcome([request], heads) == expected


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(_USUAL.replace(b"HTTP/1.1", b"HTTP/1.0"), id="HTTP/1.0"),
        pytest.param(_USUAL.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), id="ends the connection"),
        pytest.param(_USUAL.replace(b"\r\n\r\n", b"\r\ntraceparent: 00-1\r\n\r\n"), id="a trace"),
        pytest.param(_USUAL.replace(b"\r\n\r\n", b"\r\nX: %b\r\n\r\n" % (b"a" * HEAD_BYTES_MAX)), id="long"),
        pytest.param(_USUAL.replace(b"submit", b"other"), id="another route"),
        pytest.param(b"POST /api/dtmsvr/submit HTTP/1.1\r\nHost: localhost\r\n\r\n", id="without a length"),
        pytest.param(
            b"POST /api/dtmsvr/submit HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\n{}\r\n0\r\n\r\n",
            id="chunks",
        ),
    ],
)
async def test_the_head_of_a_special_request_is_not_remembered(request_: bytes) -> None:
    heads = KnownHeads()
    await _outcome([request_], heads)
    assert heads == {}


async def test_requests_of_one_read_teach_their_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = KnownHeads()
    abort = b"POST /api/dtmsvr/abort HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n" + b'{"gid":"g"}'
    read = _USUAL + abort + _USUAL + abort
    expected = await _outcome([read], heads)
    assert [head.route for head in heads.values()] == [Route.SUBMIT, Route.ABORT]
    assert expected[0] == [("abort", "g")] * 2
    monkeypatch.setattr(RequestParser, "on_headers_complete", None)
    assert await _outcome([read], heads) == expected


async def test_the_head_of_a_request_in_chunks_over_two_reads_is_not_remembered() -> None:
    heads = KnownHeads()
    head = b"POST /api/dtmsvr/abort HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    first, rest = b'6\r\n{"gid"\r\n', b'5\r\n:"g"}\r\n0\r\n\r\n'
    assert len(first) == len(b'{"gid":"g"}')
    heard, *_ = await _outcome([head + first, rest], heads)
    assert heard == [("abort", "g")]
    assert heads == {}


def test_known_heads_are_bounded() -> None:
    heads = KnownHeads()
    for number in range(2 * HEADS_MAX + 5):
        heads.learn(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nX: %d\r\nContent-Length: 0\r\n\r\n" % number, Route.SUBMIT, 0
        )
        assert len(heads) <= HEADS_MAX
