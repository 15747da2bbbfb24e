"""HTTPS: the certificate must be trusted and name the host.

Otherwise not a byte of the request is sent.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import pytest
import trustme

from tests.integration.http_client.conftest import MakeClient
from tests.support.scripted_server import OK, Peer, answering, serving
from twophase.http_client.outcome import HttpError, HttpErrorKind


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def certified(authority: trustme.CA) -> Callable[..., ssl.SSLContext]:
    """Make a server's TLS context for the given names."""

    def context(*names: str) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names).configure_cert(made)
        return made

    return context


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_calls_share_a_connection_as_without_tls(
    make_client: MakeClient, certified: Callable[..., ssl.SSLContext], trusting: ssl.SSLContext
) -> None:
    client = make_client(ssl_context=trusting)
    async with serving(answering(OK)).running(certified("127.0.0.1")) as server:
        for _ in range(3):
            assert (await client.fetch("POST", server.url, body=b"{}", timeout_ms=20_000)).body == b"ok"
        assert server.connections == 1


async def test_a_large_request_and_answer_arrive_whole(
    make_client: MakeClient, certified: Callable[..., ssl.SSLContext], trusting: ssl.SSLContext
) -> None:
    client = make_client(ssl_context=trusting)
    body = bytes(range(256)) * 3000

    async def script(peer: Peer) -> None:
        _, received = await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(received), received)
        await peer.closed()

    async with serving(script).running(certified("127.0.0.1")) as server:
        assert (await client.fetch("POST", server.url, body=body, timeout_ms=20_000)).body == body


@pytest.mark.parametrize(
    ("name", "trusted"), [("127.0.0.1", False), ("bank-c.example", True)], ids=["unknown authority", "other name"]
)
async def test_a_server_that_cannot_prove_who_it_is_gets_nothing(
    make_client: MakeClient,
    certified: Callable[..., ssl.SSLContext],
    trusting: ssl.SSLContext,
    name: str,
    trusted: bool,
) -> None:
    client = make_client(ssl_context=trusting if trusted else None)
    async with serving(answering(OK)).running(certified(name)) as server:
        with pytest.raises(HttpError) as caught:
            await client.fetch("POST", server.url, body=b"{}", timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.TLS
        assert "certificate is not trusted" in str(caught.value)
        assert server.requests == []
        assert client.connections == 0


async def test_a_server_without_tls_is_a_failure_to_connect(make_client: MakeClient, trusting: ssl.SSLContext) -> None:
    async def script(peer: Peer) -> None:
        await peer.say(OK)
        await peer.closed()

    client = make_client(ssl_context=trusting)
    async with serving(script).running() as server:
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", server.url.replace("http:", "https:"), timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.TLS


async def test_a_handshake_that_never_ends_is_given_up(make_client: MakeClient, trusting: ssl.SSLContext) -> None:
    dropped = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.closed()
        dropped.set()

    client = make_client(ssl_context=trusting, connect_timeout_ms=150)
    async with serving(script).running() as server:
        with pytest.raises(HttpError) as caught:
            await client.fetch("GET", server.url.replace("http:", "https:"), timeout_ms=20_000)
        assert caught.value.kind is HttpErrorKind.CONNECT
        await asyncio.wait_for(dropped.wait(), 20)


async def test_closing_drops_connections_that_speak_tls(
    make_client: MakeClient, certified: Callable[..., ssl.SSLContext], trusting: ssl.SSLContext
) -> None:
    client = make_client(ssl_context=trusting)
    async with serving(answering(OK)).running(certified("127.0.0.1")) as server:
        await client.fetch("GET", server.url, timeout_ms=20_000)
        await asyncio.wait_for(client.close(), 20)
        assert client.connections == 0
