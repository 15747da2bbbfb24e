"""The choice of the node that serves the consumers of a topic.

Every node makes it alone, from the same rows of the store, and gets the same result. A node that comes or goes
moves only the topics that it gets or had. For a moment two nodes may see different rows; then the store decides
(`QueueStore.own_topic`), so this choice is about balance, not about correctness.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from twophase.coordinator.queues.contract import HTTP, NodeAddress
from twophase.stores.rows import NodeSeen

_FORMER_MAX: Final = 16
_MARK_BYTES: Final = 4


class Announced(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text of `NodeSeen.served_at`.

    Arguments:
        addresses: `host:port` by the name of a wire format; an empty host is of a node that does not know its name.
        incarnation: another number after each start at these addresses.
        former: the incarnations that other nodes announced in this slot before, by marks of their addresses.
    """

    addresses: dict[str, str] = {}
    incarnation: int = 0
    former: dict[str, int] = {}


def announced(text: str) -> Announced:
    """Return what a node has announced.

    A node of another version may have announced something else, which counts as nothing.

    >>> announced('{"addresses": {"rocketmq": "10.0.0.5:8081"}}').addresses
    {'rocketmq': '10.0.0.5:8081'}
    >>> announced("")
    Announced(addresses={}, incarnation=0, former={})
    """
    try:
        return msgspec.json.decode(text, type=Announced) if text else Announced()
    except msgspec.DecodeError:
        return Announced()


def next_announced(addresses: Mapping[str, str], own: int, nodes: Sequence[NodeSeen]) -> Announced:
    """Return what a node announces at these addresses.

    No node at one of them has announced this incarnation last. A slot goes from node to node, so what others announced
    in it is kept: they may look for it after their next start.
    """
    marks = _marks(addresses)
    known = {node.node: _incarnations(announced(node.served_at)) for node in nodes}
    last = max([one[mark] for one in known.values() for mark in marks & one.keys()], default=-1)
    others = [(mark, number) for mark, number in known.get(own, {}).items() if mark not in marks]
    return Announced(dict(addresses), last + 1, dict(others[-_FORMER_MAX:]))


def _incarnations(slot: Announced) -> dict[str, int]:
    """Return the incarnations known from one slot, by marks; the newest is last."""
    return slot.former | dict.fromkeys(_marks(slot.addresses), slot.incarnation)


def _marks(addresses: Mapping[str, str]) -> set[str]:
    """Return short marks of addresses: a node's row is written by each of its flushes."""
    named = [f"{wire} {address}" for wire, address in sorted(addresses.items())]
    return {hashlib.blake2b(one.encode(), digest_size=_MARK_BYTES).hexdigest() for one in named}


def candidates(nodes: Sequence[NodeSeen], own: int, seen_after_ms: int) -> tuple[NodeAddress, ...]:
    """Return the nodes that may serve consumers.

    They live and have announced an address for RocketMQ's clients, who must find every owner. Where none has, every
    node that lives may serve them: an address for HTTP alone gives no precedence, since the default may lack it.

    Arguments:
        nodes: as the store has them.
        own: the slot of this node.
        seen_after_ms: who was seen later lives.
    """
    found = living(nodes, own, seen_after_ms)
    return tuple([one for one in found if one.addresses.keys() - {HTTP}] or found)


def living(nodes: Sequence[NodeSeen], own: int, seen_after_ms: int) -> tuple[NodeAddress, ...]:
    """Return the nodes that live, with what they have announced.

    The arguments are those of `candidates`.
    """
    live = [node for node in nodes if node.held and (node.seen_ms > seen_after_ms or node.node == own)]
    found: list[NodeAddress] = []
    for node in live:
        slot = announced(node.served_at)
        found.append(NodeAddress(node.node, slot.addresses, slot.incarnation, node.node == own))
    return tuple(found)


def better_for_halves(addresses: Mapping[str, str], among: Sequence[NodeAddress]) -> list[NodeAddress]:
    """Return the nodes that more kinds of producers reach than these addresses.

    Every kind that reaches the latter reaches them, too.

    >>> both = NodeAddress(2, {"rocketmq": "mq:1", "http": "http://mq:2"}, 0, False)
    >>> better_for_halves({"http": "http://mq-1:2"}, [both]) == [both], better_for_halves(both.addresses, [both])
    (True, [])
    """
    return [one for one in among if one.addresses.keys() > addresses.keys()]


def owner_of(topic: str, among: Sequence[NodeAddress]) -> NodeAddress:
    """Return the one of these nodes that serves the consumers of a topic.

    >>> nodes = [NodeAddress(number, {}, 0, False) for number in (1, 2, 3)]
    >>> sorted({owner_of(f"topic-{number}", nodes).node for number in range(50)})
    [1, 2, 3]
    >>> owner = owner_of("orders", nodes)
    >>> owner_of("orders", [one for one in nodes if one == owner or one.node == 3]) == owner
    True
    """
    return max(among, key=lambda one: (_weight(topic, one.node), one.node))


def _weight(topic: str, node: int) -> bytes:
    return hashlib.blake2b(f"{node}/{topic}".encode(), digest_size=8).digest()
