"""Transactional messages by RocketMQ's official clients.

What is committed arrives, once, and nothing else."""

from __future__ import annotations

from unittest.mock import ANY

from tests.clients.rocketmq.conftest import Proxied, Start
from tests.clients.rocketmq.programs import Program
from tests.clients.rocketmq.serving import Serving
from twophase.rocketmq_wire.codes import Code

TOPIC = "orders"
HIDDEN = [0, 0, 0]
"""The outcomes that Go's client reports: it only logs that a decision was refused."""


async def _producer(start: Start, answer: str = "commit", name: str = "producer") -> Program:
    program = await start()
    await program.do("producer", name=name, topics=[TOPIC], answer=answer)
    return program


async def test_what_is_committed_arrives_and_what_is_rolled_back_does_not(server: Serving, start: Start) -> None:
    program = await _producer(start, "unknown")
    kept = {"tag": "paid", "keys": "k-1", "properties": {"shop": "7"}}
    committed = await program.do("transact", name="producer", topic=TOPIC, body="paid", end=["commit"], **kept)
    rolled_back = await program.do("transact", name="producer", topic=TOPIC, body="void", end=["rollback"])
    assert (committed["errors"], rolled_back["errors"]) == ([0], [0])
    assert await server.bodies(TOPIC) == ["paid"]
    await program.do("simple", name="consumer", group="billing", topic=TOPIC)
    (message,) = (await program.do("receive", name="consumer"))["messages"]
    assert message["body"] == "paid"
    assert message["message_id"] == committed["message_id"]
    assert (message["tag"], message["keys"], message["attempt"]) == ("paid", ["k-1"], 1)
    assert message["properties"]["shop"] == "7"
    assert message["properties"]["__transactionId__"] == committed.get("transaction_id", ANY)  # Java's hides it
    assert not message["corrupted"]
    await program.do("push", name="push", group="shipping", topic=TOPIC)
    (pushed, *_) = await program.until("consumed", "push", 1)
    assert (pushed["body"], pushed["message_id"]) == ("paid", committed["message_id"])


async def test_a_repeated_commit_is_accepted_and_a_contrary_decision_refused(server: Serving, proxied: Proxied) -> None:
    program, proxy = proxied
    answered = [Code.OK, Code.OK, Code.INVALID_TRANSACTION_ID]
    for body, ends in (("paid", ["commit", "commit", "rollback"]), ("void", ["rollback", "rollback", "commit"])):
        ended = await program.do("transact", name="producer", topic=TOPIC, body=body, end=ends)
        assert proxy.ended(ended["message_id"]) == answered
        assert ended["errors"] in ([0, 0, Code.INVALID_TRANSACTION_ID], HIDDEN)
    assert await server.bodies(TOPIC) == ["paid"]


async def test_an_orphan_is_committed_by_another_instance(server: Serving, start: Start) -> None:
    first = await _producer(start, "unknown")
    orphan = await first.do("transact", name="producer", topic=TOPIC, body="paid", end=[])
    await first.kill()
    second = await _producer(start, name="other")
    (question, *_) = await second.until("asked", "other", 1)
    assert (question["body"], question["message_id"]) == ("paid", orphan["message_id"])
    assert question["properties"]["__transactionId__"] == orphan.get("transaction_id", ANY)
    await second.do("simple", name="consumer", group="billing", topic=TOPIC)
    (message,) = (await second.do("receive", name="consumer"))["messages"]
    assert message["message_id"] == orphan["message_id"]
    assert await server.bodies(TOPIC) == ["paid"]


async def test_an_orphan_is_rolled_back_by_a_check(server: Serving, start: Start) -> None:
    program = await _producer(start, "rollback")
    orphan = await program.do("transact", name="producer", topic=TOPIC, body="void", end=[])
    await program.until("asked", "producer", 1)
    late = await program.do("finish", name="producer", message_id=orphan["message_id"], end=["rollback", "commit"])
    assert late["errors"] in ([0, Code.INVALID_TRANSACTION_ID], HIDDEN[1:])
    assert await server.bodies(TOPIC) == []


async def test_a_producer_that_does_not_know_is_asked_again(server: Serving, start: Start) -> None:
    program = await _producer(start, "unknown")
    await program.do("transact", name="producer", topic=TOPIC, body="paid", end=[])
    questions = await program.until("asked", "producer", 3)
    times = [question["properties"]["TRANSACTION_CHECK_TIMES"] for question in questions[:3]]
    # Of the official clients Python's says that it does not know; the others say nothing, which is no answer.
    assert times in (["1", "2", "3"], ["1", "1", "1"])
    assert await server.bodies(TOPIC) == []
    await program.do("answer", name="producer", answer="commit")
    await program.until("asked", "producer", len(questions) + 1)
    await program.do("simple", name="consumer", group="billing", topic=TOPIC)
    (message,) = (await program.do("receive", name="consumer"))["messages"]
    assert message["body"] == "paid"


async def test_a_commit_after_a_check_delivers_once(server: Serving, start: Start) -> None:
    program = await _producer(start)
    orphan = await program.do("transact", name="producer", topic=TOPIC, body="paid", end=[])
    await program.until("asked", "producer", 1)
    late = await program.do("finish", name="producer", message_id=orphan["message_id"], end=["commit"])
    assert late["errors"] == [0]
    assert await server.bodies(TOPIC) == ["paid"]
