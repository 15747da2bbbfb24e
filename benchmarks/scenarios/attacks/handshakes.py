"""Attacks by TLS handshakes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from benchmarks.scenarios.attacks.client import ADDRESS, SERVER, Victim, at_once, send

_HANDSHAKES: Final = 3_000
_CLIENTS: Final = 32


def _hello() -> bytes:
    """Return the first message of a client's handshake."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=SERVER)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake waits for the server")


async def unfinished(victim: Victim) -> None:
    """Three thousand connections begin a handshake and send nothing more."""
    hello = _hello()
    await at_once(_HANDSHAKES, lambda: send(victim.http, [hello]))


async def finished(victim: Victim) -> None:
    """Thirty-two clients finish a handshake and hang up, again and again.

    Half of them are at each port.
    """
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def client(port: int) -> Callable[[], Awaitable[None]]:
        async def play() -> None:
            _, writer = await asyncio.open_connection(SERVER, port, ssl=trusting, local_addr=(ADDRESS, 0))
            writer.transport.abort()

        return play

    await asyncio.gather(*(at_once(_CLIENTS // 2, client(port)) for port in (victim.http, victim.grpc)))
