"""Topics and half messages that move between nodes, and entries of other nodes.

It works in the background on a store that several nodes share. When `placement` gives a topic to another node, the
owner stops giving it out, lets its consumers acknowledge what they have for some seconds, writes what they have done,
and gives the topic up. So a node that joins costs no delivery twice, but for what takes longer.

RocketMQ's producers keep a stream to each node that announces an address for them, and twophase's own poll each node
that announces one for HTTP. A node that lacks one of the two passes half messages, for which no producer is there, on
to a node that has what it has and the other, too.

A node that appends entries of a topic which another node serves sends a notice to all, behind its commit. A notice may
get lost; so each owner looks for new entries by itself, too, as long as any other node commits something, and once more
behind the last of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from twophase.coordinator.background import Background, end, rest
from twophase.coordinator.dispatch.producers import Producers
from twophase.coordinator.queues.contract import NodeAddress
from twophase.coordinator.queues.definitions import Definitions
from twophase.coordinator.queues.placement import Announced, better_for_halves, next_announced, owner_of
from twophase.coordinator.queues.serving import Serving
from twophase.coordinator.queues.topic_owners import LOOK_S, TopicOwners
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.store_faults import as_store_error, log_text
from twophase.core.errors import QueuesElsewhere, StoreFenced

_PASSED_MAX: Final = 1_000
"""Half messages that are passed on at once."""
_ENTRIES_S: Final = 0.25
"""Time after which an owner looks for entries of which no notice came."""
_DRAINED_S: Final = 0.05
_DRAINS_MAX: Final = 100
"""Looks at what consumers have of a topic that goes to another node.

