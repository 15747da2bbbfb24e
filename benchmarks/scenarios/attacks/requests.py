"""Attacks by requests of HTTP/1."""

from __future__ import annotations

import itertools
import json
from typing import Final

from benchmarks.scenarios.attacks.client import HEAD, PIECE, again, at_once, send
from twophase.core.limits import BODY_BYTES_MAX

_BODIES: Final = 60
_STEPS: Final = 120_000
_HALF_HEADS: Final = 4_000


async def unfinished_bodies(http: int, _grpc: int) -> None:
    """Many connections hold a body of 4 MiB that lacks its end."""
    request = HEAD % (b"submit", BODY_BYTES_MAX.value) + bytes(BODY_BYTES_MAX.value - 1)
    await at_once(_BODIES, lambda: send(http, [request]))


async def refused_requests(http: int, _grpc: int) -> None:
    """One connection pipelines requests that are refused."""
    piece = (HEAD % (b"submit", 2) + b"{}") * (PIECE // 70)
    await again(lambda: send(http, itertools.repeat(piece)))


async def upgrades(http: int, _grpc: int) -> None:
    """One connection pipelines requests that offer another protocol."""
    head = b"GET /api/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    await again(lambda: send(http, itertools.repeat(head * (PIECE // len(head)))))


async def many_steps(http: int, _grpc: int) -> None:
    """One connection sends bodies of nearly 4 MiB with 120 000 branches."""
    steps = [{"action": "http://a/b"}] * _STEPS
    body = json.dumps({"gid": "flood", "trans_type": "msg", "steps": steps, "payloads": []}).encode()
    assert len(body) <= BODY_BYTES_MAX.value
    await again(lambda: send(http, itertools.repeat(HEAD % (b"submit", len(body)) + body)))


async def half_heads(http: int, _grpc: int) -> None:
    """Four thousand connections hold half a head."""
    await at_once(_HALF_HEADS, lambda: send(http, [b"GET /api/ping HT"]))
