"""The time of a call is bounded wherever it passes.

It may pass in connecting, waiting, writing or reading.
"""

from __future__ import annotations

import asyncio
import socket

import pytest

from benchmarks.servers.ports import nobodys_port
from tests.integration.http_client.conftest import MakeClient
from tests.support.scripted_server import OK, Peer, answering, serving
from twophase.http_client.client import HttpClient
from twophase.http_client.outcome import HttpError, HttpErrorKind, Outcome


async def _error(client: HttpClient, url: str, *, body: bytes = b"", timeout_ms: int) -> HttpError:
    with pytest.raises(HttpError) as caught:
        await asyncio.wait_for(client.fetch("POST", url, body=body, timeout_ms=timeout_ms), 30)
    return caught.value


async def test_a_server_that_never_answers(client: HttpClient) -> None:
    dropped = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.request()
        await peer.closed()
        dropped.set()

    async with serving(script).running() as server:
        await client.fetch(
            "GET", server.url, timeout_ms=20_000
        )  # the connection stands: the next request is sent at once
        begun_s = asyncio.get_running_loop().time()
        error = await _error(client, server.url, timeout_ms=120)
        assert asyncio.get_running_loop().time() - begun_s >= 0.12
        assert str(error) == "timeout: the time was up while waiting for an answer"
        await asyncio.wait_for(dropped.wait(), 20)


@pytest.mark.parametrize("part", [b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"])
async def test_a_server_that_stops_in_the_middle(client: HttpClient, part: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.request()
        await peer.say(part)
        await peer.closed()

    async with serving(script).running() as server:
        await client.fetch("GET", server.url, timeout_ms=20_000)  # the connection stands: only the answer is slow
        error = await _error(client, server.url, timeout_ms=2_000)
        assert str(error) == "timeout: the time was up while waiting for the rest of the answer"


async def test_a_server_that_drips_does_not_extend_the_time(client: HttpClient) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            await peer.say(b"y")
            await asyncio.sleep(0.01)

    async with serving(script).running() as server:
        assert (await _error(client, server.url, timeout_ms=150)).kind is HttpErrorKind.TIMEOUT


async def test_a_server_that_does_not_read(client: HttpClient) -> None:
    done = asyncio.Event()

    async def script(peer: Peer) -> None:
        await done.wait()

    async with serving(script).running() as server:
        error = await _error(client, server.url, body=bytes(64 * 1024 * 1024), timeout_ms=3_000)
        assert str(error) == "timeout: the time was up while waiting for the peer to read the request"
        done.set()


async def test_a_listener_that_accepts_no_connection(make_client: MakeClient) -> None:
    """A full backlog swallows connection requests.

    A host behind a silent firewall does the same.
    """
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        where = listener.getsockname()
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(where)
        url = f"http://127.0.0.1:{where[1]}/"
        patient = make_client(connect_timeout_ms=60_000)
        assert (await _error(patient, url, timeout_ms=100)).kind is HttpErrorKind.TIMEOUT
        hasty = make_client(connect_timeout_ms=100)
        error = await _error(hasty, url, timeout_ms=60_000)
        assert str(error) == f"connect: http://127.0.0.1:{where[1]}: no connection in time"
        assert hasty.connections == 0


async def test_a_call_that_waits_for_a_connection(make_client: MakeClient) -> None:
    client = make_client(connections_per_host=1)
    asked, release = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await release.wait()
        await peer.say(OK)
        await peer.request()
        await peer.say(OK)

    async with serving(script).running() as server:
        first = asyncio.create_task(client.fetch("GET", server.url, timeout_ms=20_000))
        await asyncio.wait_for(asked.wait(), 20)
        error = await _error(client, server.url, timeout_ms=100)
        assert error.kind is HttpErrorKind.TIMEOUT
        release.set()
        assert (await first).status == 200
        await client.fetch("GET", server.url, timeout_ms=20_000)
        assert len(server.requests) == 2  # the call that was given up was never sent


async def test_a_port_without_a_listener(client: HttpClient) -> None:
    port = nobodys_port()
    error = await _error(client, f"http://127.0.0.1:{port}/secret?gid=secret", timeout_ms=20_000)
    assert error.kind is HttpErrorKind.CONNECT
    assert f"http://127.0.0.1:{port}: " in str(error)
    assert "secret" not in str(error)
    assert client.connections == 0


async def test_an_unknown_name(client: HttpClient) -> None:
    error = await _error(client, "http://no-such-host.invalid/", timeout_ms=20_000)
    assert error.kind is HttpErrorKind.CONNECT


async def test_the_next_address_is_tried_when_the_first_refuses(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(answering(OK)).running() as server:

        def resolve(host: str, port: object, **_: object) -> list[tuple[object, ...]]:
            kinds = socket.SOCK_STREAM, 6, ""
            return [(socket.AF_INET, *kinds, (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        response = await client.fetch("GET", f"http://bank-b.example:{server.port}/", timeout_ms=20_000)
        assert response.status == 200


async def test_cancelling_a_fetch_drops_the_call(client: HttpClient) -> None:
    asked, dropped = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.closed()
        dropped.set()

    async with serving(script).running() as server:
        task = asyncio.create_task(client.fetch("GET", server.url, timeout_ms=60_000))
        await asyncio.wait_for(asked.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(dropped.wait(), 20)
        assert not client.under_way


async def test_a_callback_that_raises_breaks_nothing() -> None:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    client = HttpClient()
    mistake = ZeroDivisionError()
    called = asyncio.Event()

    def raises(outcome: Outcome) -> None:
        called.set()
        raise mistake

    async with serving(answering(OK)).running() as server:
        client.request("GET", server.url, (), b"", 20_000, raises)
        await asyncio.wait_for(called.wait(), 20)
        await client.fetch("GET", server.url, timeout_ms=20_000)
        assert server.connections == 1
        await client.close()
    assert reported == [mistake]
