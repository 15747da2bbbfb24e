"""Blocking callers of an event loop, and functions in threads that it waits for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.client.queues.stub import AWAY, StubRequests, delivery
from twophase.client.queues import base_consumer, producers
from twophase.client.queues.loops import LoopThread, in_thread
from twophase.core.errors import CoordinatorUnreachable, Fate
from twophase.core.queue_api import DECIDE_PATH, RECEIVE_PATH, Deliveries
from twophase.queues import Consumer, Decision, Half, TransactionProducer

PATIENCE_S = 60


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration()])
async def test_what_is_no_exception_of_its_own_arrives_as_one(raised: BaseException) -> None:
    def function() -> None:
        raise raised

    with ThreadPoolExecutor(1) as threads, pytest.raises(RuntimeError, match=type(raised).__name__) as caught:
        await asyncio.wait_for(in_thread(threads, function), PATIENCE_S)
    assert caught.value.__cause__ is raised


async def test_an_exception_arrives_as_it_is() -> None:
    with ThreadPoolExecutor(1) as threads, pytest.raises(ValueError, match="no number"):
        await asyncio.wait_for(in_thread(threads, int, "no number"), PATIENCE_S)


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, StopIteration])
def test_a_handler_that_raises_anything_has_failed_and_the_next_message_is_handled(
    raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Deliveries((delivery(1),)), Deliveries((delivery(2, b"2"),))]
    requests = StubRequests(lambda path, _: found.pop(0) if path == RECEIVE_PATH and found else None)
    monkeypatch.setattr(base_consumer, "QueueRequests", lambda _: requests)
    done = threading.Event()
    consumer = Consumer("http://localhost:1", "billing", concurrency=1)

    @consumer.handler("orders")
    def handle(number: int) -> None:
        if number == 1:
            raise raised
        done.set()

    with consumer:
        assert done.wait(PATIENCE_S)
    assert [path for path in requests.paths() if path in {"ack", "nack"}] == ["nack", "ack"]


def test_calls_of_a_loop_that_another_thread_closes_end() -> None:
    for _ in range(200):
        loop = LoopThread("the consumer")
        loop.call(asyncio.sleep(0))
        ends: list[BaseException | None] = []

        def call(loop: LoopThread = loop, ends: list[BaseException | None] = ends) -> None:
            try:
                loop.call(asyncio.sleep(0.001))
            except CoordinatorUnreachable as error:
                ends.append(error)
            else:
                ends.append(None)
            loop.close()

        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        loop.close()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "its call ends"
        assert len(ends) == len(threads)
        loop.close()


def test_a_loop_that_was_closed_takes_no_work_of_its_own_any_more() -> None:
    loop = LoopThread("the consumer")

    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    first = loop.call(running())
    loop.close()
    with pytest.raises(CoordinatorUnreachable, match="the consumer was stopped"):
        loop.call(running(), first)
    assert not loop.runs, "and no other begins for it"


def test_a_run_that_another_thread_stops_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(50):
        begun = threading.Event()

        def polled(_path: str, _request: Any, begun: threading.Event = begun) -> None:
            begun.set()

        requests = StubRequests(polled)
        monkeypatch.setattr(base_consumer, "QueueRequests", lambda _, requests=requests: requests)
        consumer = Consumer("http://localhost:1", "billing")
        consumer.subscribe("orders", lambda payload: None)
        failures: list[BaseException] = []

        def run(consumer: Consumer = consumer, failures: list[BaseException] = failures) -> None:
            try:
                consumer.run()
            except BaseException as error:  # noqa: BLE001 -- the test shows it
                failures.append(error)

        running = threading.Thread(target=run, daemon=True)
        running.start()
        assert begun.wait(PATIENCE_S)
        consumer.stop()
        running.join(PATIENCE_S)
        assert not running.is_alive()
        assert failures == []


class _Listener:
    """Commits, when the test lets it."""

    def __init__(self, raises: Exception | None = None) -> None:
        self.executing, self.go_on = threading.Event(), threading.Event()
        self._raises = raises

    def execute(self, message: Half, argument: Any) -> Decision:
        self.executing.set()
        assert self.go_on.wait(PATIENCE_S)
        if self._raises is not None:
            raise self._raises
        return Decision.COMMIT

    def check(self, message: Half) -> Decision:
        return Decision.UNKNOWN


@pytest.mark.parametrize("raises", [None, ValueError("no stock")])
def test_a_producer_that_is_closed_while_execute_runs_raises_nothing_of_its_own(
    raises: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = StubRequests(lambda *_: AWAY)
    monkeypatch.setattr(producers, "QueueRequests", lambda _: requests)
    listener = _Listener(raises)
    producer = TransactionProducer("http://localhost:1", "shop", listener)
    ends: list[Any] = []

    def send() -> None:
        try:
            ends.append(producer.send("orders", 1))
        except Exception as error:  # noqa: BLE001 -- the test shows it
            ends.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    assert listener.executing.wait(PATIENCE_S)
    producer.close(0)
    listener.go_on.set()
    sending.join(PATIENCE_S)

    (end,) = ends
    if raises is not None:
        assert end is raises
    else:
        assert (end.decision, end.acknowledged) == (Decision.COMMIT, False)
    assert DECIDE_PATH not in [path for path, _ in requests.asked]
    assert not producer._loop.runs


def test_a_message_of_a_producer_that_is_closed_meanwhile_was_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = _Listener()
    producer = TransactionProducer("http://localhost:1", "shop", listener)
    monkeypatch.setattr(producers, "QueueRequests", lambda _: StubRequests(lambda *_: AWAY))
    call = producer._loop.call

    def closed(*arguments: Any) -> Any:
        found = call(*arguments)
        monkeypatch.setattr(producer._loop, "call", call)
        producer.close(0)
        return found

    monkeypatch.setattr(producer._loop, "call", closed)
    with pytest.raises(CoordinatorUnreachable) as caught:
        producer.send("orders", 1)
    assert caught.value.fate is Fate.NOT_STARTED
    assert not listener.executing.is_set()


_FORKED = """
import os, sys
from tests.unit.client.queues.stub import StubRequests, delivery
from twophase.client.queues import base_consumer, producers
from twophase.core.queue_api import Deliveries, RECEIVE_PATH
from twophase.queues import Consumer, Decision, TransactionProducer

def requests(_):
    found = [Deliveries((delivery(1),))]
    return StubRequests(lambda path, _: found.pop() if path == RECEIVE_PATH and found else None)

base_consumer.QueueRequests = producers.QueueRequests = requests

class Listener:
    def execute(self, message, argument):
        return Decision.COMMIT

    def check(self, message):
        return Decision.UNKNOWN

producer = TransactionProducer("http://localhost:1", "shop", Listener())
consumer = Consumer("http://localhost:1", "billing")

def use():
    assert producer.send("orders", 1).acknowledged
    (message,) = consumer.receive("orders")
    assert consumer.ack(message)

use()
child = os.fork()
if not child:
    import faulthandler
    faulthandler.dump_traceback_later(50, exit=True)
    use()
    producer.close()
    consumer.stop()
    os._exit(7)
_, status = os.waitpid(child, 0)
producer.close()
consumer.stop()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_child_of_a_fork_uses_what_its_parent_has_used() -> None:
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", _FORKED], check=False, timeout=PATIENCE_S)
    assert ended.returncode == 7
