"""Answers that clients do not read count in the budget of bytes.

The next ones are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.server.running import Running, running
from tests.support.fake_coordinator import get, post
from tests.support.queue_api import queue_api_of
from tests.support.waiting import until
from twophase.core.many import SUBMIT_PATH
from twophase.core.queue_api import RECEIVE_PATH
from twophase.http_client.byte_budget import FREE_BYTES

READERS_MAX = 40
"""Each asks for more than 4 MB; the sockets' own buffers hold a part of it."""
LARGE = "x" * 1_000_000


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, bytes_under_way_max=8 << 20) as server:
        yield server


class Unread:
    """Clients that read the first line of an answer, and nothing more."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def ask(self, request: bytes) -> int:
        """Return the status."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1_024)
        self._writers.append(writer)
        writer.write(request)
        return int((await reader.readline()).split()[1])

    async def close(self) -> None:
        """Go, one and all."""
        for writer in self._writers:
            writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(*(writer.wait_closed() for writer in self._writers))


async def test_answers_to_queries_are_refused_beyond_the_budget(server: Running) -> None:
    async with queue_api_of(server.port) as api:
        fields = {"gid": "large", "trans_type": "msg", "delay": 3_600}
        steps = [{"action": "http://127.0.0.1:9/in"}] * 4
        await api.done("/api/dtmsvr/submit", **fields, steps=steps, payloads=[LARGE] * 4)
    query = get("/api/dtmsvr/query?gid=large")
    unread = Unread(server.port)

    statuses = [await unread.ask(query)]
    while statuses[-1] == 200 and len(statuses) < READERS_MAX:
        statuses.append(await unread.ask(query))

    assert statuses[0] == 200
    assert statuses[-1] == 503
    assert await unread.ask(get("/api/ping")) == 200, "short answers need no room"
    budget = server.server._budget
    rest = budget.account("others", share_percent=100)
    assert rest.keep(budget.bytes_max - budget.used + FREE_BYTES)
    many = [{"gid": "one", "trans_type": "msg", "delay_ms": 3_600_000, "steps": steps[:1], "payloads": ["{}"]}]
    many += [{"gid": f"refused-{number}", "trans_type": "saga"} for number in range(499)]
    assert await unread.ask(post(SUBMIT_PATH, json.dumps({"messages": many}).encode())) == 200, "one of them is stored"
    rest.release()
    await unread.close()
    await until(lambda: not budget.used)
    others = Unread(server.port)
    assert await others.ask(query) == 200
    await others.close()


async def test_messages_that_a_refused_answer_would_have_had_go_to_others(server: Running) -> None:
    async with queue_api_of(server.port) as api:
        for number in range(4):
            await api.send(f"queue://orders?id={number}", LARGE)
        unread = Unread(server.port)

        statuses = [await unread.ask(_receive("group-0"))]
        while statuses[-1] == 200 and len(statuses) < READERS_MAX:
            statuses.append(await unread.ask(_receive(f"group-{len(statuses)}")))

        assert statuses[0] == 200
        assert statuses[-1] == 503
        await unread.close()
        await until(lambda: server.server.listener.connections <= 1)
        found = await api.receive(group=f"group-{len(statuses) - 1}", wait_ms=0)
        assert [one["attempt"] for one in found] == [1] * 4


def _receive(group: str) -> bytes:
    fields = {"group": group, "topic": "orders", "client": group, "limit": 32, "lease_ms": 60_000, "wait_ms": 0}
    return post(RECEIVE_PATH, json.dumps(fields).encode())
