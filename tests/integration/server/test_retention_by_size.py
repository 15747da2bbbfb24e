"""A bound of bytes on a topic of a real server, which is killed while it cleans."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec

from tests.integration.server.test_queue_commands import said, shown
from tests.support.fake_coordinator import get
from tests.support.queue_api import QueueApi, queue_api_of
from tests.support.server_process import ServerProcess
from twophase.core import queue_api

MESSAGES, BODY_BYTES, KEPT = 60, 20_000, 10
PATIENCE_S = 60
HOUR_MS = 3_600_000
SETTINGS = {"TWOPHASE_RETENTION_MS": f"{2 * HOUR_MS}", "TWOPHASE_RETENTION_INTERVAL_MS": "200"}


async def started(folder: Path) -> ServerProcess:
    server = await ServerProcess.spawn("--port", "0", environment=SETTINGS, cwd=folder)
    await server.until_ready()
    return server


def age(folder: Path) -> None:
    """Let everything be stored three hours earlier.

    No two messages are of one millisecond.
    """
    with sqlite3.connect(folder / "twophase.db") as connection:
        connection.execute("update queue_entry set stored_ms = stored_ms + number - ?", (3 * HOUR_MS,))
        connection.execute("update history set finished_ms = finished_ms - ?", (3 * HOUR_MS,))
    connection.close()


async def numbers(server: ServerProcess) -> tuple[int, int]:
    """Return the first and the next number of the topic's one queue."""
    topic: dict[str, Any] = (await shown(server, "queues", "show", "orders"))["topic"]
    (part,) = topic["parts"]
    return part["first"], part["end"]


async def until_first(server: ServerProcess, least: int) -> int:
    """Wait until the first number is at least this one; return it."""
    ends_s = time.monotonic() + PATIENCE_S
    while (first := (await numbers(server))[0]) < least:
        assert time.monotonic() < ends_s, first
    return first


async def done(api: QueueApi, limit: int) -> None:
    """Acknowledge this number of messages."""
    receipts: list[str] = []
    while len(receipts) < limit:
        found = await api.receive(limit=min(32, limit - len(receipts)))
        assert found
        receipts += [one["receipt"] for one in found]
    for begin in range(0, len(receipts), 32):
        codes = await api.outcomes(queue_api.ACK_PATH, *receipts[begin : begin + 32])
        assert set(codes) == {""}, codes


async def test_a_topic_keeps_its_newest_messages_also_when_the_server_is_killed_while_it_cleans(
    tmp_path: Path,
) -> None:
    server = await started(tmp_path)
    try:
        bound = str(KEPT * BODY_BYTES)
        create = ("queues", "create", "orders", "--retention-days", "30", "--retention-bytes", bound)
        assert f'"retention_bytes":{bound}' in await said(server, *create)
        assert f"beyond {KEPT * BODY_BYTES / 1000:.1f} kB as long as history" in await said(
            server, "queues", "show", "orders"
        )
        async with queue_api_of(server.port) as api:
            for number in range(MESSAGES):
                await api.send(
                    f"queue://orders?id={number}", msgspec.json.encode("x" * BODY_BYTES).decode(), f"g{number}"
                )
            await done(api, MESSAGES // 2)
        await server.kill()
        age(tmp_path)

        server = await started(tmp_path)
        assert await until_first(server, 1) <= MESSAGES // 2, "the group has not done the second half"
        await server.kill()

        server = await started(tmp_path)
        assert await until_first(server, MESSAGES // 2) == MESSAGES // 2
        text = await said(server, "queues", "show", "orders")
        assert "stay beyond that bound: group 'billing' has not done" in text
        async with queue_api_of(server.port) as api:
            await done(api, MESSAGES - MESSAGES // 2)
        first = await until_first(server, MESSAGES - KEPT)
        assert (first, (await numbers(server))[1]) == (MESSAGES - KEPT, MESSAGES)
        await until_metrics(server, f'twophase_queue_kept_messages{{topic="orders"}} {float(KEPT)}')
        assert await server.state("g0") is None
        assert await server.state(f"g{MESSAGES - 1}") == "succeed"
        rows = (await said(server, "queues", "list")).splitlines()
        assert rows[0].split()[2:5] == ["MESSAGES", "BYTES", "BEYOND"]
        assert rows[1].split()[2] == str(KEPT)
    finally:
        await server.kill()


async def until_metrics(server: ServerProcess, line: str) -> None:
    """Wait for a line of the metrics: they show what the last cleaning has left."""
    async with asyncio.timeout(PATIENCE_S):
        while line not in (await server.ask(get("/metrics"))).body.decode():
            await asyncio.sleep(0.05)
