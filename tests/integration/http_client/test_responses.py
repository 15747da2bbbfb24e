"""The responses that a server may send, and their results, over real connections."""

from __future__ import annotations

import pytest

from tests.support.scripted_server import OK, Peer, answering, cut, once_then_close, serving
from twophase.http_client.client import HttpClient
from twophase.http_client.outcome import HttpError, HttpErrorKind

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;note=x\r\nde\r\n0\r\nX-Trailer: t\r\n\r\n"
)


async def test_the_request_is_what_was_asked_for(client: HttpClient) -> None:
    async with serving(answering(OK)).running() as server:
        url = f"{server.url}/transfer in/ü?note=grün und blau&gid=g1#top"
        await client.fetch("POST", url, [("X-Trace", "7")], b"{}", timeout_ms=20_000)
        head, body = server.requests[0]
        assert head.decode() == (
            "POST /transfer%20in/%C3%BC?note=gr%C3%BCn%20und%20blau&gid=g1 HTTP/1.1\r\n"
            f"host: 127.0.0.1:{server.port}\r\nX-Trace: 7\r\naccept-encoding: identity\r\ncontent-length: 2\r\n\r\n"
        )
        assert body == b"{}"


async def test_a_get_without_body_says_nothing_of_a_length(client: HttpClient) -> None:
    async with serving(answering(OK)).running() as server:
        await client.fetch("GET", server.url, timeout_ms=20_000)
        assert server.requests[0][0].startswith(b"GET / HTTP/1.1\r\n")
        assert b"content-length" not in server.requests[0][0]


async def test_headers_come_in_lower_case_and_in_order(client: HttpClient) -> None:
    answer = b"HTTP/1.1 409 Conflict\r\nX-B: 2 \r\nX-A:1\r\nx-b: 3\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(answer)).running() as server:
        response = await client.fetch("GET", server.url, timeout_ms=20_000)
    assert response.status == 409
    assert response.headers == [(b"x-b", b"2"), (b"x-a", b"1"), (b"x-b", b"3"), (b"content-length", b"0")]
    assert response.header(b"x-b") == b"2, 3"


@pytest.mark.parametrize("answer", [OK, CHUNKED], ids=["length", "chunked"])
async def test_an_answer_may_be_cut_at_every_byte(client: HttpClient, answer: bytes) -> None:
    script = answering(*cut(answer, range(len(answer))))
    async with serving(script).running() as server:
        first = await client.fetch("GET", server.url, timeout_ms=20_000)
        again = await client.fetch("GET", server.url, timeout_ms=20_000)
        assert first.body == again.body == (b"ok" if answer is OK else b"abcde")
        assert server.connections == 1


async def test_interim_responses_are_passed_over(client: HttpClient) -> None:
    answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK
    async with serving(answering(answer)).running() as server:
        response = await client.fetch("POST", server.url, body=b"x", timeout_ms=20_000)
        assert (response.status, response.headers) == (200, [(b"content-length", b"2")])


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_body_ends_with_its_headers(client: HttpClient, status: int) -> None:
    answer = b"HTTP/1.1 %d Nothing\r\nContent-Length: 5\r\n\r\n" % status
    async with serving(answering(answer)).running() as server:
        for _ in range(2):
            response = await client.fetch("GET", server.url, timeout_ms=20_000)
            assert (response.status, response.body) == (status, b"")
        assert server.connections == 1


async def test_the_answer_to_head_has_no_body_whatever_its_headers_say(client: HttpClient) -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")).running() as server:
        for _ in range(2):
            response = await client.fetch("HEAD", server.url, timeout_ms=20_000)
            assert (response.status, response.body) == (200, b"")


async def test_a_body_may_end_with_the_connection(client: HttpClient) -> None:
    async with serving(once_then_close(b"HTTP/1.1 200 OK\r\n\r\n", b"all ", b"of it")).running() as server:
        response = await client.fetch("GET", server.url, timeout_ms=20_000)
        assert response.body == b"all of it"


async def test_a_large_body_arrives_whole(client: HttpClient) -> None:
    body = bytes(range(256)) * 390
    async with serving(
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body)
    ).running() as server:
        response = await client.fetch("GET", server.url, timeout_ms=20_000)
        assert response.body == body


async def test_a_large_request_is_sent_whole_to_a_slow_reader(client: HttpClient) -> None:
    body = bytes(range(256)) * 20_000

    async def script(peer: Peer) -> None:
        _, received = await peer.request()
        await peer.say(OK if received == body else b"HTTP/1.1 500 Other\r\nContent-Length: 0\r\n\r\n")

    async with serving(script).running() as server:
        response = await client.fetch("POST", server.url, body=body, timeout_ms=20_000)
        assert response.status == 200


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhix",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhi",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
        b"HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhiXX0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nxyz",
        b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_an_answer_of_doubtful_form_is_an_error_and_ends_the_connection(
    client: HttpClient, answer: bytes
) -> None:
    async with serving(answering(answer)).running() as server:
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", server.url, timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.PROTOCOL
        assert "hi" not in str(caught.value).split()


@pytest.mark.parametrize("coding", [b"gzip", b"xchunked", b"chunked, identity"])
async def test_a_coded_body_that_ends_with_the_connection_is_an_error(client: HttpClient, coding: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: %s\r\n\r\nFAIL" % coding
    async with serving(once_then_close(answer)).running() as server:
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", server.url, timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.CLOSED


@pytest.mark.parametrize(
    "endless",
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Fill: y\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Fill: ", b"y" * 50),
        (b"HTTP/1.1 200 OK\r\n", b"y" * 50),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: y\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ", b"y" * 50),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"y" * 50),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\ny\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"y" * 50),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n", b"y" * 50),
    ],
    ids=[
        "headers", "value", "name", "interim", "trailers", "trailer", "extension", "chunks", "body", "length",
    ],
)  # fmt: skip
async def test_nothing_endless_is_gathered(client: HttpClient, endless: tuple[bytes, bytes]) -> None:
    begin, more = endless

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(begin)
        while True:
            await peer.say(more * 20)

    async with serving(script).running() as server:
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", server.url, timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.TOO_LARGE


async def test_a_redirect_is_an_answer_and_is_not_followed(client: HttpClient) -> None:
    async with serving(answering(OK)).running() as elsewhere:
        answer = f"HTTP/1.1 307 Elsewhere\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n".encode()
        async with serving(answering(answer)).running() as server:
            response = await client.fetch("POST", server.url, body=b"{}", timeout_ms=20_000)
            assert response.status == 307
            assert elsewhere.connections == 0
