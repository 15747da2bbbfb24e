"""`HttpDestination`, from both sides.

The tests show what a branch service or a check-back route receives, and what the coordinator learns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.scripted_server import OK, Peer, answering, once_then_close, serving
from twophase.core.headers import CONNECTION_HEADERS
from twophase.destinations.base import Answer, Call, Destination
from twophase.destinations.http import HttpDestination
from twophase.http_client.client import HttpClient

QUERY = (("branch_id", "01"), ("gid", "order/17 ä"), ("op", "action"), ("trans_type", "msg"))


@pytest.fixture
async def destination() -> AsyncIterator[HttpDestination]:
    one = HttpDestination(HttpClient(response_bytes_max=1000))
    yield one
    await one.stop()


async def _answer(
    destination: Destination,
    url: str,
    *,
    payload: bytes = b"",
    headers: tuple[tuple[str, str], ...] = (),
    query: tuple[tuple[str, str], ...] = QUERY,
    timeout_ms: int = 60_000,
) -> Answer:
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    destination.call(Call(url, query, payload, headers, timeout_ms), answered.set_result)
    assert not answered.done()
    return await asyncio.wait_for(answered, 90)


async def test_a_payload_is_posted_as_json_with_the_query_after_the_url_own(destination: HttpDestination) -> None:
    async with serving(answering(OK)).running() as server:
        answer = await _answer(destination, f"{server.url}/in?tenant=7#top", payload=b'{"amount":30}')
        head, body = server.requests[0]
    assert head.startswith(
        b"POST /in?tenant=7&branch_id=01&gid=order%2F17%20%C3%A4&op=action&trans_type=msg HTTP/1.1\r\n"
    )
    assert b"\r\nContent-Type: application/json\r\n" in head
    assert body == b'{"amount":30}'
    assert (answer.status, answer.body, answer.verdict_header, answer.error) == (200, b"ok", None, "")
    assert 0 <= answer.latency_ms < 60_000


async def test_without_a_payload_it_is_a_get(destination: HttpDestination) -> None:
    async with serving(answering(OK)).running() as server:
        await _answer(destination, f"{server.url}/check", query=(("op", "msg"),))
        head, body = server.requests[0]
    assert head.startswith(b"GET /check?op=msg HTTP/1.1\r\n")
    assert body == b""


async def test_headers_may_replace_the_content_type(destination: HttpDestination) -> None:
    headers = (("CONTENT-TYPE", "text/plain"), ("Authorization", "Bearer t"))
    async with serving(answering(OK)).running() as server:
        await _answer(destination, server.url, payload=b"x", headers=headers)
        head, _ = server.requests[0]
    assert head.lower().count(b"content-type:") == 1
    assert b"\r\nCONTENT-TYPE: text/plain\r\nAuthorization: Bearer t\r\n" in head


async def test_a_stored_header_that_no_call_may_carry_is_left_out(destination: HttpDestination) -> None:
    kept = ("X-Tenant", "7")
    headers = (*((name.title(), "1") for name in sorted(CONNECTION_HEADERS)), ("Accept-Encoding", "gzip"), kept)
    async with serving(answering(OK)).running() as server:
        answer = await _answer(destination, server.url, payload=b"{}", headers=headers)
        head, body = server.requests[0]
    assert (answer.status, body) == (200, b"{}")
    own = f"\r\nhost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\nX-Tenant: 7\r\n"
    assert head.endswith(f"{own}accept-encoding: identity\r\ncontent-length: 2\r\n\r\n".encode())


async def test_the_verdict_header_is_reported(destination: HttpDestination) -> None:
    answer = b"HTTP/1.1 409 Conflict\r\nX-Twophase-Verdict: rolled_back\r\nContent-Length: 7\r\n\r\nFAILURE"
    async with serving(answering(answer)).running() as server:
        told = await _answer(destination, server.url)
    assert (told.status, told.body, told.verdict_header) == (409, b"FAILURE", "rolled_back")


async def test_contradicting_verdict_headers_are_reported_together(destination: HttpDestination) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nX-Twophase-Verdict: committed\r\nX-Twophase-Verdict: rolled_back\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    async with serving(answering(answer)).running() as server:
        told = await _answer(destination, server.url)
    assert told.verdict_header == "committed, rolled_back"


async def test_a_compressed_success_is_an_error_because_failure_could_hide_in_it(destination: HttpDestination) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b"
    async with serving(answering(answer)).running() as server:
        told = await _answer(destination, server.url)
        assert b"\r\naccept-encoding: identity\r\n" in server.requests[0][0]
    assert (told.status, told.body) == (0, b"")
    assert "compressed" in told.error


async def test_no_answer_is_status_0_with_a_reason_that_tells_no_secret(destination: HttpDestination) -> None:
    async with serving(once_then_close()).running() as server:
        told = await _answer(
            destination, f"{server.url}/?key=secret", payload=b"secret", headers=(("Authorization", "secret"),)
        )
    assert told.status == 0
    assert told.error == "closed: the peer closed the connection without an answer"


async def test_a_header_that_cannot_be_sent_is_an_error_that_does_not_repeat_it(destination: HttpDestination) -> None:
    told = await _answer(destination, "http://127.0.0.1:1/", headers=(("X-Token", "secret\r\nX: y"),))
    assert told.status == 0
    assert told.error == "bad_header: the value of header x-token has control characters"


async def test_an_answer_that_is_too_long_is_an_error(destination: HttpDestination) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + b"y" * 1001
    async with serving(answering(answer)).running() as server:
        told = await _answer(destination, server.url)
    assert told.status == 0
    assert told.error == "too_large: a body of more than 1000 bytes"


async def test_a_timeout_is_an_error_with_its_latency(destination: HttpDestination) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.closed()

    async with serving(script).running() as server:
        told = await _answer(destination, server.url, timeout_ms=100)
    assert told.status == 0
    assert told.error.startswith("timeout: ")
    assert told.latency_ms >= 100


async def test_stop_answers_calls_under_way_and_may_be_repeated(destination: HttpDestination) -> None:
    asked = asyncio.Event()
    answers: list[Answer] = []

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.closed()

    async with serving(script).running() as server:
        destination.call(Call(server.url, (), b"x", (), 60_000), answers.append)
        await asyncio.wait_for(asked.wait(), 20)
        assert destination.under_way == {server.url: 1}
        await destination.stop()
        await destination.stop()
    assert [answer.error for answer in answers] == ["closed: the client is closed"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://bank-b/" + "y" * 2048, "2062 bytes, at most 2048"),
        ("http://bank-b/" + "ü" * 1030, "2074 bytes, at most 2048"),
        ("ftp://bank-b/", "scheme"),
        ("http:///in", "host is missing"),
        ("http://bank-b/\r\nX: y", "control characters"),
        ("http://bank-b/?x=\n", "control characters"),
        ("http://user@bank-b/", "user names"),
        ("", "scheme"),
    ],
)
def test_an_address_that_cannot_be_called_is_refused_with_the_reason(url: str, reason: str) -> None:
    refusal = HttpDestination().accepts(url)
    assert refusal is not None
    assert reason in refusal


def test_the_key_is_scheme_host_and_port() -> None:
    keys = {HttpDestination().key(url) for url in ("http://Bank-B", "http://bank-b:80/in?x=1#y", "HTTP://bank-b/out")}
    assert keys == {"http://bank-b:80"}
