"""`AsyncConsumer` against a server: what arrives, once, and what comes again."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from tests.support.identities import token_of, write
from tests.support.queue_server import QueueServer, queue_server
from tests.support.waiting import until
from twophase import AsyncClient
from twophase.core.errors import Forbidden, Unauthenticated
from twophase.queues import AsyncConsumer, GiveUp, Received, Retry, queue_address
from twophase.server.identity.scopes import Scope

PATIENCE_S = 60
DEAD = "%DLQ%billing"


@dataclass
class Order:
    order: int


class OrderStruct(msgspec.Struct):
    order: int


class OrderModel(BaseModel):
    order: int


async def send(client: AsyncClient, topic: str, *payloads: Any, **attributes: Any) -> None:
    for payload in payloads:
        await client.message().add(queue_address(topic, **attributes), payload).submit()


class Arrivals:
    """The calls of handlers, in their order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._grown = asyncio.Event()

    def add(self, value: Any) -> None:
        self.seen.append(value)
        self._grown.set()

    async def until(self, count: int) -> list[Any]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.seen) < count:
                self._grown.clear()
                await self._grown.wait()
        return self.seen


async def dead_letters(client: AsyncClient, count: int = 1) -> list[Received]:
    async with AsyncConsumer(client, "people") as people:
        found: list[Received] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count:
                found += await people.receive(DEAD, limit=32)
        return found


async def test_a_handler_gets_the_payload_as_its_type_and_the_message(server: QueueServer) -> None:
    seen = Arrivals()
    async with server.client() as client:
        await send(client, "orders", {"order": 7}, tag="paid", keys=["k"], properties={"shop": "7"})
        for kind, expected in (
            (Order, Order(7)),
            (OrderStruct, OrderStruct(7)),
            (OrderModel, OrderModel(order=7)),
            (list[OrderModel], None),
            (dict[str, int], {"order": 7}),
            (str, '{"order":7}'),
            (bytes, b'{"order":7}'),
        ):
            consumer = AsyncConsumer(client, f"group-{len(seen.seen)}")

            async def handle(message: Received, payload: Any) -> None:
                seen.add((payload, message))

            if expected is None:
                continue
            handle.__annotations__["payload"] = kind
            consumer.subscribe("orders", handle)
            async with consumer:
                payload, message = (await seen.until(len(seen.seen) + 1))[-1]
            assert payload == expected
            assert (message.tag, message.keys, dict(message.properties)) == ("paid", ("k",), {"shop": "7"})
            assert (message.attempt, message.topic, message.message_id) == (1, "orders", message.transaction_id)


async def test_a_handler_without_a_type_gets_bytes(server: QueueServer) -> None:
    seen = Arrivals()
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing")

        @consumer.handler("orders")
        async def handle(payload) -> None:  # type: ignore[no-untyped-def]
            seen.add(payload)

        async with consumer:
            await send(client, "orders", b"raw")
            assert await seen.until(1) == [b"raw"]


async def test_no_more_handlers_run_than_are_allowed(server: QueueServer) -> None:
    running, most, seen = 0, 0, Arrivals()
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing", concurrency=3)

        @consumer.handler("orders")
        async def handle(number: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.02)
            running -= 1
            seen.add(number)

        await send(client, "orders", *range(20))
        async with consumer:
            assert sorted(await seen.until(20)) == list(range(20))
        assert most == 3


async def test_a_handler_that_fails_gets_its_message_again_and_one_that_gives_up_does_not(server: QueueServer) -> None:
    seen = Arrivals()
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing")

        @consumer.handler("orders")
        async def handle(what: str, message: Received) -> None:
            seen.add((what, message.attempt))
            if message.attempt == 1:
                raise {'"fails"': ValueError("no"), '"again"': Retry(pause=0), '"never"': GiveUp("no article")}[what]

        await send(client, "orders", "fails", "again", "never")
        async with consumer:
            assert set(await seen.until(5)) == {
                ('"fails"', 1),
                ('"again"', 1),
                ('"never"', 1),
                ('"again"', 2),
                ('"fails"', 2),
            }
        (letter,) = await dead_letters(client)
        assert (letter.body, letter.properties["DLQ_REASON"]) == (b'"never"', "no article")


