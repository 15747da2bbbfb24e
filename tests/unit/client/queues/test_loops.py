"""Blocking callers of an event loop, and functions in threads that it waits for."""

from __future__ import annotations

import asyncio
import queue
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.client.queues.stub import AWAY, StubRequests, delivery
from twophase.client.queues import base_consumer, producers
from twophase.client.queues.loops import LoopThread, in_thread
from twophase.core.errors import CommittedDespiteError, CoordinatorUnreachable, Fate
from twophase.core.queue_api import (
    DECIDE_PATH,
    HALF_PATH,
    QUESTIONS_PATH,
    RECEIVE_PATH,
    Deliveries,
    OneQuestion,
    Questions,
)
from twophase.core.queue_message import gid_of, message_of
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


class _SoftTimeLimit(Exception):
    """The exception that a job queue's worker raises in a signal's handler."""


class _Interrupting(StubRequests):
    """Signals the main thread while a decision is sent, and then asks about it."""

    def __init__(self) -> None:
        self.answered: queue.SimpleQueue[Decision] = queue.SimpleQueue()
        self.about = ""
        super().__init__(lambda path, _: self._question() if path == QUESTIONS_PATH else AWAY)

    async def _question(self) -> Questions:
        while not self.about:
            await asyncio.sleep(0.01)
        one = OneQuestion(address="queue://orders?id=1", body=b"", transaction_id=self.about, asked=0)
        return Questions((one,))

    async def ask(self, path: str, request: Any, answer: Any, at: str | None = None) -> Any:
        if path == DECIDE_PATH and request.checked:
            self.answered.put(request.decision)
        elif path == DECIDE_PATH:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            await asyncio.Event().wait()
        return await super().ask(path, request, answer, at)


@pytest.mark.parametrize("decision", [Decision.COMMIT, Decision.ROLLBACK])
@pytest.mark.parametrize("under_way", [True, False])
def test_a_time_limit_behind_execute_tells_the_truth_and_leaves_the_decision_to_the_question(
    decision: Decision, under_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_it(*_: object) -> None:
        raise _SoftTimeLimit

    class Known(_Listener):
        def execute(self, message: Half, argument: Any) -> Decision:
            if not under_way:
                monkeypatch.setattr(producer._loop, "call", interrupted_at_once)
            return decision

        def check(self, message: Half) -> Decision:
            raise AssertionError("the listener is not asked about what is known")

    def interrupted_at_once(work: Any, _: Any = None) -> Any:
        work.close()
        monkeypatch.undo()
        raise _SoftTimeLimit

    requests = _Interrupting()
    with monkeypatch.context() as patched:
        patched.setattr(producers, "QueueRequests", lambda _: requests)
        producer = TransactionProducer("http://localhost:1", "shop", Known())
        producer.start()
    before = signal.signal(signal.SIGUSR1, raise_it)
    try:
        with pytest.raises(CommittedDespiteError if decision is Decision.COMMIT else _SoftTimeLimit):
            producer.send("orders", 1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    (half,) = [request for path, request in requests.asked if path == HALF_PATH]
    requests.about = gid_of("", "orders", message_of(half.address, b"").message_id)
    assert requests.answered.get(timeout=PATIENCE_S) is decision
    producer.close(0)


def test_a_time_limit_as_the_half_message_has_just_been_kept_rolls_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, listener = _Interrupting(), _Listener()
    with monkeypatch.context() as patched:
        patched.setattr(producers, "QueueRequests", lambda _: requests)
        producer = TransactionProducer("http://localhost:1", "shop", listener)
        producer.start()
    call = producer._loop.call

    def interrupted_behind(work: Any, within: Any = None) -> Any:
        found = call(work, within)
        if isinstance(found, Half):
            raise _SoftTimeLimit
        return found

    monkeypatch.setattr(producer._loop, "call", interrupted_behind)
    with pytest.raises(_SoftTimeLimit):
        producer.send("orders", 1)
    assert not listener.executing.is_set()
    (half,) = [request for path, request in requests.asked if path == HALF_PATH]
    requests.about = gid_of("", "orders", message_of(half.address, b"").message_id)
    assert requests.answered.get(timeout=PATIENCE_S) is Decision.ROLLBACK
    producer.close(0)


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
