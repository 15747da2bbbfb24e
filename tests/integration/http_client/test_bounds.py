"""Connections and queues are bounded and in order.

A host that hangs delays no other.
"""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from benchmarks.servers.ports import nobodys_port
from tests.integration.http_client.conftest import MakeClient
from tests.support.scripted_server import OK, Peer, answering, serving
from tests.support.waiting import until
from twophase.http_client.client import HttpClient
from twophase.http_client.outcome import HttpError, HttpErrorKind, HttpResponse, Outcome


class Hanging:
    """A script that answers only once released, and counts the requests that it holds."""

    def __init__(self) -> None:
        self.held = asyncio.Semaphore(0)
        self.release = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        while True:
            await peer.request()
            self.held.release()
            await self.release.wait()
            await peer.say(OK)

    async def holds(self, requests: int) -> None:
        for _ in range(requests):
            await asyncio.wait_for(self.held.acquire(), 20)


def _fetch(client: HttpClient, url: str, timeout_ms: int = 30_000) -> asyncio.Task[HttpResponse]:
    return asyncio.create_task(client.fetch("GET", url, timeout_ms=timeout_ms))


async def test_a_host_gets_no_more_connections_than_allowed(make_client: MakeClient) -> None:
    client = make_client(connections_per_host=3)
    hanging = Hanging()
    async with serving(hanging).running() as server:
        tasks = [_fetch(client, server.url) for _ in range(10)]
        await hanging.holds(3)
        assert client.under_way == {server.url: 10}
        assert (server.connections, client.connections) == (3, 3)
        hanging.release.set()
        await asyncio.gather(*tasks)
        assert server.connections == 3
        assert not client.under_way


async def test_waiting_calls_are_served_in_order(make_client: MakeClient) -> None:
    client = make_client(connections_per_host=1)
    async with serving(answering(OK)).running() as server:
        await asyncio.gather(*(client.fetch("GET", f"{server.url}/{n}", timeout_ms=20_000) for n in range(20)))
        assert [head.split()[1] for head, _ in server.requests] == [f"/{n}".encode() for n in range(20)]