async def test_what_cannot_be_read_is_a_dead_letter_with_the_reason_and_not_its_values(
    server: QueueServer, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Arrivals()
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing")

        @consumer.handler("orders")
        async def handle(order: Order) -> None:
            seen.add(order)

        await send(client, "orders", {"order": "secret"}, {"order": 8})
        async with consumer:
            assert await seen.until(1) == [Order(8)]
            (letter,) = await dead_letters(client)
        assert letter.body == b'{"order":"secret"}'
        assert letter.properties["DLQ_REASON"] == "TP-1023: Expected `int`, got `str` - at `$.order`."
        assert "secret" not in caplog.text


async def test_a_message_whose_handler_returns_what_did_not_run_or_an_exception_is_not_done(
    server: QueueServer, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Arrivals()

    async def bill() -> None:
        raise AssertionError("it is not awaited")

    async with server.client() as client:
        await send(client, "orders", 1)
        consumer = AsyncConsumer(client, "billing")

        @consumer.handler("orders")
        async def handle(message: Received) -> Any:
            seen.add(message.attempt)
            match message.attempt:
                case 1:
                    return bill()
                case 2:
                    return Retry(0)
                case 3:
                    return Retry
            return GiveUp("no article")

        async with consumer:
            (letter,) = await dead_letters(client)
        assert seen.seen == [1, 2, 3, 4]
        assert letter.properties["DLQ_REASON"] == "no article"
        assert caplog.text.count("TP-5010: the function returned what nothing here awaits") == 1


async def test_what_cannot_be_read_may_come_again(server: QueueServer, caplog: pytest.LogCaptureFixture) -> None:
    async with server.client() as client:
        await send(client, "orders", {"order": "x"})
        old = AsyncConsumer(client, "billing", undecodable="nack")

        @old.handler("orders")
        async def refuse(order: Order) -> None:
            raise AssertionError("it cannot be read")

        async with old:
            await until(lambda: "cannot be read" in caplog.text)
        async with AsyncConsumer(client, "billing") as new:
            (found,) = await new.receive("orders")
        assert found.attempt > 1
        assert found.decode(dict[str, str]) == {"order": "x"}


async def test_a_lease_is_extended_while_a_handler_runs(server: QueueServer) -> None:
    seen = Arrivals()
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing", lease=1)

        @consumer.handler("orders")
        async def handle(number: int, message: Received) -> None:
            receipt = message.receipt
            async with asyncio.timeout(PATIENCE_S):
                while message.receipt == receipt or (asyncio.get_running_loop().time() - began_s) < 2.5:
                    await asyncio.sleep(0.05)
            seen.add((number, message.attempt))

        began_s = asyncio.get_running_loop().time()
        await send(client, "orders", 1, 2)
        async with consumer:
            assert sorted(await seen.until(2)) == [(1, 1), (2, 1)]
        async with AsyncConsumer(client, "billing") as other:
            assert await other.receive("orders", wait=0) == []


async def test_a_stop_lets_handlers_end_and_takes_nothing_more(server: QueueServer) -> None:
    seen, go_on, done = Arrivals(), asyncio.Event(), Arrivals()
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing", concurrency=2)

        @consumer.handler("orders")
        async def handle(number: int) -> None:
            seen.add(number)
            await go_on.wait()
            done.add(number)

        await send(client, "orders", *range(5))
        await consumer.start()
        await seen.until(2)
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0)
        go_on.set()
        await stopping
        assert sorted(done.seen) == [0, 1]
        async with AsyncConsumer(client, "billing") as other:
            left = await other.receive("orders", limit=32)
            assert sorted((one.decode(int), one.attempt) for one in left) == [(2, 1), (3, 1), (4, 1)]


@pytest.mark.parametrize("is_bounded", [False, True])
async def test_a_handler_may_stop_its_consumer(server: QueueServer, is_bounded: bool) -> None:
    seen = Arrivals()
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing", concurrency=1)

        @consumer.handler("orders")
        async def handle(number: int) -> None:
            seen.add(number)
            if number == 1:
                stopping = consumer.stop(timeout=PATIENCE_S)
                await (asyncio.wait_for(stopping, PATIENCE_S) if is_bounded else stopping)

        await send(client, "orders", *range(4))
        await asyncio.wait_for(consumer.run(), PATIENCE_S / 2)
        assert seen.seen == [0, 1]
        async with AsyncConsumer(client, "billing") as other:
            left = await other.receive("orders", limit=32)
            assert sorted((one.decode(int), one.attempt) for one in left) == [(2, 1), (3, 1)]


async def test_a_task_that_outlives_its_handler_waits_for_the_others(server: QueueServer) -> None:
    runs, returned, goes_on, order, tasks = asyncio.Event(), asyncio.Event(), asyncio.Event(), [], []
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing", concurrency=2)

        async def shut_down() -> None:
            await returned.wait()
            stopping = asyncio.ensure_future(consumer.stop())
            await runs.wait()
            goes_on.set()
            await stopping
            order.append("stopped")

        @consumer.handler("orders")
        async def handle(number: int) -> None:
            if number == 0:
                tasks.append(asyncio.create_task(shut_down()))
                await runs.wait()
                returned.set()  # the other task goes on when this one waits: for the answer to its acknowledgement
            else:
                runs.set()
                await goes_on.wait()
                await asyncio.sleep(0)
                order.append("handled")

        await send(client, "orders", 0, 1)
        await asyncio.wait_for(consumer.run(), PATIENCE_S)
        await asyncio.gather(*tasks)
        assert order == ["handled", "stopped"]


async def test_a_handler_that_does_not_end_is_cancelled_and_its_message_comes_again(server: QueueServer) -> None:
    seen = Arrivals()
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing")

        @consumer.handler("orders")
        async def handle(number: int) -> None:
            seen.add(number)
            await asyncio.Event().wait()

        await send(client, "orders", 1)
        await consumer.start()
        await seen.until(1)
        await consumer.stop(timeout=0.01)
        async with AsyncConsumer(client, "billing") as other:
            (again,) = await other.receive("orders")
            assert again.attempt == 2


async def test_a_consumer_outlives_kill_9_of_the_server_and_what_was_acknowledged_does_not_come_again(
    server: QueueServer,
) -> None:
    seen = Arrivals()
    async with server.client() as client:
        consumer = AsyncConsumer(client, "billing", concurrency=4)

        @consumer.handler("orders")
        async def handle(number: int) -> None:
            seen.add(number)

        await send(client, "orders", *range(20))
        async with consumer:
            await seen.until(10)
            await server.kill()
            await server.start()
            await send(client, "orders", *range(20, 40))
            async with asyncio.timeout(PATIENCE_S):
                while set(seen.seen) != set(range(40)):
                    await seen.until(len(seen.seen) + 1)
        repeated = [number for number, times in Counter(seen.seen).items() if times > 1]
        assert len(repeated) <= 4, "no more than were in flight"
        await server.kill()
        await server.start()
        async with AsyncConsumer(client, "billing") as other:
            assert await other.receive("orders", wait=0) == []


_DYING = """
import asyncio, os, sys
from twophase import AsyncClient
from twophase.queues import AsyncConsumer

async def main():
    consumer = AsyncConsumer(AsyncClient(sys.argv[1]), "billing", lease=2)

    @consumer.handler("orders")
    async def handle(number: int) -> None:
        if number == 3:
            os.kill(os.getpid(), 9)

    await consumer.run()

asyncio.run(main())
"""


async def test_what_a_consumer_had_that_dies_is_delivered_again(server: QueueServer, tmp_path: Path) -> None:
    async with server.client() as client:
        await send(client, "orders", 1, 2, 3)
        dying = await asyncio.create_subprocess_exec(sys.executable, "-c", _DYING, server.url, cwd=tmp_path)
        async with asyncio.timeout(PATIENCE_S):
            assert await dying.wait() == -9
        async with AsyncConsumer(client, "billing") as other:
            found: list[Received] = []
            async with asyncio.timeout(PATIENCE_S):
                while 3 not in [one.decode(int) for one in found]:
                    found += await other.receive("orders", limit=32)
            assert {one.attempt for one in found} == {2}


@pytest.mark.parametrize(("token", "error"), [("", Unauthenticated), ("shop", Forbidden)])
async def test_a_consumer_that_may_not_consume_ends_with_the_reason(
    tmp_path: Path, token: str, error: type[Exception]
) -> None:
    tokens = write(tmp_path, "shop", [Scope.PRODUCE])
    async with (
        queue_server(tmp_path, "--tokens", tokens) as server,
        server.client(token_of(token) if token else None) as client,
    ):
        consumer = AsyncConsumer(client, "billing")

        @consumer.handler("orders")
        async def handle(number: int) -> None: ...

        with pytest.raises(error):
            await asyncio.wait_for(consumer.run(), PATIENCE_S)


async def test_messages_are_pulled_and_every_act_says_whether_it_came_in_time(server: QueueServer) -> None:
    async with server.client() as client, AsyncConsumer(client, "billing") as consumer:
        await send(client, "orders", 1, 2, 3, 4)
        first, second, third, fourth = await consumer.receive("orders", limit=4, lease=10)
        assert await consumer.ack(first)
        assert not await consumer.ack(first)
        old = second.receipt
        assert await consumer.extend(second, 30)
        assert second.receipt != old
        assert await consumer.nack(second, pause=0)
        assert not await consumer.extend(second, 30)
        assert await consumer.give_back(third)
        assert await consumer.dead_letter(fourth, "no article")
        assert not await consumer.dead_letter(fourth)
        assert not await consumer.nack(fourth)
        again = await consumer.receive("orders", limit=4)
        assert sorted((one.decode(int), one.attempt) for one in again) == [(2, 2), (3, 1)]
        assert [letter.decode(int) for letter in await dead_letters(client)] == [4]
