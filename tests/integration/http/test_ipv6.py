"""IPv6 literals, where the machine has IPv6 at all."""

from __future__ import annotations

import socket

import pytest

from tests.integration.http.scripted import OK, answering, serving
from twophase.http import HttpClient


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback; literals are parsed in unit tests")
async def test_an_ipv6_literal_is_called_and_named_in_brackets(client: HttpClient) -> None:
    async with serving(answering(OK), "::1").running() as server:
        await client.fetch("GET", server.url, timeout_ms=5000)
        assert f"host: [::1]:{server.port}\r\n".encode() in server.requests[0][0]
