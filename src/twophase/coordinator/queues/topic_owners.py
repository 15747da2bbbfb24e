"""The topics whose consumers this node serves, of a store that nodes share.

Promise: a message that a consumer has acknowledged is not given out again, whichever node serves its topic. A node
serves a topic only in a term that the store has given it (`QueueStore.own_topic`), it reads progress after that, and
its progress is written in that term alone. It gives nothing out after its lease (`cluster.lease`): it may be out of
date then. So what a node gives out is not done by what the store has, and of what the former owner gave out only that
comes again which was not acknowledged.

Which node it is, `placement` says. That node asks the store for the topic, and the owner before gives it up or dies;
until then its consumers wait here. A node whose asking was not answered asks again, in order to give the topic up.
"""

from __future__ import annotations

import asyncio
from typing import Final

from twophase.coordinator.cluster.lease import Lease
from twophase.coordinator.queues.contract import HTTP, NodeAddress
from twophase.coordinator.queues.placement import candidates, living, owner_of
from twophase.coordinator.runtime import Runtime
from twophase.core.errors import QueuesElsewhere, QueuesUnavailable, ShuttingDown

LOOK_S: Final = 1.0
"""Time after which the store's nodes are looked at again."""
_RETRY_S: Final = 0.25
"""Pause before the store is asked again for a topic that another node has."""
_REFUSED_MAX: Final = 1_000


class TopicOwners:
    """See the module.

    On a store that is not shared this node owns every topic, in term 0.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        lease: of this node.
    """

    def __init__(self, runtime: Runtime, lease: Lease) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._lease = lease
        self.terms: dict[str, int] = {}
        """The term of each topic that this node owns."""
        self.leaving: set[str] = set()
        """Those of them that it hands over; it gives out nothing of them."""
        self.unsure: set[str] = set()
        """Topics that the store may have given to this node.

        The answer was lost, or came too late.
        """
        self._nodes: tuple[NodeAddress, ...] = ()
        self.others: tuple[tuple[int, int, bool, int], ...] = ()
        """The other nodes' slots at the last look: number, epoch, held, and when seen.

        Whatever a node commits changes what stands here of it.
        """
        self._http_urls: list[str] = []
        self._looked_s = -LOOK_S
        self._looking = asyncio.Lock()
        self._claiming = asyncio.Lock()
        self._refused_s: dict[str, float] = {}
        """When a topic was refused last."""
        self._slots = 0
        """Grows when this node loses its slot."""
        self._stopped = False

    @property
    def is_sure(self) -> bool:
        """True while no other node can have taken a topic of this one."""
        return self._lease.holds

    def term(self, topic: str) -> int | None:
        """Return the term in which this node serves a topic; None when it does not."""
        if not self._store.shared:
            return 0
        return None if topic in self.leaving else self.terms.get(topic)

    async def nodes(self) -> tuple[NodeAddress, ...]:
        """Return the nodes that may serve consumers, as of some seconds ago at most."""
        if self._lease.now_s() - self._looked_s >= 2 * LOOK_S or not self._nodes:
            await self.look()
        return self._nodes

    async def http_urls(self) -> list[str]:
        """Return the URLs that the living nodes have announced.

        They are as of some seconds ago at most.
        """
        await self.nodes()
        return self._http_urls

    async def look(self) -> tuple[NodeAddress, ...]:
        """Return the nodes that may serve consumers now."""
        async with self._looking:
            own, _ = self._store.slot
            seen_after_ms = self._clock.now_ms() - self._store.lease_ms
            seen = await self._store.nodes()
            self._nodes = candidates(seen, own, seen_after_ms)
            live = living(seen, own, seen_after_ms)
            self.others = tuple([(one.node, one.epoch, one.held, one.seen_ms) for one in seen if one.node != own])
            self._http_urls = [one.addresses[HTTP] for one in live if HTTP in one.addresses]
            self._looked_s = self._lease.now_s()
        return self._nodes

    async def own(self, topic: str, until_ms: int) -> int:
        """Return the term in which this node serves a topic's consumers.

        It waits while another node still has the topic, until `until_ms` of the coordinator's clock.

        Raises:
            QueuesElsewhere: another node serves them.
            QueuesUnavailable: the owner before has not given it up in time, or a node has no name.
            StoreFenced: this node has lost its slot.
            ShuttingDown: it ends.
        """
        while True:
            term = self.term(topic)
            if term is not None:
                return term
            if self._stopped:
                raise ShuttingDown
            await self._require_own(topic)
            term = None if topic in self.leaving else await self.claim(topic)
            if term is not None:
                return term
            if self._clock.now_ms() >= until_ms:
                raise QueuesUnavailable(
                    f"the node that served {topic!r} has it until it gives it up, or its lease is over."
                )
            await asyncio.sleep(_RETRY_S)

    async def require_here(self, topic: str) -> None:
        """Refuse an act about a topic that another node serves.

        A topic that this node hands over is served here until another node has it.

        Raises:
            QueuesElsewhere: another node serves it. QueuesUnavailable: a node has no name.
        """
        if self._store.shared and topic not in self.terms:
            await self._require_own(topic)

    async def _require_own(self, topic: str) -> None:
        nodes = await self.nodes()
        unnamed = [one.node for one in nodes if not one.is_named]
        if unnamed and len(nodes) > 1:
            raise QueuesUnavailable(
                f"several nodes serve queues, and node {unnamed[0]} has no address that clients could be told.",
                remedy="Set rocketmq_address on every node; one that has ended counts until its lease is over.",
            )
        if nodes and not (owner := owner_of(topic, nodes)).is_self:
            at, url = ", ".join(owner.addresses.values()), owner.addresses.get(HTTP, "")
            raise QueuesElsewhere(
                f"node {owner.node}{f' at {at}' if at else ''} serves the consumers of {topic!r}"
                f"{'' if url else ', and it has no http_address'}.",
                url=url,
            )

    async def claim(self, topic: str) -> int | None:
        """Ask the store for a topic; return the term, None while another node has it."""
        async with self._claiming:
            if topic in self.terms:
                return self.term(topic)
            now_s, slots = self._lease.now_s(), self._slots
            if now_s - self._refused_s.get(topic, -_RETRY_S) < _RETRY_S:
                return None  # another consumer has just asked
            self.unsure.add(topic)
            term = await self._store.own_topic(topic)
            self.unsure.discard(topic)
            if slots != self._slots:
                return None  # of a slot that this node has lost meanwhile
            if term is not None:
                self._refused_s.pop(topic, None)
                self.terms[topic] = term
                return term
            if len(self._refused_s) >= _REFUSED_MAX:
                self._refused_s.clear()
            self._refused_s[topic] = now_s
            return None

    def has(self, topic: str, term: int) -> bool:
        """Return True while a term is this node's, also during a hand-over."""
        return not self._store.shared or self.terms.get(topic) == term

    def lost(self, topic: str, term: int) -> bool:
        """Note that the store has refused progress of a term; True for this node's."""
        if self.terms.get(topic) != term:
            return False
        del self.terms[topic]
        self.leaving.discard(topic)
        return True

    def forget(self) -> None:
        """Own nothing any more: this node has lost its slot."""
        self._slots += 1
        self.terms.clear()
        self.leaving.clear()
        self.unsure.clear()
        self._nodes = ()

    def stop(self) -> None:
        """Take no topic any more."""
        self._stopped = True
