"""RocketMQ's official consumers, and producers of every kind of message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.rocketmq.conftest import Start
from tests.clients.rocketmq.languages import Command
from tests.clients.rocketmq.programs import Failed, Program, program
from tests.clients.rocketmq.serving import Serving
from twophase.rocketmq_wire.codes import Code

TOPIC = "orders"


async def _sent(start: Start, *bodies: str, **more: object) -> Program:
    """Return a program whose producer has sent normal messages."""
    program = await start()
    await program.do("producer", name="producer", topics=[TOPIC])
    for body in bodies:
        await program.do("send", name="producer", topic=TOPIC, body=body, **more)
    return program


async def test_a_push_consumer_gets_messages_and_those_that_failed_again(server: Serving, start: Start) -> None:
    program = await _sent(start, "one", "two")
    await program.do("push", name="push", group="billing", topic=TOPIC, failures={"two": 1})
    found = await program.until("consumed", "push", 3)
    assert sorted((one["body"], one["attempt"]) for one in found) == [("one", 1), ("two", 1), ("two", 2)]
    await program.do("send", name="producer", topic=TOPIC, body="three")
    assert (await program.until("consumed", "push", 4))[-1]["body"] == "three"
    await program.do("stop", name="push")
    await program.do("stop", name="producer")


@pytest.mark.parametrize("command", ["python", "java", "go"], indirect=True)  # Node.js's client takes one address
async def test_a_client_of_several_addresses_finds_the_server_at_one_of_them(
    server: Serving, command: Command, tmp_path: Path
) -> None:
    await server.start()
    async with program(command, f"127.0.0.1:1;{server.address}", tmp_path) as client:
        await client.do("producer", name="producer", topics=[TOPIC])
        await client.do("send", name="producer", topic=TOPIC, body="one")
        await client.do("push", name="push", group="billing", topic=TOPIC)
        (found,) = await client.until("consumed", "push", 1)
    assert found["body"] == "one"


async def test_a_message_that_keeps_failing_becomes_a_dead_letter(server: Serving, start: Start) -> None:
    await server.define("group", "billing", attempts_max=2, backoff_ms=[1_000])
    program = await _sent(start, "bad")
    await program.do("push", name="push", group="billing", topic=TOPIC, failures={"bad": 9})
    found = await program.until("consumed", "push", 2)
    assert [one["attempt"] for one in found] == [1, 2]
    await program.do("simple", name="dead", group="repair", topic="%DLQ%billing", wait_s=20)
    (letter,) = (await program.do("receive", name="dead"))["messages"]
    assert letter["body"] == "bad"


@pytest.mark.parametrize("command", ["python"], indirect=True)
@pytest.mark.parametrize("group", ["", "order-17"])
async def test_what_succeeds_at_its_only_delivery_is_no_dead_letter(server: Serving, start: Start, group: str) -> None:
    await server.define("topic", TOPIC, kinds=["fifo" if group else "normal"])
    await server.define("group", "billing", attempts_max=1, backoff_ms=[1_000])
    program = await _sent(start, "1", "2", "3", group=group)
    await program.do("push", name="push", group="billing", topic=TOPIC)
    found = await program.until("consumed", "push", 3)
    assert sorted(one["body"] for one in found) == ["1", "2", "3"]
    await program.do("send", name="producer", topic=TOPIC, body="4", group=group)  # after any letter of those
    assert (await program.until("consumed", "push", 4))[-1]["body"] == "4"
    await program.do("stop", name="push")
    assert await server.bodies("%DLQ%billing") == []
    assert {one["attempt"] for one in program.heard("consumed", "push")} == {1}


@pytest.mark.parametrize("command", ["python", "java", "go"], indirect=True)  # Node.js's client knows no such settings
async def test_a_group_without_a_limit_of_deliveries_makes_no_dead_letters(server: Serving, start: Start) -> None:
    await server.define("topic", TOPIC, kinds=["fifo"])
    await server.define("group", "billing", attempts_max=0, backoff_ms=[1_000])
    program = await _sent(start, "1", "2", group="order-17")
    await program.do("push", name="push", group="billing", topic=TOPIC, failures={"1": 2})
    found = await program.until("consumed", "push", 4)
    assert [one["body"] for one in found] == ["1", "1", "1", "2"]
    assert await server.bodies("%DLQ%billing") == []


async def test_a_simple_consumer_acknowledges_extends_and_gets_again(server: Serving, start: Start) -> None:
    program = await _sent(start, "one", "two")
    await program.do("simple", name="simple", group="billing", topic=TOPIC, wait_s=20)
    messages = (await program.do("receive", name="simple"))["messages"]
    one, two = sorted(messages, key=lambda message: message["body"])
    await program.do("ack", name="simple", message_id=one["message_id"])
    await program.do("ack", name="simple", message_id=one["message_id"])  # once more: as RocketMQ answers
    await program.do("extend", name="simple", message_id=two["message_id"], invisible_s=1)
    (again,) = (await program.do("receive", name="simple"))["messages"]
    assert (again["body"], again["attempt"]) == ("two", 2)
    await program.do("ack", name="simple", message_id=again["message_id"])


async def test_a_receipt_from_before_a_redelivery_counts_no_more(server: Serving, start: Start) -> None:
    program = await _sent(start, "one")
    await program.do("simple", name="simple", group="billing", topic=TOPIC, wait_s=20)
    for attempt in (1, 2):
        (message,) = (await program.do("receive", name="simple"))["messages"]
        assert message["attempt"] == attempt
        given = {"name": "simple", "message_id": f"{message['message_id']}/{attempt}"}
        if attempt == 1:
            stale = given
            await program.do("extend", **given, invisible_s=1)
    await program.do("ack", **stale)  # `OK` as RocketMQ answers, and it acknowledges nothing
    with pytest.raises(Failed) as refused:
        await program.do("extend", **stale, invisible_s=600)
    assert refused.value.code == Code.INVALID_RECEIPT_HANDLE
    assert await server.undone("billing") == 1

    await program.do("extend", **given, invisible_s=1)
    (message,) = (await program.do("receive", name="simple"))["messages"]
    assert message["attempt"] == 3
    await program.do("ack", name="simple", message_id=message["message_id"])
    assert await server.undone("billing") == 0


async def test_a_consumer_gets_the_tags_that_it_wants(server: Serving, start: Start) -> None:
    program = await _sent(start)
    for tag in ("new", "paid", "sent"):
        await program.do("send", name="producer", topic=TOPIC, body=tag, tag=tag)
    await program.do("simple", name="simple", group="billing", topic=TOPIC, expression="paid || sent")
    messages = (await program.do("receive", name="simple"))["messages"]
    assert sorted(message["body"] for message in messages) == ["paid", "sent"]


async def test_messages_of_one_group_are_consumed_in_order(start: Start) -> None:
    program = await _sent(start, "1", "2", "3", group="order-17")
    await program.do("push", name="push", group="billing", topic=TOPIC, failures={"1": 1})
    found = await program.until("consumed", "push", 4)
    assert [one["body"] for one in found] == ["1", "1", "2", "3"]
    assert {one["group"] for one in found} == {"order-17"}


@pytest.mark.parametrize("command", ["python", "node", "java"], indirect=True)  # Go's client takes none back
async def test_a_delayed_message_is_taken_back(server: Serving, start: Start) -> None:
    program = await _sent(start)
    later = {"name": "producer", "topic": TOPIC, "delay_ms": 600_000}
    receipt = await program.do("send", body="later", **later)
    assert await server.bodies(TOPIC) == []
    recalled = await program.do("recall", name="producer", topic=TOPIC, handle=receipt["recall_handle"])
    assert recalled["message_id"] == receipt["message_id"]
    again = await program.do("recall", name="producer", topic=TOPIC, handle=receipt["recall_handle"])
    assert again["message_id"] == receipt["message_id"], "the first answer may have been lost"

    with pytest.raises(Failed, match="no message 'queue-unknown'"):  # so it is with one that is kept no longer
        await program.do("recall", name="producer", topic=TOPIC, handle=f"queue-unknown:{receipt['message_id']}")


@pytest.mark.parametrize("command", ["go"], indirect=True)  # instead of the recall that this client does not have
async def test_a_delayed_message_is_stopped_by_an_operator(server: Serving, start: Start) -> None:
    """The client drops the handle of a recall.

    Its receipt has the transaction id, which operators need.
    """
    program = await _sent(start)
    receipt = await program.do("send", name="producer", topic=TOPIC, body="later", delay_ms=600_000)
    assert await server.state(receipt["transaction_id"]) == "submitted"
    await server.stop(receipt["transaction_id"])
    assert await server.state(receipt["transaction_id"]) == "failed"
    assert await server.bodies(TOPIC) == []


async def test_a_delayed_message_arrives_when_it_is_due(server: Serving, start: Start) -> None:
    program = await _sent(start)
    await program.do("send", name="producer", topic=TOPIC, body="later", delay_ms=1_500)
    await program.do("simple", name="simple", group="billing", topic=TOPIC, wait_s=20)
    (message,) = (await program.do("receive", name="simple"))["messages"]
    assert message["body"] == "later"