async def test_too_many_waiting_calls_are_refused(make_client: MakeClient) -> None:
    client = make_client(connections_per_host=2, queue_per_host=3)
    hanging = Hanging()
    async with serving(hanging).running() as server:
        tasks = [_fetch(client, server.url) for _ in range(2)]
        await hanging.holds(2)
        tasks += [_fetch(client, server.url) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", server.url, timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.OVERLOADED
        hanging.release.set()
        assert len(await asyncio.gather(*tasks)) == 5


async def test_a_burst_takes_connections_and_queue_at_once(make_client: MakeClient) -> None:
    client = make_client(connections_per_host=2, queue_per_host=3)
    async with serving(answering(OK)).running() as server:
        calls = (client.fetch("GET", server.url, timeout_ms=20_000) for _ in range(8))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        refused = [outcome.kind for outcome in outcomes if isinstance(outcome, HttpError)]
        assert refused == [HttpErrorKind.OVERLOADED] * 3


async def test_a_hanging_host_takes_nothing_from_others(make_client: MakeClient) -> None:
    client = make_client(connections_per_host=4, connections_max=8)
    hanging = Hanging()
    async with serving(hanging).running() as dead, serving(answering(OK)).running() as alive:
        stuck = [_fetch(client, dead.url) for _ in range(100)]
        await hanging.holds(4)
        tasks = [_fetch(client, alive.url) for _ in range(50)]
        assert len(await asyncio.wait_for(asyncio.gather(*tasks), 20)) == 50
        assert not any(task.done() for task in stuck)
        hanging.release.set()
        await asyncio.gather(*stuck)


async def test_hosts_that_hang_leave_permits_for_hosts_without_a_connection(make_client: MakeClient) -> None:
    client = make_client(connections_per_host=8, connections_max=16)
    hanging = Hanging()
    async with (
        serving(hanging).running() as dead,
        serving(hanging).running() as dead_too,
        serving(answering(OK)).running() as alive,
    ):
        stuck = [_fetch(client, url) for url in (dead.url, dead_too.url) for _ in range(20)]
        await hanging.holds(14)  # an eighth of the permits is kept
        assert client.connections == 14
        tasks = [_fetch(client, alive.url) for _ in range(10)]
        assert len(await asyncio.wait_for(asyncio.gather(*tasks), 20)) == 10
        hanging.release.set()
        await asyncio.gather(*stuck)
        assert client.connections <= 16


async def test_an_idle_connection_gives_its_permit_to_a_host_that_needs_one(make_client: MakeClient) -> None:
    client = make_client(connections_max=1)
    async with serving(answering(OK)).running() as one, serving(answering(OK)).running() as two:
        for _ in range(3):
            await client.fetch("GET", one.url, timeout_ms=20_000)
            await client.fetch("GET", two.url, timeout_ms=20_000)
        assert (one.connections, two.connections) == (3, 3)


async def test_hosts_take_turns_when_permits_are_scarce(make_client: MakeClient) -> None:
    client = make_client(connections_max=1)
    async with serving(answering(OK)).running() as one, serving(answering(OK)).running() as two:
        tasks = [_fetch(client, url) for _ in range(20) for url in (one.url, two.url)]
        assert len(await asyncio.wait_for(asyncio.gather(*tasks), 60)) == 40


async def test_every_waiting_call_of_an_unreachable_host_ends(make_client: MakeClient) -> None:
    client = make_client(connections_per_host=2)
    url = f"http://127.0.0.1:{nobodys_port()}"
    calls = (client.fetch("GET", url, timeout_ms=30_000) for _ in range(20))
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
    assert [outcome.kind for outcome in outcomes if isinstance(outcome, HttpError)] == [HttpErrorKind.CONNECT] * 20
    assert client.connections == 0


async def test_closing_ends_every_call_exactly_once(make_client: MakeClient) -> None:
    client = make_client(connections_per_host=2)
    hanging = Hanging()
    outcomes: list[Outcome] = []
    async with serving(hanging).running() as server:
        for _ in range(5):
            client.request("GET", server.url, (), b"", 60_000, outcomes.append)
        await hanging.holds(2)
        client.request("GET", "http://127.0.0.1:1/", (), b"", 60_000, outcomes.append)  # connecting
        await client.close()
        assert [getattr(outcome, "kind", None) for outcome in outcomes] == [HttpErrorKind.CLOSED] * 6
        hanging.release.set()
        await client.close()
        client.request("GET", server.url, (), b"", 60_000, outcomes.append)
        assert len(outcomes) == 6, "never inside request"
        await asyncio.sleep(0)
        assert len(outcomes) == 7
        assert client.connections == 0


async def test_a_call_made_while_closing_is_refused(make_client: MakeClient) -> None:
    client = make_client()
    hanging = Hanging()
    refused = asyncio.get_running_loop().create_future()
    async with serving(hanging).running() as server:

        def again(outcome: Outcome) -> None:
            client.request("GET", server.url, (), b"", 5000, refused.set_result)

        client.request("GET", server.url, (), b"", 60_000, again)
        await hanging.holds(1)
        await client.close()
        outcome = await asyncio.wait_for(refused, 20)
        assert isinstance(outcome, HttpError)
        assert outcome.kind is HttpErrorKind.CLOSED


@pytest.mark.parametrize(
    ("method", "url", "headers", "kind"),
    [
        ("GET", "ftp://127.0.0.1/", (), HttpErrorKind.BAD_URL),
        ("GET", "http://user:secret@127.0.0.1/", (), HttpErrorKind.BAD_URL),
        ("GET", "http://127.0.0.1/\r\nX: y", (), HttpErrorKind.BAD_URL),
        ("GET", "http://127.0.0.1/?a=\r\nX: y", (), HttpErrorKind.BAD_URL),
        ("GET", "http://127.0.0.1/?a=\ud800", (), HttpErrorKind.BAD_URL),
        ("GET", "http://127.0.0.1/", [("X\r\nY", "z")], HttpErrorKind.BAD_HEADER),
        ("GET", "http://127.0.0.1/", [("X", "y\r\nContent-Length: 0")], HttpErrorKind.BAD_HEADER),
        ("GET", "http://127.0.0.1/", [("X", "y\nz")], HttpErrorKind.BAD_HEADER),
        ("GET", "http://127.0.0.1/", [("Transfer-Encoding", "chunked")], HttpErrorKind.BAD_HEADER),
        ("GET /x HTTP/1.1\r\nX:", "http://127.0.0.1/", (), HttpErrorKind.BAD_HEADER),
    ],
)
async def test_what_cannot_be_sent_safely_is_refused_before_connecting(
    client: HttpClient, method: str, url: str, headers: list[tuple[str, str]], kind: HttpErrorKind
) -> None:
    outcomes: list[Outcome] = []
    client.request(method, url, headers, b"", 5000, outcomes.append)
    assert outcomes == []
    await asyncio.sleep(0)
    (outcome,) = outcomes
    assert isinstance(outcome, HttpError)
    assert outcome.kind is kind
    assert "secret" not in str(outcome)
    assert client.connections == 0


async def test_connections_that_are_gone_are_forgotten(make_client: MakeClient) -> None:
    client = make_client()
    hanging, gone = Hanging(), asyncio.Semaphore(0)

    async def script(peer: Peer) -> None:
        if peer.number == 1:
            await hanging(peer)
        await peer.request()
        await peer.say(OK)
        peer.close()
        gone.release()

    async with serving(script).running() as server:
        stuck = _fetch(client, server.url)
        await hanging.holds(1)
        pool = client._engine[2].known[server.url] if client._engine else None
        assert pool is not None
        for _ in range(10):
            await client.fetch("GET", server.url, timeout_ms=20_000)
            await asyncio.wait_for(gone.acquire(), 20)
        await until(lambda: client.connections <= 1)
        assert (len(pool._connections), len(pool._idle), client.under_way) == (1, 0, {server.url: 1})
        hanging.release.set()
        await stuck


async def test_a_body_waits_in_memory_once_however_slowly_the_peer_reads(make_client: MakeClient) -> None:
    client = make_client()
    done = asyncio.Event()

    async def script(peer: Peer) -> None:
        await done.wait()

    async with serving(script).running() as server:
        call = asyncio.create_task(client.fetch("POST", server.url, body=bytes(64 * 1024 * 1024), timeout_ms=30_000))
        async with asyncio.timeout(20):
            while not (client._engine and (pool := client._engine[2].known[server.url])._connections):
                await asyncio.sleep(0.001)
        (connection,) = pool._connections
        assert connection._transport is not None
        await until(lambda: connection._paused)
        assert connection._transport.get_write_buffer_size() <= 1024 * 1024
        call.cancel()
        await asyncio.wait([call])
        done.set()


async def test_a_resolver_that_hangs_is_asked_once_and_delays_no_other_host(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(connect_timeout_ms=3_000)
    asked: list[str] = []

    released = threading.Event()

    def resolve(host: str, port: object, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        released.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with serving(answering(OK)).running() as alive:
        stuck = [_fetch(client, "http://bank-c.example/") for _ in range(10)]
        for _ in range(5):
            await client.fetch("GET", alive.url, timeout_ms=20_000)
        outcomes = await asyncio.gather(*stuck, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == [
        "connect: http://bank-c.example:80: the name was not resolved in time"
    ] * 10
    released.set()
    assert asked == ["bank-c.example"]


async def test_an_unforeseen_failure_still_ends_the_call(make_client: MakeClient) -> None:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    client = make_client()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twophase.http_client.dial.Dialer.dial", _unforeseen)
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", "http://127.0.0.1/", timeout_ms=20_000)
    assert str(caught.value) == "connect: unexpected ZeroDivisionError"
    assert len(reported) == 1
    assert client.connections == 0


async def _unforeseen(self: object, make: object) -> None:
    raise ZeroDivisionError
