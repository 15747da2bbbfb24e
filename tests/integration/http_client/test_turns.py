"""Calls are signed and sent in the turn after that in which they began."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.http_client.conftest import MakeClient
from tests.support.scripted_server import OK, Peer, answering, serving
from twophase.http_client.client import HttpClient
from twophase.http_client.outcome import HttpError, HttpErrorKind, HttpResponse, Outcome


class Signer:
    """Signs with the number of the call, and notes what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str, bytes]] = []

    def sign(self, method: str, target: str, body: bytes) -> bytes:
        self.given.append((method, target, body))
        return b"x-signature: %d\r\n" % len(self.given)


def refuse(method: str, target: str, body: bytes) -> bytes:
    raise ValueError(f"{method} {target} {body!r}")


async def test_the_calls_of_a_turn_are_signed_together_in_the_next_one(client: HttpClient) -> None:
    signer = Signer()
    outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
    async with serving(answering(OK)).running() as server:
        for number in range(3):
            url, body = f"{server.url}/in?at=a b", b"%d" % number
            client.request("POST", url, (), body, 20_000, outcomes.put_nowait, 0, "gid=g", signer.sign)
        assert signer.given == []
        assert client.under_way == {server.url: 3}
        await asyncio.sleep(0)
        assert signer.given == [("POST", "/in?at=a%20b&gid=g", b"%d" % number) for number in range(3)]
        assert client.under_way == {server.url: 3}
        for _ in range(3):
            assert isinstance(await outcomes.get(), HttpResponse)
        received = {(body, head.split(b"\r\n")[-3]) for head, body in server.requests}
        assert received == {(b"0", b"x-signature: 1"), (b"1", b"x-signature: 2"), (b"2", b"x-signature: 3")}
        assert all(head.startswith(b"POST /in?at=a%20b&gid=g HTTP/1.1\r\n") for head, _ in server.requests)


async def test_a_call_that_cannot_be_signed_ends_alone(client: HttpClient) -> None:
    found: list[asyncio.Future[Outcome]] = [asyncio.get_running_loop().create_future() for _ in range(3)]
    async with serving(answering(OK)).running() as server:
        for future, sign in zip(found, (Signer().sign, refuse, Signer().sign), strict=True):
            client.request("GET", server.url, (), b"", 20_000, future.set_result, 0, "", sign)
        first, second, third = await asyncio.gather(*found)
        assert len(server.requests) == 2
    assert isinstance(first, HttpResponse)
    assert isinstance(third, HttpResponse)
    assert str(second) == "bad_header: no signature: ValueError"


async def test_a_call_that_has_ended_before_its_signature_is_not_sent(client: HttpClient) -> None:
    signer, outcomes = Signer(), list[Outcome]()
    async with serving(answering(OK)).running() as server:
        gone = client.request("GET", f"{server.url}/gone", (), b"", 20_000, outcomes.append, 0, "", signer.sign)
        late = client.request("GET", f"{server.url}/late", (), b"", 20_000, outcomes.append, 0, "", signer.sign)
        assert gone is not None
        assert late is not None
        gone.cancel()
        late.on_timeout()
        assert client.under_way == {}
        await client.fetch("GET", f"{server.url}/after", timeout_ms=20_000)
        assert [head.split(b" ")[1] for head, _ in server.requests] == [b"/after"]
    assert [str(outcome) for outcome in outcomes] == ["timeout: the time was up while waiting for its turn"]


async def test_a_call_whose_outcome_nobody_wants_is_sent_all_the_same(client: HttpClient) -> None:
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()

    async with serving(script).running() as server:
        call = client.request("GET", server.url, (), b"", 20_000, lambda _: None, 0, "", Signer().sign)
        assert call is not None
        call.disown()
        async with asyncio.timeout(60):
            await arrived.wait()


@pytest.mark.parametrize("turns", [0, 1])
async def test_closing_ends_the_calls_that_wait_for_a_signature(make_client: MakeClient, turns: int) -> None:
    client, signer = make_client(), Signer()
    outcomes: list[Outcome] = []
    async with serving(answering(OK)).running() as server:
        for _ in range(3):
            client.request("GET", server.url, (), b"", 20_000, outcomes.append, 0, "", signer.sign)
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.close()
        await asyncio.sleep(0)
        assert len(signer.given) == 3 * turns
        assert client.connections == 0
    assert [outcome.kind for outcome in outcomes if isinstance(outcome, HttpError)] == [HttpErrorKind.CLOSED] * 3
