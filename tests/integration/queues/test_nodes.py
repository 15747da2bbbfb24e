"""Consumers and producers of one URL, where two server processes share a store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers.database import Database
from tests.support.queue_server import QueueServer, queue_server
from twophase.core.errors import QueuesElsewhere, Unavailable
from twophase.core.queue_api import HALF_PATH, RECEIVE_PATH
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


async def test_a_consumer_goes_on_when_an_owner_is_killed(nodes: list[QueueServer]) -> None:
    own, other = nodes
    async with own.client() as client, AsyncConsumer(client, "billing") as consumer:
        await send(own, "first")
        for topic in TOPICS:
            assert await taken(consumer, topic) == "first"
        async with asyncio.timeout(PATIENCE_S):
            while not await refused(own):  # until the other node, which joined, owns some of them
                await asyncio.sleep(0.1)
        await other.kill()
        await send(own, "second")
        for topic in TOPICS:
            assert await taken(consumer, topic) == "second", "what was acknowledged does not come again"


async def taken(consumer: AsyncConsumer, topic: str) -> Any:
    """Take a message and acknowledge it, however long its owner is away."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                found = await consumer.receive(topic, wait=1)
            except Unavailable:
                await asyncio.sleep(0.1)
                continue
            for message in found:
                assert await consumer.ack(message)
                return message.decode(dict)["name"]


async def refused(node: QueueServer) -> list[str]:
    """Return the topics that another node owns, by the refusal of this one.

    A node that joins owns topics a moment before it has announced its address.
    """
    elsewhere = []
    async with httpx.AsyncClient(base_url=node.url) as http:
        for topic in TOPICS:
            asked = {"group": "billing", "topic": topic, "client": "me", "wait_ms": 0}
            answer = await http.post(RECEIVE_PATH, json=asked)
            if answer.json().get("code") == QueuesElsewhere.code and (url := answer.json().get("url")):
                assert url.startswith("http://127.0.0.1:")
                elsewhere.append(topic)
    return elsewhere


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
    """A load balancer brought the half message to another node than the producer's."""
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


def _command(node: QueueServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    main = "from twophase.cli.app import main; main()"
    return subprocess.run(
        [sys.executable, "-c", main, *arguments, "--server", node.url, "--yes"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


async def test_an_operator_may_reset_a_group_at_any_node(nodes: list[QueueServer]) -> None:
    own, _ = nodes
    async with own.client() as client, AsyncConsumer(client, "billing") as consumer:
        await send(own, "first")
        async with asyncio.timeout(PATIENCE_S):
            while not (elsewhere := await refused(own)):
                await asyncio.sleep(0.1)
        assert await taken(consumer, elsewhere[0]) == "first"

        done = await asyncio.to_thread(_command, own, "groups", "reset", "billing", elsewhere[0], "--to", "earliest")
        assert (done.returncode, done.stderr) == (0, "")

        assert await taken(consumer, elsewhere[0]) == "first"
