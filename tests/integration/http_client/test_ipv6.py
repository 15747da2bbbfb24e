"""IPv6 literals, on machines that have IPv6."""

from __future__ import annotations

import socket

from tests.servers.missing import not_to_be_had
from tests.support.scripted_server import OK, answering, serving
from twophase.http_client.client import HttpClient


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_an_ipv6_literal_is_called_and_named_in_brackets(client: HttpClient) -> None:
    if not _has_ipv6():
        not_to_be_had("a call to an IPv6 literal", "this machine has no IPv6 loopback; unit tests parse them")
    async with serving(answering(OK), "::1").running() as server:
        await client.fetch("GET", server.url, timeout_ms=20_000)
        assert f"host: [::1]:{server.port}\r\n".encode() in server.requests[0][0]
