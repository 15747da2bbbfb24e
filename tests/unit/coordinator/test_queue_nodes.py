"""Consumers of queues at two nodes.

One serves a topic, and the other takes over what it gave up or left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import PATIENCE_S
from tests.unit.coordinator.nodes import Node, Nodes
from tests.unit.coordinator.queueing import GROUP, NAME, TOPIC, Asked, order
from twophase.coordinator.queues import Decision, Delivered, Sent, moving
from twophase.core.errors import QueuesElsewhere, QueuesUnavailable, ReceiptStale, StoreError
from twophase.core.lifecycle import State
from twophase.stores.batch import Batch
from twophase.stores.queue_rows import Progress

WAIT_MS = 600_000


async def announced(nodes: Nodes) -> None:
    """Let both nodes serve consumers."""
    for number, node in enumerate((nodes.a, nodes.b), 1):
        await node.coordinator.queues.announce({"test": f"node-{number}:1"})
    await nodes.a.coordinator.queues._owners.look()


async def receive(node: Node, limit: int = 10, topic: str = TOPIC, **options: Any) -> list[Delivered]:
    """Receive as one consumer of the group."""
    options = {
        "expression": "*",
        "invisible_ms": 30_000,
        "wait_ms": WAIT_MS,
        "client_id": "c",
        "auto_renew": False,
        **options,
    }
    receiving = node.coordinator.queues.receive("", GROUP, topic, limit=limit, **options)
    found: list[Delivered] = await asyncio.wait_for(receiving, PATIENCE_S)
    return found


async def send(node: Node, *ids: str) -> None:
    """Send messages with these ids."""
    for sent in await asyncio.wait_for(node.coordinator.queues.send([order(id_) for id_ in ids], None), PATIENCE_S):
        assert isinstance(sent, Sent)


async def ack(node: Node, *delivered: Delivered, topic: str = TOPIC) -> None:
    """Acknowledge."""
    for one in delivered:
        await asyncio.wait_for(node.coordinator.queues.ack("", GROUP, topic, one.handle), PATIENCE_S)


def ids(delivered: list[Delivered]) -> list[str]:
    """Return the ids of messages."""
    return [one.message.message_id for one in delivered]


async def placed(nodes: Nodes) -> tuple[Node, Node]:
    """Return the node that serves the topic, and the other."""
    await announced(nodes)
    servers = await nodes.a.coordinator.queues.servers("", TOPIC)
    assert servers.owner is not None
    return (nodes.a, nodes.b) if servers.owner.is_self else (nodes.b, nodes.a)


async def test_every_node_names_the_same_owner_and_it_alone_serves(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    await send(other, "1")

    with pytest.raises(QueuesElsewhere, match=r"at node-\d:1"):
        await receive(other)
    assert ids(await receive(owner)) == ["1"]

    told = [await node.coordinator.queues.servers("", TOPIC) for node in (owner, other)]
    assert [one.owner.node for one in told if one.owner] == [owner.store.slot[0]] * 2
    assert [[one.node for one in servers.others] for servers in told] == [[other.store.slot[0]]] * 2


@pytest.mark.parametrize("act", ["ack", "extend", "give_back", "dead_letter"])
async def test_an_act_at_another_node_than_the_owner_names_the_owner(nodes: Nodes, act: str) -> None:
    owner, other = await placed(nodes)
    await owner.coordinator.queues.announce({"http": "http://mq-1:36789"})
    await other.coordinator.queues._owners.look()
    await send(owner, "1")
    (one,) = await receive(owner)
    more = (30_000,) if act == "extend" else ()

    with pytest.raises(QueuesElsewhere) as caught:
        await getattr(other.coordinator.queues, act)("", GROUP, TOPIC, one.handle, *more)

    assert caught.value.url == "http://mq-1:36789"
    await ack(owner, one)


async def test_a_node_that_stopped_and_starts_anew_has_another_incarnation(nodes: Nodes) -> None:
    """Clients of the other one know by it that their streams to this one broke."""
    await announced(nodes)
    slot = nodes.b.store.slot[0]
    await nodes.b.coordinator.stop()
    again = Node(nodes.shared, nodes.clock)
    await again.coordinator.start()
    await until(lambda: again.coordinator.queues._moving._announced is not None)  # that it has no address yet
    told = await again.coordinator.queues.announce({"test": "node-2:1"})

    assert (again.store.slot[0], told) == (slot, 1)
    found = {one.addresses["test"]: one.incarnation for one in await nodes.a.coordinator.queues._owners.look()}
    assert found == {"node-1:1": 0, "node-2:1": 1}
    await again.coordinator.stop()


async def test_a_receipt_of_a_dead_owner_is_stale_at_the_next(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    await send(owner, "1")
    (one,) = await receive(owner)
    owner.gates.cut = True
    await until_served(other, 1)

    with pytest.raises(ReceiptStale):
        await ack(other, one)


async def test_a_waiting_consumer_gets_what_another_node_appends(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    waiting = asyncio.ensure_future(receive(owner))
    served = owner.coordinator.queues.serving
    await until(lambda: any(one._waiters for one in served._subscriptions.values()))

    await send(other, "1")

    assert ids(await waiting) == ["1"]


async def test_the_owner_looks_for_entries_of_which_no_notice_comes(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    other.coordinator.queues.serving.on_appended = None
    waiting = asyncio.ensure_future(receive(owner))
    served = owner.coordinator.queues.serving
    await until(lambda: any(one._waiters for one in served._subscriptions.values()))

    await send(other, "1")

    assert ids(await waiting) == ["1"]


async def test_the_last_entries_of_a_node_that_ends_are_seen(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, other = await placed(nodes)
    waiting = asyncio.ensure_future(receive(owner))
    served = owner.coordinator.queues.serving
    await until(lambda: any(one._waiters for one in served._subscriptions.values()))
    read, goes_on, looks = owner.store.queue_ends_of, asyncio.Event(), list[None]()

    async def slow(topics: Sequence[str]) -> dict[tuple[str, int], int]:
        found = await read(topics)
        looks.append(None)
        await goes_on.wait()
        return found

    monkeypatch.setattr(owner.store, "queue_ends_of", slow)
    await until(lambda: bool(looks))
    other.coordinator.queues.serving.on_appended = None  # the notice gets lost

    await send(other, "1")
    await other.coordinator.stop()
    await owner.coordinator.queues._moving._look()
    assert owner.coordinator.queues._moving._is_alone
    goes_on.set()

    assert ids(await waiting) == ["1"]


async def test_entries_of_a_node_that_serves_no_consumers_are_looked_for(nodes: Nodes) -> None:
    await nodes.a.coordinator.queues.announce({"test": "node-1:1"})
    await nodes.a.coordinator.queues._moving._look()
    assert nodes.a.coordinator.queues._moving._is_alone
    waiting = asyncio.ensure_future(receive(nodes.a))
    served = nodes.a.coordinator.queues.serving
    await until(lambda: any(one._waiters for one in served._subscriptions.values()))
    nodes.b.coordinator.queues.serving.on_appended = None  # the notice gets lost

    await send(nodes.b, "1")

    assert ids(await waiting) == ["1"]


async def test_a_group_that_is_reset_while_its_topic_is_lost_is_read_again(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    await send(owner, "1", "2")
    one, two = await receive(owner)
    await ack(owner, one)
    # Another node takes the topic, does the rest, and gives it up.
    await other.store.give_up_topic(TOPIC, owner.coordinator.queues._owners.terms[TOPIC])
    term = await other.store.own_topic(TOPIC) or 0
    await other.store.flush(Batch([], [], progress=[Progress(GROUP, TOPIC, 0, 2, b"", term)]))
    await other.store.give_up_topic(TOPIC, term)

    with pytest.raises(QueuesElsewhere):
        async with owner.coordinator.queues.serving.set_aside([TOPIC], GROUP):
            pass

    assert await receive(owner, wait_ms=0) == []
    with pytest.raises(ReceiptStale):
        await ack(owner, two)


async def test_when_the_owner_dies_only_what_was_in_flight_comes_again(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    await send(other, "1", "2", "3", "4")
    found = await receive(owner, 3)
    await ack(owner, found[0], found[2])
    owner.gates.cut = True

    again = await until_served(other, 10)

    assert [(one.message.message_id, one.attempt) for one in again] == [("2", 2), ("4", 1)]


async def test_a_former_owner_acknowledges_nothing_and_forgets_the_topic(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    await send(owner, "1", "2")
    one, two = await receive(owner)
    await ack(owner, one)
    # Another node takes the topic as if this one had given it up, which it does not know.
    await other.store.give_up_topic(TOPIC, owner.coordinator.queues._owners.terms[TOPIC])
    assert await other.store.own_topic(TOPIC) is not None

    with pytest.raises(QueuesElsewhere):
        await ack(owner, two)

    (progress,) = await other.store.queue_progress(GROUP, TOPIC)
    assert progress.next_number == 1
    with pytest.raises(ReceiptStale) as caught:  # a client that is told of another node repeats it for ever
        await ack(owner, two)
    assert not caught.value.is_superseded
    assert owner.coordinator.queues.serving.topics() == []


async def test_nothing_is_given_out_while_the_lease_is_in_doubt(nodes: Nodes) -> None:
    owner, _ = await placed(nodes)
    await send(owner, "1")
    lease = owner.coordinator._lease
    now_s = lease.now_s
    lease.now_s = lambda: now_s() + 3_600  # it was frozen for an hour, and has not heard of the store since
    owner.gates.cut = True

    receiving = asyncio.ensure_future(receive(owner))
    served = owner.coordinator.queues.serving
    await until(lambda: any(one._waiters for one in served._subscriptions.values()))
    assert not receiving.done()

    owner.gates.cut = False
    assert ids(await receiving) == ["1"]


async def test_a_topic_goes_to_a_node_that_joins_with_what_was_done(nodes: Nodes) -> None:
    await nodes.a.coordinator.queues.announce({"test": "node-1:1"})
    await nodes.b.coordinator.queues.announce({"test": "node-2:1"})
    owner, other = await placed(nodes)
    await owner.store.announce("")
    # Now the other is alone.
    await send(other, "1", "2", "3")

    first = await until_served(other, 2)
    await ack(other, first[0])
    await owner.coordinator.queues.announce({"test": "node-9:1"})
    receiving = asyncio.ensure_future(until_served(owner, 5))
    await until(lambda: TOPIC in other.coordinator.queues._owners.leaving)
    with pytest.raises(QueuesElsewhere):
        await receive(other)
    await ack(other, first[1])

    assert ids(await receiving) == ["3"], "what was acknowledged during the hand-over does not come again"


async def until_served(node: Node, limit: int) -> list[Delivered]:
    """Receive from a node as soon as it serves the topic."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await receive(node, limit)
            except QueuesUnavailable:
                await asyncio.sleep(0.02)


