"""The reuse of connections: bytes never reach a call they were not sent for."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.http_client.conftest import MakeClient
from tests.support.scripted_server import OK, Peer, answering, once_then_close, serving
from twophase.http_client.client import HttpClient
from twophase.http_client.outcome import HttpError, HttpErrorKind, HttpResponse, Outcome


async def test_calls_one_after_another_share_a_connection(client: HttpClient) -> None:
    async with serving(answering(OK)).running() as server:
        for _ in range(5):
            await client.fetch("GET", server.url, timeout_ms=20_000)
        assert server.connections == 1


async def test_a_call_made_in_the_callback_finds_the_connection_free(client: HttpClient) -> None:
    async with serving(answering(OK)).running() as server:
        over = asyncio.get_running_loop().create_future()

        def again(outcome: Outcome) -> None:
            client.request("GET", server.url, (), b"", 20_000, over.set_result)

        client.request("GET", server.url, (), b"", 20_000, again)
        assert isinstance(await over, HttpResponse)
        assert server.connections == 1


async def test_hosts_do_not_share_connections(client: HttpClient) -> None:
    async with serving(answering(OK)).running() as one, serving(answering(OK)).running() as two:
        await client.fetch("GET", one.url, timeout_ms=20_000)
        await client.fetch("GET", two.url, timeout_ms=20_000)
        assert (one.connections, two.connections) == (1, 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"x",
        OK + b"HTTP/1.1 200 OK\r\n",
        OK + OK.replace(b"ok", b"no"),
    ],
    ids=["close", "http-1.0", "a byte", "half an answer", "another answer"],
)
async def test_a_connection_is_dropped_after(client: HttpClient, answer: bytes) -> None:
    async with serving(answering(answer)).running() as server:
        for number in (1, 2):
            response = await client.fetch("GET", server.url, timeout_ms=20_000)
            assert response.body == b"ok"
            assert server.connections == number


async def test_bytes_on_an_idle_connection_drop_it(client: HttpClient) -> None:
    dropped = asyncio.Event()
    speak = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        if peer.number == 1:
            await speak.wait()
            await peer.say(OK.replace(b"ok", b"no"))
            await peer.closed()
            dropped.set()

    async with serving(script).running() as server:
        await client.fetch("GET", server.url, timeout_ms=20_000)
        speak.set()
        await asyncio.wait_for(dropped.wait(), 20)
        assert (await client.fetch("GET", server.url, timeout_ms=20_000)).body == b"ok"
        assert server.connections == 2


async def test_an_early_answer_to_a_request_half_sent_drops_the_connection(client: HttpClient) -> None:
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.say(answer)
        await peer.closed()
        gone.set()

    async with serving(script).running() as server:
        response = await client.fetch("POST", server.url, body=bytes(32 * 1024 * 1024), timeout_ms=20_000)
        assert response.status == 413
        await asyncio.wait_for(gone.wait(), 20)
        assert client.connections == 0


async def test_a_stale_connection_costs_a_retry_and_no_error(client: HttpClient) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        if peer.number == 1:
            await peer.request()  # takes the second request and dies without a byte of an answer
            peer.reset()
        await peer.closed()

    async with serving(script).running() as server:
        await client.fetch("GET", f"{server.url}/1", timeout_ms=20_000)
        await client.fetch("GET", f"{server.url}/2", timeout_ms=20_000)
        assert [head.split()[1] for head, _ in server.requests] == [b"/1", b"/2", b"/2"]
        assert server.connections == 2


async def test_a_retry_is_made_once_and_on_a_fresh_connection(client: HttpClient) -> None:
    warm = asyncio.Barrier(3)

    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number <= 3:
            await warm.wait()  # three connections, all kept
            await peer.say(OK)
            await peer.request()
        peer.close()

    async with serving(script).running() as server:
        await asyncio.gather(*(client.fetch("GET", server.url, timeout_ms=20_000) for _ in range(3)))
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", server.url, timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.CLOSED
        assert len(server.requests) == 5
        assert server.connections == 4


async def test_no_retry_after_the_first_byte_of_an_answer(client: HttpClient) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.request()
        await peer.say(b"H")

    async with serving(script).running() as server:
        await client.fetch("GET", server.url, timeout_ms=20_000)
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", server.url, timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.CLOSED
        assert server.connections == 1


async def test_a_fresh_connection_closed_without_an_answer_is_an_error(client: HttpClient) -> None:
    async with serving(once_then_close()).running() as server:
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", server.url, timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.CLOSED
        assert server.connections == 1


@pytest.mark.parametrize("part", [b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"])
async def test_an_answer_cut_short_is_an_error(client: HttpClient, part: bytes) -> None:
    async with serving(once_then_close(part)).running() as server:
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", server.url, timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.CLOSED


async def test_a_chunked_answer_cut_short_is_an_error(client: HttpClient) -> None:
    part = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"
    async with serving(once_then_close(part)).running() as server:
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", server.url, timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.CLOSED


async def test_idle_connections_are_closed_in_time(make_client: MakeClient) -> None:
    client = make_client(idle_timeout_ms=60)
    closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.closed()
        closed.set()

    async with serving(script).running() as server:
        await client.fetch("GET", server.url, timeout_ms=20_000)
        assert client.connections == 1
        await asyncio.wait_for(closed.wait(), 20)
        assert client.connections == 0
        await client.fetch("GET", server.url, timeout_ms=20_000)


async def test_a_server_that_closes_idle_connections_is_no_error(client: HttpClient) -> None:
    async with serving(once_then_close(OK)).running() as server:
        for number in range(1, 30):
            response = await client.fetch("GET", server.url, timeout_ms=20_000)
            assert response.body == b"ok"
            assert server.connections == number
