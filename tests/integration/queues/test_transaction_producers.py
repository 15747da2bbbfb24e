"""`TransactionProducer` and `AsyncTransactionProducer` against a server."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.identities import token_of, write
from tests.support.queue_server import QueueServer, queue_server
from twophase.core.errors import (
    BarrierTableMissing,
    ContraryDecision,
    Fate,
    Forbidden,
    NotPrepared,
    RolledBack,
    Unauthenticated,
)
from twophase.queues import (
    AsyncConsumer,
    AsyncTransactionProducer,
    Decision,
    Half,
    Received,
    TransactionProducer,
)
from twophase.server.identity.scopes import Scope

PATIENCE_S = 60
COMMIT, ROLLBACK, UNKNOWN = Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN


class Listener:
    """Answers as the test wants; an exception is raised."""

    def __init__(self, executed: Any = COMMIT, *checked: Any) -> None:
        self.executed = executed
        self.checked = list(checked) or [UNKNOWN]
        self.asked: list[Half] = []
        self.executions: list[tuple[Half, Any]] = []
        self._grown = asyncio.Event()

    async def execute(self, message: Half, argument: Any) -> Decision:
        self.executions.append((message, argument))
        return said(self.executed, message)

    async def check(self, message: Half) -> Decision:
        self.asked.append(message)
        self._grown.set()
        return said(self.checked.pop(0) if len(self.checked) > 1 else self.checked[0])

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.asked) < times:
                self._grown.clear()
                await self._grown.wait()


def said(answer: Any, message: Half | None = None) -> Decision:
    if answer is RolledBack:
        assert message is not None
        raise RolledBack("a constraint refused it", gid=message.transaction_id)
    if isinstance(answer, BaseException):
        raise answer
    return answer  # type: ignore[no-any-return]


async def received(server: QueueServer, count: int, wait: float = 20) -> list[Received]:
    """Take what is in the queue, until there is so much of it."""
    found: list[Received] = []
    async with server.client() as client, AsyncConsumer(client, "billing") as consumer:
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count or not count:
                found += await consumer.receive("orders", limit=32, wait=wait)
                if not count:
                    break
        for one in found:
            await consumer.ack(one)
    return found


async def test_what_execute_commits_arrives_and_what_it_rolls_back_does_not(server: QueueServer) -> None:
    listener = Listener()
    async with server.client() as client, AsyncTransactionProducer(client, "shop", listener) as producer:
        committed = await producer.send("orders", {"order": 7}, "argument", tag="paid", keys=["k"])
        listener.executed = ROLLBACK
        rolled_back = await producer.send("orders", {"order": 8})
    assert (committed.decision, committed.acknowledged) == (COMMIT, True)
    assert (rolled_back.decision, rolled_back.acknowledged) == (ROLLBACK, True)
    (message,) = await received(server, 1)
    assert (message.message_id, message.transaction_id) == (committed.message_id, committed.transaction_id)
    assert (message.body, message.tag, message.keys) == (b'{"order":7}', "paid", ("k",))
    half, argument = listener.executions[0]
    assert (half.body, half.transaction_id, argument) == (b'{"order":7}', committed.transaction_id, "argument")
    assert listener.asked == []
    assert await received(server, 0, wait=0) == []


@pytest.mark.parametrize(
    "executed",
    [
        *(UNKNOWN, None, ValueError("the connection broke at commit")),
        # Behind the commit of its own transaction, `execute` may send other messages, whose errors these are.
        *(RolledBack(gid="another"), NotPrepared(gid="another"), BarrierTableMissing()),
    ],
)
async def test_what_execute_does_not_know_is_checked_until_it_is_known(server: QueueServer, executed: Any) -> None:
    listener = Listener(executed, UNKNOWN, ValueError("no database"), None, COMMIT)
    async with server.client() as client, AsyncTransactionProducer(client, "shop", listener, check_after=0.2) as shop:
        if isinstance(executed, Exception):
            with pytest.raises(type(executed)):
                await shop.send("orders", "paid")
        else:
            sent = await shop.send("orders", "paid")
            assert (sent.decision, sent.acknowledged) == (UNKNOWN, False)
        await listener.until_asked(4)
        (message,) = await received(server, 1)
    assert [one.asked for one in listener.asked] == [0, 1, 2, 3]
    assert {one.transaction_id for one in listener.asked} == {message.transaction_id}
    assert message.body == b'"paid"'


async def test_an_error_that_proves_that_nothing_was_committed_rolls_back(server: QueueServer) -> None:
    listener = Listener(RolledBack, COMMIT)
    async with server.client() as client, AsyncTransactionProducer(client, "shop", listener, check_after=0.2) as shop:
        with pytest.raises(RolledBack):
            await shop.send("orders", "paid")
        (message, _), *_ = listener.executions
        assert await state_of(server, message.transaction_id) == "failed"
    assert listener.asked == []


async def state_of(server: QueueServer, gid: str) -> Any:
    import urllib.request

    import msgspec

    def ask() -> bytes:
        with urllib.request.urlopen(f"{server.url}/api/dtmsvr/query?gid={gid}", timeout=PATIENCE_S) as answer:
            return answer.read()  # type: ignore[no-any-return]

    return msgspec.json.decode(await asyncio.to_thread(ask))["transaction"]["status"]


_DYING = """
import os, sys
from twophase import Client
from twophase.queues import Decision, TransactionProducer