async def test_a_hand_over_that_the_store_does_not_take_is_tried_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, other = await placed(nodes)
    await send(owner, "1", "2")
    (one,) = await receive(owner, 1)
    await ack(owner, one)
    give_up, tried = owner.store.give_up_topic, []

    async def away(topic: str, term: int) -> None:
        tried.append(term)
        if len(tried) == 1:
            raise StoreError("away")
        await give_up(topic, term)

    monkeypatch.setattr(owner.store, "give_up_topic", away)
    await owner.store.announce("")

    assert ids(await until_served(other, 5)) == ["2"]
    assert len(tried) == 2
    assert tried[0] == tried[1]


async def test_a_topic_whose_taking_was_not_answered_is_handed_over(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, other = await placed(nodes)
    take = owner.store.own_topic

    async def lost(topic: str) -> int | None:
        assert await take(topic) is not None
        raise StoreError("the answer was lost, or its consumer has gone")

    monkeypatch.setattr(owner.store, "own_topic", lost)
    with pytest.raises(StoreError, match="lost"):
        await receive(owner)
    monkeypatch.setattr(owner.store, "own_topic", take)
    await send(other, "1")

    await owner.store.announce("")

    assert ids(await until_served(other, 1)) == ["1"]


async def test_nodes_without_a_name_serve_consumers_only_alone(nodes: Nodes) -> None:
    await nodes.a.coordinator.queues.announce({"test": ":8081"})
    await send(nodes.a, "1")
    assert ids(await receive(nodes.a)) == ["1"]

    await nodes.b.coordinator.queues.announce({"test": "node-2:1"})
    for node in (nodes.a, nodes.b):
        await node.coordinator.queues._owners.look()
        with pytest.raises(QueuesUnavailable, match="no address") as caught:
            await receive(node, topic="another")
        assert "rocketmq_address" in caught.value.remedy


async def test_progress_that_was_read_in_an_earlier_term_is_read_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, other = await placed(nodes)
    await send(owner, "1", "2")
    owners = owner.coordinator.queues._owners
    read, reads = owner.store.queue_progress, list[str]()

    async def meanwhile(group: str, topic: str) -> Sequence[Progress]:
        found = await read(group, topic)
        if not reads:  # another node takes the topic, does a message, and gives it up
            term = owners.terms[TOPIC]
            await other.store.give_up_topic(TOPIC, term)
            later = await other.store.own_topic(TOPIC) or 0
            await other.store.flush(Batch([], [], progress=[Progress(GROUP, TOPIC, 0, 1, b"", later)]))
            await other.store.give_up_topic(TOPIC, later)
            owners.lost(TOPIC, term)
        reads.append(topic)
        return found

    monkeypatch.setattr(owner.store, "queue_progress", meanwhile)

    assert ids(await receive(owner)) == ["2"]


async def test_deliveries_are_counted_on_when_a_topic_is_handed_over(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_DRAINS_MAX", 1)
    owner, other = await placed(nodes)
    await send(owner, "1")
    assert [one.attempt for one in await receive(owner)] == [1]

    await owner.store.announce("")

    assert [one.attempt for one in await until_served(other, 1)] == [2]


async def test_a_half_message_at_a_node_without_producers_is_asked_about_by_another(nodes: Nodes) -> None:
    await nodes.b.coordinator.queues.announce({"test": "node-2:1"})
    asked = Asked("p")
    nodes.b.coordinator.queues.attach(asked)
    half = msgspec.structs.replace(order("1"), kind="transaction")
    making = nodes.a.coordinator.queues.half(half, producers=NAME, client_id="p", check_after_ms=1_000, caller=None)
    gid = await asyncio.wait_for(making, PATIENCE_S)

    async with asyncio.timeout(PATIENCE_S):
        while not asked.questions:
            nodes.clock.advance(5_000)
            nodes.shared.renew()
            await asyncio.sleep(0.1)

    assert [one.transaction_id for one in asked.questions] == [gid]
    await nodes.b.coordinator.queues.end(gid, Decision.COMMIT, checked=True, client_id="p", caller=None)
    await nodes.until_state(gid, State.SUCCEEDED)