They have five seconds to acknowledge it.
"""


class Moving:
    """See the module.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        owners: the topics of this node.
        serving: its consumers.
        producers: those that have a stream to this node.
        definitions: of topics and groups, which other nodes change.
    """

    def __init__(
        self,
        runtime: Runtime,
        owners: TopicOwners,
        serving: Serving,
        producers: Producers,
        definitions: Definitions,
    ) -> None:
        self._store = runtime.store
        self._observer = runtime.observer
        self._owners = owners
        self._serving = serving
        self._producers = producers
        self._definitions = definitions
        self._addresses: dict[str, str] = {}
        self._announced: tuple[tuple[int, int], dict[str, str]] | None = None
        """The slot and the addresses that were announced last."""
        self._incarnation = 0
        """The incarnation that was announced with them."""
        self._announcing = asyncio.Lock()
        self._is_alone = True
        """True when no other node lives that may serve consumers."""
        self._looked_behind: tuple[tuple[int, int, bool, int], ...] = ()
        """The other nodes as they were known before the last look for their entries."""
        self._appended: set[str] = set()
        """Topics of which the other nodes are to be woken."""
        self._waking: asyncio.Task[None] | None = None
        self._handing_over: dict[str, asyncio.Task[None]] = {}
        self._given_up: dict[str, int] = {}
        """Topics, with their terms, that are still to be given up in the store."""
        self._requested = asyncio.Event()
        self._background = Background("twophase topics")
        if self._store.shared:
            self._store.on_wake(serving.appended_elsewhere)
            serving.on_appended = self._wake_others

    def start(self) -> None:
        """Begin; on a store that is not shared there is nothing to do."""
        if self._store.shared:
            self._background.start(self._loop())

    async def stop(self) -> None:
        """End everything. Safe to call twice."""
        await self._background.stop()
        for task in [*self._handing_over.values(), self._waking]:
            await end(task)
        self._waking = None

    async def announce(self, addresses: Mapping[str, str]) -> int | None:
        """Let other nodes name these addresses to clients, each by its wire format.

        A node that loses its slot announces it anew in the next. Returns as `QueueApi.announce`.

        Raises:
            StoreError: the store does not take it; it is tried again.
        """
        self._addresses.update(addresses)
        if not self._store.shared:
            return None
        await self._announce()
        return self._incarnation

    async def _announce(self) -> None:
        """Announce what was not announced yet in this slot."""
        async with self._announcing:
            now = self._store.slot, dict(self._addresses)
            if self._announced == now:
                return
            slot, addresses = now
            announced = next_announced(addresses, slot[0], await self._store.nodes())
            await self._store.announce(msgspec.json.encode(announced).decode() if announced != Announced() else "")
            self._announced, self._incarnation = (slot, addresses), announced.incarnation
            await self._owners.look()

    async def _loop(self) -> None:
        loop = asyncio.get_running_loop()
        look_s = loop.time()
        while True:
            try:
                await self._announce()
                if loop.time() >= look_s:
                    look_s = loop.time() + LOOK_S
                    await self._look()
                for topic, term in list(self._given_up.items()):
                    await self._store.give_up_topic(topic, term)
                    del self._given_up[topic]
                if not self._is_alone or self._owners.others != self._looked_behind:
                    await self._look_for_entries()
            except Exception as cause:  # noqa: BLE001 -- every failure is tried again, or entries would stay unseen
                error = as_store_error(cause)
                if not isinstance(error, StoreFenced):  # the heartbeat finds that, too
                    self._observer.flush_failed(error.code, log_text(error))
            await rest(LOOK_S if self._is_alone else _ENTRIES_S, self._requested)
            self._requested.clear()

    async def _look(self) -> None:
        nodes = await self._owners.look()
        self._is_alone = all(one.is_self for one in nodes)
        await self._definitions.look()
        await self._pass_on(better_for_halves(self._addresses, nodes))
        for topic, term in list(self._owners.terms.items()):
            if topic in self._handing_over:
                continue
            if not nodes or owner_of(topic, nodes).is_self:
                self._owners.leaving.discard(topic)
                continue
            task = asyncio.get_running_loop().create_task(self._hand_over(topic, term), name="twophase hand-over")
            self._handing_over[topic] = task
        for topic in list(self._owners.unsure):
            await self._owners.claim(topic)  # the next look hands it over, if another node is to serve it

    async def _pass_on(self, nodes: Sequence[NodeAddress]) -> None:
        """Give half messages that wait for a producer to a node with producers."""
        stranded = self._producers.stranded(_PASSED_MAX) if nodes else []
        if stranded:
            await self._store.pass_on(stranded, owner_of(stranded[0][0], nodes).node)

    async def _hand_over(self, topic: str, term: int) -> None:
        """Give a topic up; what fails is tried again with the next look."""
        try:
            self._owners.leaving.add(topic)
            self._serving.wake_topic(topic)
            for _ in range(_DRAINS_MAX):
                if not self._serving.in_flight(topic):
                    break
                await asyncio.sleep(_DRAINED_S)
            await self._serving.write_topic(topic)
            # It is not served any more, whether or not the store hears of it now.
            self._serving.forget_topic(topic, QueuesElsewhere())
            self._owners.lost(topic, term)
            self._given_up[topic] = term
            self._requested.set()
        except Exception as cause:  # noqa: BLE001 -- the next look tries again after every failure
            error = as_store_error(cause)
            self._observer.flush_failed(error.code, log_text(error))
        finally:
            del self._handing_over[topic]

    async def _look_for_entries(self) -> None:
        """Look for what other nodes have appended until now.

        A node may append, and end at once: what was known of it before tells if a later look is needed.
        """
        others, topics = self._owners.others, self._serving.topics()
        if topics:
            self._serving.ends_are(await self._store.queue_ends_of(topics))
        self._looked_behind = others

    def _wake_others(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Wake the owners of topics to which this node has appended."""
        if self._is_alone:
            return
        self._appended.update([topic for topic, _ in ends if topic not in self._owners.terms])
        if self._appended and (self._waking is None or self._waking.done()):
            self._waking = asyncio.get_running_loop().create_task(self._wake(), name="twophase notices")

    async def _wake(self) -> None:
        while self._appended:
            topics: Sequence[str] = tuple(self._appended)
            self._appended.clear()
            try:
                await self._store.wake(topics)
            except Exception as cause:  # noqa: BLE001 -- after every failure the owner looks by itself
                self._observer.flush_failed(as_store_error(cause).code, log_text(cause))
                return
