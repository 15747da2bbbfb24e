"""Attacks by requests of HTTP/1, and by slow ones of both ports."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Final

from benchmarks.scenarios.attacks.client import HEAD, PIECE, Victim, again, at_once, connected, once, send
from twophase.core.limits import BODY_BYTES_MAX, PAYLOAD_BYTES_MAX
from twophase.grpc_server.http2 import frames

_BODIES: Final = 60
_STEPS: Final = 120_000
_HALF_HEADS: Final = 4_000
_DRIPPING: Final = 500
_DRIP_S: Final = 0.25
_WITHIN_BOUNDS: Final = 40
_UNREAD: Final = 400
_LARGE: Final = "x" * (PAYLOAD_BYTES_MAX.value - 1_000)


async def unfinished_bodies(victim: Victim) -> None:
    """Many connections hold a body of 4 MiB that lacks its end."""
    request = HEAD % (b"submit", BODY_BYTES_MAX.value) + bytes(BODY_BYTES_MAX.value - 1)
    await at_once(_BODIES, lambda: send(victim.http, [request]))


async def refused_requests(victim: Victim) -> None:
    """One connection pipelines requests that are refused."""
    piece = (HEAD % (b"submit", 2) + b"{}") * (PIECE // 70)
    await again(lambda: send(victim.http, itertools.repeat(piece)))


async def requests_of_forty_connections(victim: Victim) -> None:
    """Forty connections pipeline requests that are served, each within its bounds."""
    piece = b"GET /api/dtmsvr/newGid HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 60
    await at_once(_WITHIN_BOUNDS, lambda: send(victim.http, itertools.repeat(piece)))


async def messages_of_forty_connections(victim: Victim) -> None:
    """Forty connections pipeline prepares of new messages."""

    def pieces(first: int) -> Iterator[bytes]:
        for at in itertools.count():
            bodies = (b'{"gid":"flood-%d-%d-%d","trans_type":"msg"}' % (first, at, each) for each in range(100))
            yield b"".join(HEAD % (b"prepare", len(body)) + body for body in bodies)

    firsts = itertools.count()
    await at_once(_WITHIN_BOUNDS, lambda: send(victim.http, pieces(next(firsts))))


async def upgrades(victim: Victim) -> None:
    """One connection pipelines requests that offer another protocol."""
    head = b"GET /api/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    await again(lambda: send(victim.http, itertools.repeat(head * (PIECE // len(head)))))


async def many_steps(victim: Victim) -> None:
    """One connection sends bodies of nearly 4 MiB with 120 000 branches."""
    steps = [{"action": "http://a/b"}] * _STEPS
    body = json.dumps({"gid": "flood", "trans_type": "msg", "steps": steps, "payloads": []}).encode()
    assert len(body) <= BODY_BYTES_MAX.value
    await again(lambda: send(victim.http, itertools.repeat(HEAD % (b"submit", len(body)) + body)))


async def unread_answers(victim: Victim) -> None:
    """Four hundred connections ask for a message of 3 MiB, and do not read it."""
    steps = [{"action": "http://127.0.0.1:9/in"}] * 3
    fields = {"gid": "flood", "trans_type": "msg", "delay": 86_400, "steps": steps, "payloads": [_LARGE] * 3}
    await once(victim, [victim.request("POST", "/api/dtmsvr/submit", json.dumps(fields).encode())])
    query = victim.request("GET", "/api/dtmsvr/query?gid=flood")

    async def ask() -> None:
        async with connected(victim.http) as (_, writer):
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of both directions
            writer.write(query)
            await asyncio.Event().wait()

    await at_once(_UNREAD, ask)


async def half_heads(victim: Victim) -> None:
    """Four thousand connections hold half a head."""
    await at_once(_HALF_HEADS, lambda: send(victim.http, [b"GET /api/ping HT"]))


async def drips(victim: Victim) -> None:
    """A thousand connections send a request without end, four bytes a second.

    Half of them are at each port.
    """
    lines = itertools.cycle(b"X-Drip: 1\r\n")
    request = [b"GET /api/ping HTTP/1.1\r\nHost: 127.0.0.1\r\n"]
    header = frames.frame(frames.HEADERS, 0, 1, frames.field(b":method", b"POST"))
    call = [frames.PREFACE + frames.settings({}) + header[:-1]]
    await asyncio.gather(
        at_once(_DRIPPING, lambda: send(victim.http, itertools.chain(request, _bytes(lines)), _DRIP_S)),
        at_once(_DRIPPING, lambda: send(victim.grpc, itertools.chain(call, _bytes(header * 1_000)), _DRIP_S)),
    )


def _bytes(some: Iterable[int]) -> Iterator[bytes]:
    return (bytes([one]) for one in some)
