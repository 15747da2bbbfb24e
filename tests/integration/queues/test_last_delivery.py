"""A group whose messages are delivered once.

What a handler does counts, and what it fails is a dead letter.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.queues.test_async_consumer import DEAD, PATIENCE_S, Arrivals, dead_letters, send
from tests.support.queue_server import QueueServer
from tests.support.waiting import until
from twophase.queues import AsyncConsumer, Received


async def test_a_handler_that_succeeds_at_the_last_delivery_leaves_no_dead_letter(
    server: QueueServer, caplog: pytest.LogCaptureFixture
) -> None:
    await server.define_group("billing", attempts_max=1)
    seen = Arrivals()
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing", concurrency=3)

        @consumer.handler("orders")
        async def handle(number: int, message: Received) -> None:
            assert message.attempt == 1
            seen.add(number)

        async def all_done() -> bool:
            return not await server.not_done("billing")

        await send(client, "orders", 0, 1, 2)
        async with consumer, asyncio.timeout(PATIENCE_S):
            await seen.until(3)
            await until(all_done)
        async with AsyncConsumer(client, "people") as people:
            assert await people.receive(DEAD, wait=0) == []
        assert sorted(seen.seen) == [0, 1, 2]
        assert "not this delivery's" not in caplog.text


async def test_a_handler_that_fails_the_last_delivery_makes_a_dead_letter(server: QueueServer) -> None:
    await server.define_group("billing", attempts_max=1, backoff_ms=[1])
    seen = Arrivals()
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing")

        @consumer.handler("orders")
        async def handle(number: int) -> None:
            seen.add(number)
            if not number:
                raise ValueError("no")

        await send(client, "orders", 0, 1)
        async with consumer:
            (letter,) = await dead_letters(client)
            await seen.until(2)
        assert letter.body == b"0"
        assert sorted(seen.seen) == [0, 1]