class Shop:
    def execute(self, message, argument):
        print(message.transaction_id, flush=True)
        os.kill(os.getpid(), 9)

    def check(self, message):
        return Decision.ROLLBACK

TransactionProducer(Client(sys.argv[1]), "shop", Shop()).send("orders", "paid")
"""


async def test_the_message_of_a_producer_that_died_is_committed_by_another_instance(
    server: QueueServer, tmp_path: Path
) -> None:
    dying = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _DYING, server.url, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        output, _ = await dying.communicate()
    assert dying.returncode == -9
    listener = Listener(COMMIT, COMMIT)
    async with server.client() as client, AsyncTransactionProducer(client, "shop", listener):
        (message,) = await received(server, 1)
    assert message.transaction_id == output.decode().strip()
    assert [one.transaction_id for one in listener.asked] == [message.transaction_id]


async def test_a_question_about_what_runs_here_is_answered_without_the_listener(server: QueueServer) -> None:
    go_on, asked = asyncio.Event(), asyncio.Event()

    class Slow(Listener):
        async def execute(self, message: Half, argument: Any) -> Decision:
            await go_on.wait()
            return COMMIT

    listener = Slow()
    async with server.client() as client:
        async with AsyncTransactionProducer(client, "shop", listener, check_after=0.1) as producer:
            work = producer._producer.transactions
            decide = work._decide

            async def watched(*arguments: Any, **more: Any) -> None:
                await decide(*arguments, **more)
                if more["checked"]:
                    assert arguments[1] is UNKNOWN
                    asked.set()

            work._decide = watched  # type: ignore[method-assign]
            sending = asyncio.ensure_future(producer.send("orders", "paid"))
            await asyncio.wait_for(asked.wait(), PATIENCE_S)
            go_on.set()
            assert (await sending).acknowledged
        assert listener.asked == []
    assert len(await received(server, 1)) == 1


async def test_a_check_that_decides_the_opposite_is_told_to_the_sender(server: QueueServer) -> None:
    other, decided = Listener(COMMIT, ROLLBACK), asyncio.Event()

    class Slow(Listener):
        async def execute(self, message: Half, argument: Any) -> Decision:
            async with asyncio.timeout(PATIENCE_S):
                while await state_of(server, message.transaction_id) != "failed":
                    await asyncio.sleep(0.05)
            decided.set()
            return COMMIT

    async with server.client() as client, server.client() as another:
        producer = AsyncTransactionProducer(client, "shop", Slow(), check_after=0.1)
        producer._producer.transactions.start = lambda: None  # type: ignore[method-assign]  # it hears no question
        async with AsyncTransactionProducer(another, "shop", other):
            with pytest.raises(ContraryDecision, match="execute said commit") as caught:
                await producer.send("orders", "paid")
        await producer.aclose()
    assert caught.value.fate is Fate.CONTRADICTED
    assert decided.is_set()


async def test_a_producer_outlives_kill_9_of_the_server(server: QueueServer) -> None:
    listener = Listener(UNKNOWN, UNKNOWN)
    async with server.client() as client, AsyncTransactionProducer(client, "shop", listener, check_after=0.2) as shop:
        await shop.send("orders", "one")
        await listener.until_asked(1)
        await server.kill()
        listener.checked = [COMMIT]
        sending = asyncio.ensure_future(shop.send("orders", "two"))
        await server.start()
        await sending
        assert {one.body for one in await received(server, 2)} == {b'"one"', b'"two"'}


async def test_nothing_is_executed_where_the_message_is_not_kept(server: QueueServer) -> None:
    from twophase import AsyncClient, RetryPolicy

    listener = Listener()
    await server.kill()
    async with AsyncClient(server.url, retry=RetryPolicy(total=0.1)) as client:
        producer = AsyncTransactionProducer(client, "shop", listener)
        with pytest.raises(NotPrepared) as caught:
            await producer.send("orders", "paid")
        await producer.aclose()
    assert (listener.executions, caught.value.fate) == ([], Fate.NOT_STARTED)
    await server.start()


async def test_blocking_code_sends_and_is_asked_in_a_thread(server: QueueServer) -> None:
    class Shop:
        def __init__(self) -> None:
            self.threads: list[str] = []
            self.answers = [UNKNOWN, COMMIT, COMMIT]

        def execute(self, message: Half, argument: Any) -> Decision:
            self.threads.append(threading.current_thread().name)
            return said(argument, message)

        def check(self, message: Half) -> Decision:
            self.threads.append(threading.current_thread().name)
            return self.answers.pop(0)

    shop = Shop()

    def work() -> None:
        with server.blocking() as client, TransactionProducer(client, "shop", shop, check_after=0.2) as producer:
            assert producer.send("orders", "one", COMMIT).acknowledged
            assert producer.send("orders", "two", ROLLBACK).acknowledged
            with pytest.raises(ValueError, match="broke"):
                producer.send("orders", "three", ValueError("broke"))
            with pytest.raises(RolledBack):
                producer.send("orders", "four", RolledBack)
            with pytest.raises(RolledBack):
                producer.send("orders", "five", RolledBack(gid="another"))
            found = asyncio.run(received(server, 3))
            assert {one.body for one in found} == {b'"one"', b'"three"', b'"five"'}
            own = threading.current_thread().name
            assert shop.threads.count(own) == 5
            assert {name.rpartition("_")[0] for name in shop.threads if name != own} == {"twophase shop"}

    await asyncio.to_thread(work)


@pytest.mark.parametrize(("token", "error"), [("", Unauthenticated), ("billing", Forbidden), ("bound", Forbidden)])
async def test_a_producer_that_may_not_produce_executes_nothing(
    tmp_path: Path, token: str, error: type[Exception]
) -> None:
    write(tmp_path, "bound", [Scope.PRODUCE], destinations=("queue://bills",))
    tokens = write(tmp_path, "billing", [Scope.CONSUME])
    listener = Listener()
    async with (
        queue_server(tmp_path, "--tokens", tokens) as server,
        server.client(token_of(token) if token else None) as client,
        AsyncTransactionProducer(client, "shop", listener) as producer,
    ):
        with pytest.raises(error):
            await producer.send("orders", "paid")
    assert listener.executions == []
