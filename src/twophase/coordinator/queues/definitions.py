"""Topics of queues and groups of consumers: their settings, made on first use.

The first definition of a name stands on every node (`QueueStore.define_queue`), until an operator changes it
(`changing`). All are in memory; one that is missing is looked for in the store before it is made, and where nodes share
the store, all are read again every five seconds.

Promise: a definition that a first use makes has a row of the audit log, in one commit. Rows are as few as definitions,
whose number is bounded, so no client can flood the log.

Promise: the messages of a message group are in one queue, also after a topic gets more queues. The queues of message
groups are those with which the topic began; to the others go messages without one, for which it does not matter if a
node has read of the new number yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from twophase.coordinator.background import end
from twophase.coordinator.queues.contract import GroupInfo, TopicInfo
from twophase.coordinator.runtime import Runtime
from twophase.core.audit_log import NOBODY, Actor, AuditEntry
from twophase.core.errors import InvalidRequest, QueueNotFound, StoreError, TooManyTopics, WrongMessageKind
from twophase.core.limits import TOPICS_MAX
from twophase.core.message import Message
from twophase.core.queue_message import QUEUE_PREFIX, full_name, group_of_letters, message_of, topic_of
from twophase.stores.queue_rows import Definition

KINDS: Final = ("normal", "fifo", "delay", "transaction")
QUEUES_MAX: Final = 64
ATTEMPTS_MAX: Final = 17
BACKOFF_MS: Final = tuple(
    1_000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
)
_SHARE: Final = 10
"""One owner makes at most this part of all topics and groups by their first use."""
_REREAD_MS: Final = 5_000
"""Age bound of the definitions in memory, on a store that other nodes change."""


class TopicSettings(msgspec.Struct, frozen=True):
    """The stored settings of a topic.

    `retention_ms`: how long its entries are kept at least; 0 for the coordinator's retention.
    `retention_bytes`: beyond these bytes they are kept as long as history only; 0 for the coordinator's bound.
    `made_by`: the owner whose request was the first use.
    `group_queues`: the number of queues to which messages of message groups go; unset: all.
    """

    queues: Annotated[int, Meta(ge=1, le=QUEUES_MAX)] = 1
    kinds: tuple[str, ...] = KINDS
    retention_ms: int = 0
    retention_bytes: int = 0
    made_by: str | UnsetType = UNSET
    group_queues: Annotated[int, Meta(ge=1, le=QUEUES_MAX)] | UnsetType = UNSET

    @property
    def of_groups(self) -> int:
        """The number of queues to which messages of message groups go."""
        return self.queues if self.group_queues is UNSET else self.group_queues

    def with_queues(self, queues: int) -> TopicSettings:
        """Return the settings with more queues; message groups stay in theirs.

        >>> TopicSettings(2).with_queues(4).with_queues(8)
        TopicSettings(queues=8, ..., group_queues=2)
        """
        return self if queues == self.queues else replace(self, queues=queues, group_queues=self.of_groups)


class GroupSettings(msgspec.Struct, frozen=True):
    """The stored settings of a group. `made_by`: as of a topic."""

    attempts_max: int = ATTEMPTS_MAX
    backoff_ms: Annotated[tuple[int, ...], Meta(min_length=1)] = BACKOFF_MS
    made_by: str | UnsetType = UNSET


S = TypeVar("S", TopicSettings, GroupSettings)


class Definitions:
    """The topics of queues, and the groups."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._made_on_use = runtime.settings.queues_made_on_use
        self._bytes_max = runtime.settings.queue_retention_bytes
        self._counts = runtime.queue_counts
        self._texts: dict[tuple[str, str], str] = {}
        self._known: dict[tuple[str, str], TopicSettings | GroupSettings] = {}
        self._read_ms = 0
        self._loaded_ms = 0
        self._readings = 0
        self._changed: set[tuple[str, str]] = set()
        """Those that this node changed while it read them: what was read may be older."""
        self._reading: asyncio.Task[None] | None = None
        self._making = asyncio.Lock()

    async def load(self) -> None:
        """Read all of them."""
        self._read_ms = began_ms = self._clock.now_ms()
        self._readings += 1
        try:
            found = {(one.kind, one.name): one for one in await self._store.queue_definitions()}
            for kind, name in self._known.keys() - found.keys() - self._changed:
                self._remove(kind, name)
            for key in found.keys() - self._changed:
                self._set(found[key])
            self._loaded_ms = began_ms
        finally:
            self._readings -= 1
            if not self._readings:
                self._changed.clear()

    async def look(self) -> None:
        """Read all of them, where the last reading that succeeded is some seconds ago.

        Raises:
            StoreError: the next look reads them.
        """
        if self._is_old(self._loaded_ms):
            await self.load()

    async def topic(self, namespace: str, name: str, actor: Actor = NOBODY) -> TopicInfo:
        """See `QueueApi.topic`.

        `actor`: the client that asks, for whom a new topic counts.
        """
        settings = await self._settings(
            "topic", full_name(namespace, name), TopicSettings(made_by=actor.who or UNSET), actor
        )
        return TopicInfo(name, namespace, settings.queues, frozenset(settings.kinds))

    async def group(self, namespace: str, name: str, actor: Actor = NOBODY) -> GroupInfo:
        """See `QueueApi.group`. `actor`: as of `topic`."""
        settings = await self._settings(
            "group", full_name(namespace, name), GroupSettings(made_by=actor.who or UNSET), actor
        )
        return GroupInfo(name, namespace, settings.attempts_max, settings.backoff_ms)

    def unmade(self, message: Message) -> Sequence[tuple[str, str]]:
        """See `QueueTopics.unmade`: as far as this node knows."""
        names: dict[tuple[str, str], None] = {}
        for branch in message.branches:
            if branch.url.startswith(QUEUE_PREFIX) and branch.subscribers is None:
                with contextlib.suppress(InvalidRequest):  # it is appended to no queue
                    topic = topic_of(branch.url)
                    if ("topic", full_name(*topic)) not in self._known:
                        names[topic] = None
        return tuple(names)

    async def make(self, topics: Sequence[tuple[str, str]], actor: Actor) -> None:
        """See `QueueTopics.make`."""
        await self.load()
        for topic in topics:
            await self._made("topic", full_name(*topic), TopicSettings(made_by=actor.who or UNSET), actor)

    async def require(self, namespace: str, topic: str, kind: str, actor: Actor = NOBODY) -> None:
        """Refuse a message of a kind that the topic does not take. `actor`: as of `topic`.

        Raises:
            WrongMessageKind: so it is.
            InvalidRequest, QueueNotFound, TooManyTopics: as `topic`.
        """
        taken = (await self.topic(namespace, topic, actor)).kinds
        if kind not in taken:
            raise WrongMessageKind(_wrong_kind(topic, taken, kind))

    def why_not(self, url: str) -> str | None:
        """Return the reason why no message may name a `queue://` address.

        None when a message may. It asks what is in memory: where nodes share the store, a topic that another node has
        made counts within some seconds.
        """
        try:
            message = message_of(url, b"")
            name = full_name(message.namespace, message.topic)
        except InvalidRequest as error:
            return f"bad_url: {error.message}"
        self._load_soon()
        settings = self._known.get(("topic", name))
        if settings is None:
            return self._why_not_made(name)
        assert isinstance(settings, TopicSettings), "kinds have their own settings"
        if message.kind in settings.kinds:
            return None
        return f"wrong_kind: {_wrong_kind(message.topic, frozenset(settings.kinds), message.kind)}"

    def _why_not_made(self, name: str) -> str | None:
        """Return the reason why the first message to a topic does not make it."""
        if not self._is_made("topic", name):
            return _no_such("topic", name)
        try:
            self._require_room_for("topic", name, TopicSettings())
        except TooManyTopics as error:
            return error.message
        return None

    def _load_soon(self) -> None:
        """Read all of them in the background, where other nodes may have changed them."""
        if self._is_old(self._read_ms) and (self._reading is None or self._reading.done()):
            self._reading = asyncio.get_running_loop().create_task(self._load_quietly(), name="twophase queues")

    async def _load_quietly(self) -> None:
        with contextlib.suppress(StoreError):  # the next message that names a queue asks again
            await self.load()

    def _is_old(self, read_ms: int) -> bool:
        age_ms = self._clock.now_ms() - read_ms
        return self._store.shared and not 0 <= age_ms < _REREAD_MS  # below 0: the clock was set back

    async def stop(self) -> None:
        """Read nothing more. A second call is safe."""
        if self._reading is not None:
            await end(self._reading)

    async def _settings(self, kind: str, name: str, default: S, actor: Actor) -> S:
        found = self._known.get((kind, name))
        if found is None or self._is_old(self._read_ms):
            await self.load()
            found = self._known.get((kind, name))
        if found is None:
            found = await self._made(kind, name, default, actor)
        assert isinstance(found, type(default)), "kinds have their own settings"
        return found

    async def _made(self, kind: str, name: str, default: S, actor: Actor) -> TopicSettings | GroupSettings:
        """Return the settings of a name that this use makes, unless another one does."""
        # One at a time: each is a commit, and thousands of calls with a new name would hold up every flush.
        async with self._making:
            if (kind, name) not in self._known:
                if not self._is_made(kind, name):
                    raise QueueNotFound(_no_such(kind, name))
                self._require_room_for(kind, name, default)
                wanted = definition(kind, name, default)
                self.take(await self._store.define_queue(wanted, _first_use(wanted, actor)))
        return self._known[kind, name]

    def _is_made(self, kind: str, name: str) -> bool:
        """Return True for a name that its first use creates.

        By the setting it is any name, or the dead letters of a known group alone.
        """
        if self._made_on_use:
            return True
        return self._are_letters(kind, name)

    def _are_letters(self, kind: str, name: str) -> bool:
        """Return True for the topic with the dead letters of a known group."""
        return kind == "topic" and ("group", group_of_letters(name)) in self._known

    def require_room(self) -> None:
        """Refuse one definition more than there may be; raises TooManyTopics."""
        if len(self._known) >= TOPICS_MAX.value:
            raise TooManyTopics(
                f"there are {len(self._known)} topics of queues and groups, the most that there may be."
            )

    def _require_room_for(self, kind: str, name: str, settings: TopicSettings | GroupSettings) -> None:
        """Refuse to make one more by its first use; what no owner makes needs room alone.

        Dead letters of a group that there is always have room: without their topic they could go nowhere.
        """
        if self._are_letters(kind, name):
            return
        self.require_room()
        owner = settings.made_by
        if owner is UNSET:
            return
        made = sum(one.made_by == owner for one in self._known.values())
        if made >= TOPICS_MAX.value // _SHARE:
            raise TooManyTopics(
                f"{owner!r} has made {made} topics of queues and groups by their first use, its share of the"
                f" {TOPICS_MAX.value} that there may be."
            )

    def known(self, kind: str, name: str) -> Definition | None:
        """Return the definition of a name, as it was read last; None for none."""
        text = self._texts.get((kind, name))
        return None if text is None else Definition("topic" if kind == "topic" else "group", name, text)

    def names(self, kind: str) -> list[str]:
        """Return the names of all topics, or of all groups."""
        return [name for of, name in self._known if of == kind]

    def topic_settings(self, name: str) -> TopicSettings:
        """Return the settings of a topic, by default those of a new one."""
        found = self._known.get(("topic", name), TopicSettings())
        assert isinstance(found, TopicSettings), "kinds have their own settings"
        return found

    def group_settings(self, name: str) -> GroupSettings:
        """Return the settings of a group, by default those of a new one."""
        found = self._known.get(("group", name), GroupSettings())
        assert isinstance(found, GroupSettings), "kinds have their own settings"
        return found

    def retentions(self) -> Mapping[str, int]:
        """Return the retention of each topic that has one of its own, in milliseconds."""
        topics = {name: one for (_, name), one in self._known.items() if isinstance(one, TopicSettings)}
        return {name: one.retention_ms for name, one in topics.items() if one.retention_ms}

    def bytes_max(self) -> Mapping[str, int]:
        """Return the bound in bytes of each topic that has one.

        Without a retention of its own a topic has none: its messages go with history.
        """
        topics = {name: one for (_, name), one in self._known.items() if isinstance(one, TopicSettings)}
        bounds = {name: self.bytes_max_of(one) for name, one in topics.items()}
        return {name: bound for name, bound in bounds.items() if bound}

    def bytes_max_of(self, topic: TopicSettings) -> int:
        """Return the bound in bytes of a topic with these settings; 0 for none."""
        return (topic.retention_bytes or self._bytes_max) if topic.retention_ms else 0

    def take(self, one: Definition) -> None:
        """Take note of a definition that this node has stored."""
        self._note(one.kind, one.name)
        self._set(one)

    def forget(self, kind: str, name: str) -> None:
        """Take note that this node has removed a definition from the store."""
        self._note(kind, name)
        self._remove(kind, name)

    def _note(self, kind: str, name: str) -> None:
        if self._readings:
            self._changed.add((kind, name))

    def _set(self, one: Definition) -> None:
        if self._texts.get((one.kind, one.name)) == one.text:
            return
        self._texts[one.kind, one.name] = one.text
        if one.kind == "group":
            self._known["group", one.name] = msgspec.json.decode(one.text, type=GroupSettings)
            return
        settings = msgspec.json.decode(one.text, type=TopicSettings)
        self._known["topic", one.name] = settings
        self._count(one.name, settings)

    def _count(self, name: str, settings: TopicSettings) -> None:
        """Note to how many queues a topic's messages go; dead letters go to one."""
        if settings.queues > 1 and not group_of_letters(name):
            self._counts[name] = settings.queues, settings.of_groups

    def _remove(self, kind: str, name: str) -> None:
        self._known.pop((kind, name), None)
        self._texts.pop((kind, name), None)
        if kind == "topic":
            self._counts.pop(name, None)


def definition(kind: str, name: str, settings: TopicSettings | GroupSettings) -> Definition:
    """Return a definition as it is stored."""
    return Definition("topic" if kind == "topic" else "group", name, msgspec.json.encode(settings).decode())


def _first_use(wanted: Definition, actor: Actor) -> AuditEntry:
    """Return the row of a definition that no operator made."""
    act = f"define-{wanted.kind}"
    return AuditEntry(actor.who, actor.peer, act, wanted.name, "made by its first use", after=wanted.text)


def _no_such(kind: str, name: str) -> str:
    return f"there is no {kind} {name!r}, and the first use does not create one."


def _wrong_kind(topic: str, taken: frozenset[str], kind: str) -> str:
    return f"topic {topic!r} takes {', '.join(sorted(taken))}, and no message of kind {kind!r}."
