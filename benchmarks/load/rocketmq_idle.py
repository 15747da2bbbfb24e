"""Push consumers with nothing to receive.

Each does what an official one does meanwhile: a long poll of 20 s after the other, a heartbeat every 10 s, and a look
for its queues every 5 s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from benchmarks.load import rocketmq_requests as requests
from benchmarks.load.rocketmq_client import Client
from benchmarks.load.rocketmq_consumer import WAIT_MS, announced
from twophase.http_client.address import Address

_HEARTBEAT_S: Final = 10.0
_ASSIGNMENT_S: Final = 5.0


@contextlib.asynccontextmanager
async def idle_consumers(address: Address, topic: str, number: int) -> AsyncIterator[None]:
    """Keep consumers of one group connected until the block ends.

    Raises:
        BenchmarkFailed: the server cannot be reached.
    """
    group = f"group-{topic}"
    clients = [Client(address, f"idle-{one}") for one in range(number)]
    tasks: list[asyncio.Task[None]] = []
    try:
        for client in clients:
            await client.open()
            await announced(client, requests.consumer_settings(group, topic), _ignore)
            await client.ask("QueryRoute", requests.route(topic))
            tasks += [
                asyncio.ensure_future(_repeat(client, "ReceiveMessage", requests.receive(group, topic, WAIT_MS), 0.0)),
                asyncio.ensure_future(_repeat(client, "Heartbeat", requests.heartbeat(group), _HEARTBEAT_S)),
                asyncio.ensure_future(
                    _repeat(client, "QueryAssignment", requests.assignment(group, topic), _ASSIGNMENT_S)
                ),
            ]
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            client.cut()


async def _repeat(client: Client, method: str, message: bytes, pause_s: float) -> None:
    while True:
        await client.ask(method, message)
        await asyncio.sleep(pause_s)


def _ignore(_message: bytes) -> None:
    """Ignore what a server sends over the stream."""
