"""An attack by TLS handshakes that are never finished."""

from __future__ import annotations

import ssl
from typing import Final

from benchmarks.scenarios.attacks.client import SERVER, at_once, send

_HANDSHAKES: Final = 3_000


def _hello() -> bytes:
    """Return the first message of a client's handshake."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=SERVER)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake waits for the server")


async def unfinished(http: int, _grpc: int) -> None:
    """Three thousand connections begin a handshake and send nothing more."""
    hello = _hello()
    await at_once(_HANDSHAKES, lambda: send(http, [hello]))
