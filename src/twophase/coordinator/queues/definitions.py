"""Topics of queues and groups of consumers: their settings, made on first use.

The first definition of a name stands on every node (`QueueStore.define_queue`). All are in memory, and one that is
missing is looked for in the store before it is made.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from twophase.coordinator.queues.contract import GroupInfo, TopicInfo
from twophase.coordinator.runtime import Runtime
from twophase.core.errors import QueueNotFound, WrongMessageKind
from twophase.core.limits import TOPICS_MAX, require
from twophase.core.queue_message import DEAD_LETTERS, full_name
from twophase.stores.queue_rows import Definition

KINDS: Final = ("normal", "fifo", "delay", "transaction")
QUEUES_MAX: Final = 64
ATTEMPTS_MAX: Final = 17
BACKOFF_MS: Final = tuple(
    1_000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
)


class TopicSettings(msgspec.Struct, frozen=True):
    """The stored settings of a topic."""

    queues: Annotated[int, Meta(ge=1, le=QUEUES_MAX)] = 1
    kinds: tuple[str, ...] = KINDS


class GroupSettings(msgspec.Struct, frozen=True):
    """The stored settings of a group."""

    attempts_max: int = ATTEMPTS_MAX
    backoff_ms: Annotated[tuple[int, ...], Meta(min_length=1)] = BACKOFF_MS


S = TypeVar("S", TopicSettings, GroupSettings)


class Definitions:
    """The topics of queues, and the groups."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._made_on_use = runtime.settings.queues_made_on_use
        self._counts = runtime.queue_counts
        self._known: dict[tuple[str, str], TopicSettings | GroupSettings] = {}

    async def load(self) -> None:
        """Read all of them."""
        for definition in await self._store.queue_definitions():
            self._take(definition)

    async def topic(self, namespace: str, name: str) -> TopicInfo:
        """See `QueueApi.topic`."""
        settings = await self._settings("topic", full_name(namespace, name), TopicSettings())
        return TopicInfo(name, namespace, settings.queues, frozenset(settings.kinds))

    async def group(self, namespace: str, name: str) -> GroupInfo:
        """See `QueueApi.group`."""
        settings = await self._settings("group", full_name(namespace, name), GroupSettings())
        return GroupInfo(name, namespace, settings.attempts_max, settings.backoff_ms)

    async def require(self, namespace: str, topic: str, kind: str) -> None:
        """Refuse a message of a kind that the topic does not take.

        Raises:
            WrongMessageKind: so it is.
            InvalidRequest, QueueNotFound: as `topic`.
        """
        taken = (await self.topic(namespace, topic)).kinds
        if kind not in taken:
            raise WrongMessageKind(
                f"topic {topic!r} takes {', '.join(sorted(taken))}, and no message of kind {kind!r}."
            )

    async def _settings(self, kind: str, name: str, default: S) -> S:
        found = self._known.get((kind, name))
        if found is None:
            await self.load()
            found = self._known.get((kind, name))
        if found is None:
            if not self._made_on_use and DEAD_LETTERS not in name:
                raise QueueNotFound(f"there is no {kind} {name!r}, and none is made on first use.")
            require(TOPICS_MAX, len(self._known) + 1, name="topics of queues and groups")
            text = msgspec.json.encode(default).decode()
            self._take(await self._store.define_queue(Definition("topic" if kind == "topic" else "group", name, text)))
            found = self._known[kind, name]
        assert isinstance(found, type(default)), "kinds have their own settings"
        return found

    def _take(self, definition: Definition) -> None:
        if definition.kind == "group":
            self._known["group", definition.name] = msgspec.json.decode(definition.text, type=GroupSettings)
            return
        settings = msgspec.json.decode(definition.text, type=TopicSettings)
        self._known["topic", definition.name] = settings
        if settings.queues > 1:
            self._counts[definition.name] = settings.queues
