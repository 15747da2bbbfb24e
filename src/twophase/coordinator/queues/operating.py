"""Operators' view of queues, groups, half messages and letters, and their acts.

It gives each request that reads many rows its turn, and passes each act to the part that performs it.
"""

from __future__ import annotations

from twophase.coordinator.dispatch.producers import Producers
from twophase.coordinator.operator import Act
from twophase.coordinator.queues.changing import Changing
from twophase.coordinator.queues.halves import Halves, is_half
from twophase.coordinator.queues.lags import Allowed, Lags
from twophase.coordinator.queues.letters import Edit, Letters
from twophase.coordinator.queues.resetting import Resetting
from twophase.coordinator.queues.service import Queues
from twophase.coordinator.queues.waits import Waits
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.acts import Acts
from twophase.coordinator.view import MessageView
from twophase.core.queue_operating import (
    Defined,
    DefineGroup,
    DefineTopic,
    ManyGroups,
    ManyHalves,
    ManyLetters,
    ManyTopics,
    OneGroup,
    OneTopic,
    QueueSituation,
    RedriveLetters,
    RedrivenLetters,
    Removed,
    RemoveRequest,
    Reset,
    ResetRequest,
)
from twophase.stores.search import Search


class QueueOperator:
    """See the module. `client`: the name of who asks, for its turn.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        queues, producers: of the node.
        acts: performs an act with its row in the audit log.
    """

    def __init__(self, runtime: Runtime, queues: Queues, producers: Producers, acts: Acts) -> None:
        self._clock = runtime.clock
        self._turns = runtime.page_turns
        definitions, serving = queues.definitions, queues.serving
        self._lags = Lags(runtime, definitions, serving)
        self._changing = Changing(runtime, definitions, serving, self._lags)
        self._resetting = Resetting(runtime.store, definitions, serving, self._lags)
        self._letters = Letters(runtime.store, queues.append, acts)
        self._halves = Halves(runtime, producers)
        self._waits = Waits(runtime.store, runtime.clock, definitions, serving)

    async def topics(self, position: str, limit: int, allowed: Allowed, client: str) -> ManyTopics:
        """Return a page of the topics that are allowed."""
        async with self._turns.of(client):
            topics, following = await self._lags.topics(position, limit, allowed)
        return ManyTopics(topics, following, self._clock.now_ms())

    async def topic(self, name: str, client: str) -> OneTopic:
        """Return a topic; raises QueueNotFound."""
        async with self._turns.of(client):
            return OneTopic(await self._lags.topic(name), self._clock.now_ms())

    async def groups(self, position: str, limit: int, allowed: Allowed, client: str) -> ManyGroups:
        """Return a page of groups, with their positions in the topics that are allowed."""
        async with self._turns.of(client):
            groups, following = await self._lags.groups(position, limit, allowed)
        return ManyGroups(groups, following, self._clock.now_ms())

    async def group(self, name: str, allowed: Allowed, client: str) -> OneGroup:
        """Return a group; raises QueueNotFound."""
        async with self._turns.of(client):
            return OneGroup(await self._lags.group(name, allowed), self._clock.now_ms())

    async def halves(self, search: Search, position: str, limit: int, client: str) -> ManyHalves:
        """Return a page of half messages; `search` is `halves.HALVES`, narrowed."""
        async with self._turns.of(client):
            halves, following = await self._halves.page(search, position, limit)
        return ManyHalves(halves, following, self._clock.now_ms())

    async def letters(
        self, group: str, position: int, limit: int, allowed: Allowed, client: str, *, with_bodies: bool
    ) -> ManyLetters:
        """Return a page of a group's dead letters, those from topics that are allowed."""
        async with self._turns.of(client):
            letters, following = await self._letters.page(group, position, limit, allowed, with_bodies=with_bodies)
        return ManyLetters(group, letters, following, self._clock.now_ms())

    async def situation(self, view: MessageView) -> QueueSituation:
        """Return what queues and producers have to do with a message."""
        half = self._halves.shown(view) if is_half(view) else None
        return QueueSituation(await self._waits.places(view), half, self._clock.now_ms())

    async def define_topic(self, name: str, asked: DefineTopic, act: Act) -> Defined:
        """See `Changing.define_topic`."""
        return await self._changing.define_topic(name, asked, act)

    async def define_group(self, name: str, asked: DefineGroup, act: Act) -> Defined:
        """See `Changing.define_group`."""
        return await self._changing.define_group(name, asked, act)

    async def remove_topic(self, name: str, asked: RemoveRequest, act: Act) -> Removed:
        """See `Changing.remove_topic`."""
        return await self._changing.remove_topic(name, act, override=asked.override, dry_run=asked.dry_run)

    async def remove_group(self, name: str, asked: RemoveRequest, act: Act) -> Removed:
        """See `Changing.remove_group`."""
        return await self._changing.remove_group(name, act, override=asked.override, dry_run=asked.dry_run)

    async def reset(self, group: str, asked: ResetRequest, act: Act) -> Reset:
        """See `Resetting.reset`."""
        return await self._resetting.reset(group, asked, act)

    async def redrive(
        self, group: str, asked: RedriveLetters, edit: Edit, act: Act, allowed: Allowed
    ) -> RedrivenLetters:
        """See `Letters.redrive`."""
        return await self._letters.redrive(group, asked, edit, act, allowed)
