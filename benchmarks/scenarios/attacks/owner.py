"""Attacks by a client that holds a token, on what it may use."""

from __future__ import annotations

import itertools
import json
from typing import Any, Final

from benchmarks.scenarios.attacks.calls import answering_receiver
from benchmarks.scenarios.attacks.client import Victim, ask, message, once, produce
from twophase.core.limits import PAYLOAD_BYTES_MAX
from twophase.core.many import MESSAGES_MAX, SUBMIT_PATH

_NOBODY: Final = [{"action": "http://127.0.0.1:9/in"}]
_LATER_S: Final = 30 * 86_400
_LARGE: Final = "x" * (PAYLOAD_BYTES_MAX.value - 1_000)
_LARGE_BRANCHES: Final = 3
_READ: Final = 5_000
_READERS: Final = 32
_SENDERS: Final = 64


def _later(payload: str = "{}") -> dict[str, Any]:
    """Return the fields of a message that is due in a month."""
    return {"steps": _NOBODY, "payloads": [payload], "delay_ms": _LATER_S * 1_000}


async def stored_bytes(victim: Victim) -> None:
    """Submit messages of nearly 1 MiB that are due in a month."""
    await produce(victim, "submit", lambda _number: _later(_LARGE))


async def large_bodies(victim: Victim) -> None:
    """Submit messages with three payloads of nearly 1 MiB, to a receiver that answers."""
    async with answering_receiver() as url:
        fields = {"steps": [{"action": url}] * _LARGE_BRANCHES, "payloads": [_LARGE] * _LARGE_BRANCHES}
        await produce(victim, "submit", lambda _number: fields)


async def many_at_once(victim: Victim) -> None:
    """Submit five hundred messages in each request.

    Together the connections send more changes than may wait for the store.
    """
    await ask(victim, (_many(victim, number) for number in itertools.count()), _SENDERS)


def _many(victim: Victim, number: int) -> bytes:
    numbers = range(number * MESSAGES_MAX, (number + 1) * MESSAGES_MAX)
    body = json.dumps({"messages": [message(one, _later()) for one in numbers]}).encode()
    return victim.request("POST", SUBMIT_PATH, body)


async def pages_and_queries(victim: Victim) -> None:
    """Read pages of a thousand messages, and single ones, on thirty-two connections."""
    await once(victim, (_many(victim, number) for number in range(_READ // MESSAGES_MAX)))
    queries = (f"/api/dtmsvr/query?gid=flood-{number}" for number in itertools.cycle(range(_READ)))
    pages = itertools.cycle(("/api/twophase/messages?limit=1000", "/api/dtmsvr/all?limit=1000"))
    paths = itertools.chain.from_iterable(zip(queries, pages, strict=False))
    await ask(victim, (victim.request("GET", path) for path in paths), _READERS)


async def decided_again(victim: Victim) -> None:
    """Submit and abort one message again and again, which is finished long since."""
    async with answering_receiver() as url:
        body = json.dumps(message(0, {"steps": [{"action": url}], "payloads": ["{}"]})).encode()
        requests = [victim.request("POST", f"/api/dtmsvr/{what}", body) for what in ("submit", "abort")]
        await ask(victim, itertools.cycle(requests), _READERS)
