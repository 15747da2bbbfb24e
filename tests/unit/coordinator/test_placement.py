"""The choice of the node that serves a topic."""

from __future__ import annotations

import msgspec

from twophase.coordinator.queues import NodeAddress
from twophase.coordinator.queues.placement import Announced, candidates, next_announced, owner_of
from twophase.stores.rows import NodeSeen

NOW_MS = 100_000
TOPICS = [f"topic-{number}" for number in range(300)]


def seen(node: int, address: str = "", *, held: bool = True, ago_ms: int = 0, incarnation: int = 0) -> NodeSeen:
    """Return a node slot."""
    told = msgspec.json.encode(Announced({"mq": address}, incarnation)).decode() if address else ""
    return NodeSeen(node, 1, held, NOW_MS - ago_ms, told)


def numbers(*nodes: NodeSeen, own: int = 1) -> list[int]:
    """Return the nodes that may serve consumers, with a lease of 10 s."""
    return [one.node for one in candidates(nodes, own, NOW_MS - 10_000)]


def addresses(*nodes: int) -> list[NodeAddress]:
    """Return nodes by their slots."""
    return [NodeAddress(node, {}, 0, is_self=False) for node in nodes]


def test_nodes_that_live_and_have_announced_addresses_serve_consumers() -> None:
    assert numbers(seen(1, "a:1"), seen(2, "b:1"), seen(3), seen(4, "d:1", held=False)) == [1, 2]
    assert numbers(seen(1, "a:1"), seen(2, "b:1", ago_ms=10_001)) == [1]
    assert numbers(seen(1, "a:1", ago_ms=10_001), seen(2, "b:1")) == [1, 2], (
        "the store knows best whether this one lives"
    )


def test_where_none_has_announced_addresses_every_node_serves_consumers() -> None:
    assert numbers(seen(1), seen(2), seen(3, held=False)) == [1, 2]


def test_what_another_version_has_announced_counts_as_nothing() -> None:
    foreign = msgspec.structs.replace(seen(2), served_at="b:1")

    assert numbers(seen(1, "a:1"), foreign) == [1]


def test_topics_are_spread_over_the_nodes() -> None:
    owners = [owner_of(topic, addresses(1, 2, 3)).node for topic in TOPICS]

    assert all(owners.count(node) > len(TOPICS) / 6 for node in (1, 2, 3))


def test_only_the_topics_of_a_node_that_comes_or_goes_move() -> None:
    before = {topic: owner_of(topic, addresses(1, 2)).node for topic in TOPICS}
    after = {topic: owner_of(topic, addresses(1, 2, 3)).node for topic in TOPICS}

    assert {after[topic] for topic in TOPICS if after[topic] != before[topic]} == {3}


def test_a_node_that_starts_anew_at_its_address_has_another_incarnation_in_whatever_slot() -> None:
    former = [seen(1, "a:1", incarnation=4, held=False), seen(2, "b:1", incarnation=7), seen(3, "a:1", incarnation=2)]

    assert next_announced({"mq": "a:1"}, 2, former).incarnation == 5
    assert next_announced({"mq": "c:1"}, 2, former).incarnation == 0


def test_a_node_has_another_incarnation_also_when_others_have_taken_its_slots() -> None:
    slots = {1: "", 2: ""}

    def start(address: str, slot: int) -> int:
        nodes = [NodeSeen(node, 1, node != slot, NOW_MS, told) for node, told in slots.items()]
        told = next_announced({"mq": address, "http": f"http://{address}"}, slot, nodes)
        slots[slot] = msgspec.json.encode(told).decode()
        return told.incarnation

    assert [start("a:1", 1), start("b:1", 2)] == [0, 0]
    assert [start("b:1", 1), start("a:1", 2)] == [1, 1]  # both have stopped, and b is the first to start
    assert [start("a:1", 1), start("c:1", 2), start("c:1", 1)] == [2, 0, 1]
    assert [start("b:1", 1), start("a:1", 2)] == [2, 3]
    for number in range(100):
        start(f"d-{number}:1", 1)
    assert len(slots[1]) < 400
    assert start("d-99:1", 2) == 1
