"""Operators' acts on queues where two nodes share a store."""

from __future__ import annotations

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.nodes import Node, Nodes
from tests.unit.coordinator.queueing import GROUP, TOPIC, order
from tests.unit.coordinator.test_queue_nodes import ack, ids, placed, receive, send
from twophase.coordinator.operator import Act
from twophase.core.errors import QueuesElsewhere, ReceiptStale, WrongMessageKind
from twophase.core.message import Branch, Message
from twophase.core.queue_message import address_of, queue_of
from twophase.core.queue_operating import DefineTopic, RemoveRequest, ResetRequest

ACT = Act("eve", "again")
EARLIEST = ResetRequest(topic=TOPIC, to="earliest")


async def test_a_group_is_reset_at_the_node_that_serves_the_topic_alone(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    await send(other, "1", "2")
    first, second = await receive(owner)
    await ack(owner, first)

    with pytest.raises(QueuesElsewhere):
        await other.coordinator.queue_operator.reset(GROUP, EARLIEST, ACT)
    with pytest.raises(QueuesElsewhere):
        await other.coordinator.queue_operator.remove_group(GROUP, RemoveRequest(override=True), ACT)
    reset = await owner.coordinator.queue_operator.reset(GROUP, EARLIEST, ACT)

    assert [(one.after, one.repeated, one.skipped) for one in reset.queues] == [(0, 1, 0)]
    with pytest.raises(ReceiptStale):
        await ack(owner, second)
    again = await receive(owner)
    assert ids(again) == ["1", "2"]
    await ack(owner, *again)
    (lag,) = (await other.coordinator.queue_operator.group(GROUP, lambda _: True, "")).group.lags
    assert (lag.next_number, lag.lag) == (2, 0)


async def test_messages_of_a_group_go_to_one_queue_while_the_topic_gets_more(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    await send(other, "0")
    nodes.clock.stand_still()
    group = next(name for name in map(str, range(100)) if queue_of(name, 4) != 0)
    await owner.coordinator.queue_operator.define_topic(TOPIC, DefineTopic(queues=4), ACT)
    queues = [await queue_at(node, group, f"at-once-{index}") for index, node in enumerate((owner, other))]

    nodes.clock.advance(6_000)
    nodes.shared.renew()
    await until(lambda: other.coordinator.queues.definitions.topic_settings(TOPIC).queues == 4)
    queues += [await queue_at(node, group, f"later-{index}") for index, node in enumerate((owner, other))]

    assert queues == [0, 0, 0, 0]


async def test_messages_of_a_group_go_to_one_queue_of_a_topic_that_another_node_has_just_made(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    await owner.coordinator.queue_operator.define_topic(TOPIC, DefineTopic(queues=4), ACT)
    group = next(name for name in map(str, range(100)) if queue_of(name, 4) != 0)

    queues = [await queue_at(node, group, f"{index}") for index, node in enumerate((other, owner))]

    assert queues == [queue_of(group, 4)] * 2


async def queue_at(node: Node, group: str, id_: str) -> int:
    """Submit a plain message of a message group at a node; return its queue."""
    url = address_of(order(id_, kind="fifo", message_group=group))
    assert node.coordinator.queues.why_not(url) is None
    reply = await node.submit(Message(id_, (Branch(url, b"x"),)))
    assert reply.error is None
    place = await node.store.queue_place(id_, 0)
    assert place is not None
    return place.queue


async def test_a_topic_that_one_node_changes_is_known_to_the_other_within_seconds(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    await send(other, "1")
    more = DefineTopic(queues=2, kinds=["normal"])
    await owner.coordinator.queue_operator.define_topic(TOPIC, more, ACT)

    nodes.clock.advance(10_001)
    nodes.shared.renew()
    (refused,) = await other.coordinator.queues.send([order("2", kind="fifo")], None)

    assert isinstance(refused, WrongMessageKind)
    await send(other, *(f"new{number}" for number in range(20)))
    found = await receive(owner, 100)
    assert {one.queue for one in found} == {0, 1}
