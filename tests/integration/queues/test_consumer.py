"""`Consumer`: the blocking front of the same work."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.queue_server import QueueServer
from twophase import Client
from twophase.core.errors import ConfigurationError, EventLoopBlocked, InvalidRequest
from twophase.queues import Consumer, Received, queue_address

PATIENCE_S = 60


def send(client: Client, *payloads: object) -> None:
    for payload in payloads:
        client.message().add(queue_address("orders"), payload).submit()


async def blocking(work: Callable[[], None]) -> None:
    """Run blocking code in a thread."""
    await asyncio.to_thread(work)


async def test_handlers_run_in_threads_and_no_more_than_are_allowed(server: QueueServer) -> None:
    def work() -> None:
        together, all_seen = threading.Barrier(3), threading.Event()
        seen: list[tuple[int, int]] = []
        with server.blocking() as client:
            send(client, *range(9))
            consumer = Consumer(client, "billing", concurrency=3)

            @consumer.handler("orders")
            def handle(number: int, message: Received) -> None:
                together.wait(PATIENCE_S)  # three at a time; a fourth thread would break it
                seen.append((number, message.attempt))
                if len(seen) == 9:
                    all_seen.set()

            with consumer:
                assert all_seen.wait(PATIENCE_S)
            assert sorted(seen) == [(number, 1) for number in range(9)]
            with Consumer(client, "billing") as other:
                assert other.receive("orders", wait=0) == []

    await blocking(work)


async def test_a_message_whose_handler_returns_what_did_not_run_is_not_done(server: QueueServer) -> None:
    def work() -> None:
        called = threading.Event()

        async def bill() -> None:
            raise AssertionError("nobody awaits it")

        with server.blocking() as client:
            send(client, 1)
            consumer = Consumer(client, "billing")

            @consumer.handler("orders")
            def handle(number: int) -> Any:
                called.set()
                return bill()

            with consumer:
                assert called.wait(PATIENCE_S)
            with Consumer(client, "billing") as other:
                (again,) = other.receive("orders", wait=PATIENCE_S)
                assert again.attempt == 2

    await blocking(work)


async def test_a_stop_waits_for_the_handlers_that_run(server: QueueServer) -> None:
    def work() -> None:
        begun, go_on = threading.Event(), threading.Event()
        done: list[int] = []
        with server.blocking() as client:
            send(client, 1, 2)
            consumer = Consumer(client, "billing", concurrency=1)

            @consumer.handler("orders")
            def handle(number: int) -> None:
                begun.set()
                assert go_on.wait(PATIENCE_S)
                done.append(number)

            consumer.start()
            assert begun.wait(PATIENCE_S)
            stopping = threading.Thread(target=consumer.stop)
            stopping.start()
            go_on.set()
            stopping.join(PATIENCE_S)
            assert done == [1]
            with Consumer(client, "billing") as other:
                (left,) = other.receive("orders", limit=32)
                assert (left.decode(int), left.attempt) == (2, 1)

    await blocking(work)


async def test_a_handler_may_stop_its_consumer(server: QueueServer) -> None:
    def work() -> None:
        done: list[int] = []
        with server.blocking() as client:
            send(client, 1, 2)
            consumer = Consumer(client, "billing", concurrency=1)

            @consumer.handler("orders")
            def handle(number: int) -> None:
                with pytest.raises(InvalidRequest):
                    consumer.stop(timeout=-1)
                consumer.stop(timeout=PATIENCE_S)
                done.append(number)

            running = threading.Thread(target=consumer.run, daemon=True)
            running.start()
            running.join(PATIENCE_S / 2)
            assert (done, running.is_alive()) == ([1], False)
            with Consumer(client, "billing") as other:
                (left,) = other.receive("orders", limit=32)
                assert (left.decode(int), left.attempt) == (2, 1)

    await blocking(work)


async def test_messages_are_pulled(server: QueueServer) -> None:
    def work() -> None:
        with server.blocking() as client, Consumer(client, "billing") as consumer:
            send(client, 1, 2, 3, 4)
            first, second, third, fourth = consumer.receive("orders", limit=4)
            assert consumer.ack(first)
            assert consumer.extend(second, 30)
            assert consumer.nack(second, pause=0)
            assert consumer.give_back(third)
            assert consumer.dead_letter(fourth, "no article")
            again = consumer.receive("orders", limit=4)
            assert sorted((one.decode(int), one.attempt) for one in again) == [(2, 2), (3, 1)]

    await blocking(work)


_WORKER = """
import sys
from twophase import Client
from twophase.queues import Consumer

consumer = Consumer(Client(sys.argv[1]), "billing")

@consumer.handler("orders")
def handle(number: int) -> None:
    print("handled", number, flush=True)

consumer.run()
print("stopped", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_process_stops_at_a_signal(server: QueueServer, tmp_path: Path, number: signal.Signals) -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WORKER, server.url, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    with server.blocking() as client:
        send(client, 7)
    async with asyncio.timeout(PATIENCE_S):
        assert await worker.stdout.readline() == b"handled 7\n"
        worker.send_signal(number)
        assert await worker.stdout.readline() == b"stopped\n"
        assert await worker.wait() == 0


async def test_an_event_loop_is_not_blocked(server: QueueServer) -> None:
    with pytest.raises(EventLoopBlocked):
        Consumer(Client(server.url), "billing")


def test_a_grpc_address_is_refused() -> None:
    with Consumer("grpc://localhost:36790", "billing") as consumer, pytest.raises(ConfigurationError, match="http"):
        consumer.receive("orders")
