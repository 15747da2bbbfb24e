"""A bound of bytes where the owner of the topic changes.

What a former owner acknowledges removes nothing.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.coordinator.nodes import Node, Nodes
from tests.unit.coordinator.queueing import TOPIC, order
from tests.unit.coordinator.test_queue_nodes import ack, ids, placed, receive, until_served
from twophase.coordinator.operator import Act
from twophase.coordinator.queues import Sent
from twophase.core.errors import QueuesElsewhere
from twophase.core.queue_operating import DefineTopic

DAY_MS = 24 * 3_600_000
ACT = Act("eve", "the disk is small")
BOUNDED = DefineTopic(retention_ms=1_000 * DAY_MS, retention_bytes=25_000)


async def send_old(nodes: Nodes, node: Node, number: int) -> None:
    """Send messages of 10 kB that history keeps no longer.

    Their times are set back, as a clock that jumps would end the nodes' leases.
    """
    for one in range(number):
        message = msgspec.structs.replace(order(f"{one}"), body=bytes(10_000))
        (sent,) = await node.coordinator.queues.send([message], None)
        assert isinstance(sent, Sent)
    nodes.shared.age(36 * DAY_MS)


async def there(node: Node) -> list[int]:
    return [entry.number for entry in await node.store.queue_page(TOPIC, 0, 0, 100)]


async def test_what_a_former_owner_acknowledges_too_late_is_not_removed(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    nodes.clock.stand_still()
    await owner.coordinator.queue_operator.define_topic(TOPIC, BOUNDED, ACT)
    await send_old(nodes, other, 6)
    found = await receive(owner)
    assert len(found) == 6
    await ack(owner, found[0])
    # Another node takes the topic as if this one had given it up, which it does not know.
    await other.store.give_up_topic(TOPIC, owner.coordinator.queues._owners.terms[TOPIC])
    assert await other.store.own_topic(TOPIC) is not None
    with pytest.raises(QueuesElsewhere):
        await ack(owner, *found[1:])

    for node in (owner, other):
        await node.coordinator._retention._run()

    assert await there(owner) == [1, 2, 3, 4, 5]
    (kept,) = other.coordinator.gauges().kept
    assert kept.held["group"] > 0


async def test_the_next_owner_s_acknowledgements_let_the_other_node_clean(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    await owner.coordinator.queue_operator.define_topic(TOPIC, BOUNDED, ACT)
    await send_old(nodes, other, 6)
    found = await receive(owner)
    await ack(owner, *found[:2])
    await owner.store.announce("")  # the other alone may serve from now on

    again = await until_served(other, 10)
    assert ids(again) == ["2", "3", "4", "5"]
    await owner.coordinator._retention._run()
    assert await there(owner) == [2, 3, 4, 5]
    await ack(other, *again)
    await owner.coordinator._retention._run()

    assert await there(owner) == [3, 4, 5]


async def test_a_bound_that_one_node_takes_away_holds_for_the_cleaning_of_the_other(nodes: Nodes) -> None:
    owner, other = await placed(nodes)
    nodes.clock.stand_still()
    await owner.coordinator.queue_operator.define_topic(TOPIC, BOUNDED, ACT)
    await other.coordinator.queues.definitions.load()
    await send_old(nodes, other, 6)
    await ack(owner, *await receive(owner))

    await owner.coordinator.queue_operator.define_topic(TOPIC, DefineTopic(retention_bytes=0), ACT)
    await other.coordinator._retention._run()

    assert await there(other) == [0, 1, 2, 3, 4, 5]
