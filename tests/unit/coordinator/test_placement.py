"""The choice of the node that serves a topic."""

from __future__ import annotations

import msgspec

from twophase.coordinator.queues import NodeAddress
from twophase.coordinator.queues.placement import Announced, candidates, next_incarnation, owner_of
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

    assert next_incarnation({"mq": "a:1"}, former) == 5
    assert next_incarnation({"mq": "c:1"}, former) == 0
