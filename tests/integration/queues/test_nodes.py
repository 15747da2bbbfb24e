"""Consumers and producers of one URL, where two server processes share a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers.database import Database
from tests.support.queue_server import QueueServer, queue_server
from twophase.core.queue_api import HALF_PATH
from twophase.queues import AsyncConsumer, AsyncTransactionProducer, Decision, Half, Received, queue_address

pytestmark = pytest.mark.postgres
PATIENCE_S = 60
TOPICS = [f"topic-{number}" for number in range(8)]
"""Each node owns some of them, but for one of 128 pairs of slots."""


@pytest.fixture
async def nodes(tmp_path: Path, postgres_database: Database) -> AsyncIterator[list[QueueServer]]:
    settings = ("--store", postgres_database.dsn, "--set", "lease_ms=2000")
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(queue_server(tmp_path, *settings)) for _ in range(2)]


async def send(node: QueueServer, name: str) -> None:
    async with node.client() as client:
        for topic in TOPICS:
            await client.message().add(queue_address(topic), {"name": name}).submit()


class Seen:
    """The payloads that handlers got, by topic."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str]] = []
        self._grown = asyncio.Condition()

    async def handle(self, payload: dict[str, str], message: Received) -> None:
        async with self._grown:
            self.got.append((message.topic, payload["name"]))
            self._grown.notify_all()

    async def until(self, payload: str) -> None:
        async with asyncio.timeout(PATIENCE_S), self._grown:
            await self._grown.wait_for(lambda: all((topic, payload) in self.got for topic in TOPICS))


async def test_a_consumer_of_one_url_gets_the_topics_of_both_nodes(nodes: list[QueueServer]) -> None:
    own, other = nodes
    seen = Seen()
    async with own.client() as client:
        consumer = AsyncConsumer(client, "billing")
        for topic in TOPICS:
            consumer.subscribe(topic, seen.handle)
        await send(other, "first")
        async with consumer:
            await seen.until("first")


class Listener:
    """Says commit when it is asked."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def execute(self, _message: Half, _argument: Any) -> Decision:
        return Decision.UNKNOWN

    async def check(self, _message: Half) -> Decision:
        self.asked.set()
        return Decision.COMMIT


@pytest.mark.parametrize("polled", [0, 1])
async def test_a_producer_is_asked_about_what_another_node_has(nodes: list[QueueServer], polled: int) -> None:
    """A load balancer brought the half message to the node that the producer does not know."""
    listener = Listener()
    async with (
        nodes[polled].client() as client,
        httpx.AsyncClient(base_url=nodes[1 - polled].url) as http,
        AsyncTransactionProducer(client, "orders", listener),
    ):
        half = {"group": "orders", "client": "gone", "address": "queue://paid?id=1", "body": "MQ=="}
        assert (await http.post(HALF_PATH, json=half)).status_code == 200
        async with asyncio.timeout(PATIENCE_S):
            await listener.asked.wait()
