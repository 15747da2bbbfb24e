"""Operators' changes of topics and groups: made, changed and removed.

Promise: nothing is removed that a consumer, a message or a group still needs, unless the operator says so, and each
change is durable with its row in the audit log before its answer. A definition is compared and set, so a change is
never lost to that of another node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from twophase.coordinator.operator import Act
from twophase.coordinator.queues.definitions import (
    KINDS,
    QUEUES_MAX,
    Definitions,
    GroupSettings,
    TopicSettings,
    definition,
)
from twophase.coordinator.queues.lags import Lags
from twophase.coordinator.queues.serving import Serving
from twophase.coordinator.queues.subscriptions import ASKED_MS
from twophase.coordinator.runtime import Runtime
from twophase.core.errors import InvalidRequest, Overloaded, QueueInUse
from twophase.core.lifecycle import State
from twophase.core.queue_message import group_of_letters, require_full_name, topic_address
from twophase.core.queue_operating import Defined, DefineGroup, DefineTopic, Removed, ShownLag
from twophase.stores.queue_rows import Definition
from twophase.stores.search import Search

_TRIES_MAX: Final = 10
_STEPS_MAX: Final = 100
"""Steps of one request that removes messages."""
_PAGES_MAX: Final = 20
"""Pages of messages that are looked through for those that go to a topic."""
_RETENTION_MS_MAX: Final = 100 * 366 * 24 * 3600 * 1000
_RETENTION_BYTES_LEAST: Final = 1024
_RETENTION_BYTES_MAX: Final = 1 << 50
_PAUSE_MS_MAX: Final = 24 * 3600 * 1000
_PAUSES_MAX: Final = 64
_DELIVERIES_MAX: Final = 1_000

S = TypeVar("S", TopicSettings, GroupSettings)


class Changing:
    """See the module.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        definitions, serving, lags: of the node.
    """

    def __init__(self, runtime: Runtime, definitions: Definitions, serving: Serving, lags: Lags) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._definitions = definitions
        self._serving = serving
        self._lags = lags

    async def define_topic(self, name: str, asked: DefineTopic, act: Act) -> Defined:
        """Make a topic, or change its settings.

        Raises:
            InvalidRequest: a setting that cannot be, such as several queues of dead letters. LimitExceeded: too many
                topics and groups.
        """
        require_full_name(name)
        self._check_topic(name, asked)
        is_empty = all(one.first == one.end for one in await self._store.queue_spans(name))

        def changed(known: TopicSettings) -> TopicSettings:
            queues = known.queues if asked.queues is None else asked.queues
            if queues < known.queues:
                raise InvalidRequest(f"queues: topic {name!r} has {known.queues}, and their number can only grow.")
            kinds = known.kinds if asked.kinds is None else tuple(kind for kind in KINDS if kind in asked.kinds)
            retention_ms = known.retention_ms if asked.retention_ms is None else asked.retention_ms
            bytes_max = known.retention_bytes if asked.retention_bytes is None else asked.retention_bytes
            if bytes_max and retention_ms <= self._settings.retention_ms:
                raise InvalidRequest(
                    f"retention_bytes: topic {name!r} keeps its messages as long as history, and no longer, so a bound"
                    " in bytes would remove nothing earlier.",
                    remedy="Give it a longer time as well (--retention-days), or no bound (--retention-bytes 0).",
                )
            is_new = is_empty and self._definitions.known("topic", name) is None
            settings = msgspec.structs.replace(known, queues=queues) if is_new else known.with_queues(queues)
            return msgspec.structs.replace(settings, kinds=kinds, retention_ms=retention_ms, retention_bytes=bytes_max)

        return await self._define("topic", name, TopicSettings(), changed, act, dry_run=asked.dry_run)

    async def define_group(self, name: str, asked: DefineGroup, act: Act) -> Defined:
        """Make a group, or change its settings. Raises as `define_topic`."""
        require_full_name(name)
        if asked.attempts_max is not None and not 0 <= asked.attempts_max <= _DELIVERIES_MAX:
            raise InvalidRequest(f"attempts_max: 0 to {_DELIVERIES_MAX} deliveries are possible; 0 means no limit.")
        pauses = asked.backoff_ms
        if pauses is not None and not (
            0 < len(pauses) <= _PAUSES_MAX and all(0 < pause <= _PAUSE_MS_MAX for pause in pauses)
        ):
            raise InvalidRequest(f"backoff_ms: 1 to {_PAUSES_MAX} pauses of 1 to {_PAUSE_MS_MAX} ms are needed.")

        def changed(known: GroupSettings) -> GroupSettings:
            attempts_max = known.attempts_max if asked.attempts_max is None else asked.attempts_max
            backoff_ms = known.backoff_ms if pauses is None else tuple(pauses)
            return GroupSettings(attempts_max, backoff_ms, known.made_by)

        return await self._define("group", name, GroupSettings(), changed, act, dry_run=asked.dry_run)

    def _check_topic(self, name: str, asked: DefineTopic) -> None:
        if asked.queues is not None and not 1 <= asked.queues <= QUEUES_MAX:
            raise InvalidRequest(f"queues: a topic has 1 to {QUEUES_MAX}.")
        if asked.queues is not None and asked.queues > 1 and group_of_letters(name):
            raise InvalidRequest(f"queues: {name!r} has dead letters, which are listed and sent again from one queue.")
        if asked.kinds is not None and (not asked.kinds or not set(asked.kinds) <= set(KINDS)):
            raise InvalidRequest(f"kinds: some of {', '.join(KINDS)} are needed.")
        bytes_max = asked.retention_bytes
        if bytes_max and not _RETENTION_BYTES_LEAST <= bytes_max <= _RETENTION_BYTES_MAX:
            raise InvalidRequest(
                f"retention_bytes: 0, or {_RETENTION_BYTES_LEAST} to {_RETENTION_BYTES_MAX} bytes are possible; 0"
                " stands for the server's queue_retention_bytes."
            )
        kept_ms, least_ms = asked.retention_ms, self._settings.retention_ms
        if kept_ms and (not least_ms or not least_ms <= kept_ms <= _RETENTION_MS_MAX):
            how_long = f"for {least_ms} ms (retention_ms)" if least_ms else "for ever (retention_ms is 0)"
            raise InvalidRequest(
                f"retention_ms: history keeps every message {how_long}; a topic may only keep its messages longer, and"
                " 0 stands for as long as history."
            )

    async def _define(
        self, kind: str, name: str, default: S, change: Callable[[S], S], act: Act, *, dry_run: bool
    ) -> Defined:
        for _ in range(_TRIES_MAX):
            await self._definitions.load()
            known = self._definitions.known(kind, name)
            before = default if known is None else msgspec.json.decode(known.text, type=type(default))
            wanted = definition(kind, name, change(before))
            text_before = "" if known is None else known.text
            if dry_run or text_before == wanted.text:
                return Defined(name, text_before, wanted.text)
            if known is None:
                self._definitions.require_room()
            entry = msgspec.structs.replace(act.entry(f"define-{kind}", name), before=text_before, after=wanted.text)
            if await self._store.change_queue(known, wanted, entry):
                self._definitions.take(wanted)
                return Defined(name, text_before, wanted.text)
        raise _changed_by_others()

    async def remove_group(self, name: str, act: Act, *, override: bool, dry_run: bool) -> Removed:
        """Remove a group with all that it has done; its dead letters stay.

        Raises:
            QueueNotFound: it does not exist. QueuesElsewhere: another node serves it.
            QueueInUse: a consumer of it is connected; or it has not done everything, without `override`.
        """
        lags = (await self._lags.group(name, lambda _: True)).lags
        self._require_no_consumer(lags)
        undone = sum(lag.lag for lag in lags)
        if undone and not override and not dry_run:
            where = ", ".join(f"{lag.lag} of {lag.topic}" for lag in lags if lag.lag)
            raise QueueInUse(f"group {name!r} has not done all its messages: {where}. Let it finish, or override.")
        if not dry_run:
            async with self._serving.set_aside(await self._lags.topics_of(name), name):
                await self._remove("group", name, GroupSettings(), act, f"{undone} messages not done")
        return Removed(name, 0, undone, len(lags))

    async def remove_topic(self, name: str, act: Act, *, override: bool, dry_run: bool) -> Removed:
        """Remove a topic with its messages, and with what groups have done of it.

        Raises:
            QueueNotFound: it does not exist. QueuesElsewhere: another node serves it.
            QueueInUse: a consumer of it is connected, or a message that is not final goes to it; or a group has not
                done everything, or none has read it, without `override`.
        """
        topic = await self._lags.topic(name)
        self._require_no_consumer(topic.lags)
        await self._require_no_message(name)
        messages = sum(part.end - part.first for part in topic.parts)
        undone = sum(lag.lag for lag in topic.lags) if topic.lags else messages
        if undone and not override and not dry_run:
            lags = ", ".join(f"group {lag.group!r}: {lag.lag}" for lag in topic.lags if lag.lag) or "no group reads it"
            raise QueueInUse(f"topic {name!r} has messages that are not done ({lags}). Let them be done, or override.")
        if dry_run:
            return Removed(name, messages, undone, len(topic.lags))
        async with self._serving.set_aside([name]):
            removed = await self._empty(
                name, {part.queue: part.end for part in topic.parts if part.first < part.end}, messages, act
            )
            more = bool(await self._store.queue_spans(name)) and await self._is_left(name)
            if not more:
                await self._remove("topic", name, TopicSettings(), act, f"{undone} messages not done")
        return Removed(name, removed, undone, len(topic.lags), more)

    async def _empty(self, name: str, ends: Mapping[int, int], messages: int, act: Act) -> int:
        """Remove as many messages as one request may; return how many.

        What has come since the operator's request was allowed stays, because no group has done it.

        Arguments:
            name: of the topic.
            ends: the number of each queue below which they go.
            messages: their number.
            act: who asks, and why.
        """
        if not messages:
            return 0
        entry = msgspec.structs.replace(act.entry("empty-topic", name), before=f"{messages} messages")
        await self._store.append_audit([entry])  # before the first is gone: the steps are commits of their own
        removed, left = 0, dict(ends)
        for _ in range(_STEPS_MAX):
            if not left:
                break
            began_s, queue = time.monotonic(), min(left)
            step = await self._store.empty_queue(name, queue, left[queue], self._settings.purge_rows)
            removed += step
            if step < self._settings.purge_rows:
                del left[queue]
            await asyncio.sleep(time.monotonic() - began_s)  # half of the time is left to flushes
        return removed

    async def _is_left(self, name: str) -> bool:
        return any(one.first < one.end for one in await self._store.queue_spans(name))

    async def _remove(self, kind: str, name: str, default: S, act: Act, what: str) -> None:
        for _ in range(_TRIES_MAX):
            await self._definitions.load()
            known = self._definitions.known(kind, name)
            if known is None:
                known = await self._made(kind, name, default, act)
            entry = msgspec.structs.replace(
                act.entry(f"remove-{kind}", name), before=f"{known.text}, {what}", after="removed"
            )
            if await self._store.change_queue(known, None, entry):
                self._definitions.forget(kind, name)
                return
        raise _changed_by_others()

    async def _made(self, kind: str, name: str, default: S, act: Act) -> Definition:
        """Make a missing definition, so that the removal has something to compare."""
        wanted = definition(kind, name, default)
        entry = msgspec.structs.replace(act.entry(f"define-{kind}", name), after=wanted.text)
        return await self._store.define_queue(wanted, entry)

    def _require_no_consumer(self, lags: Sequence[ShownLag]) -> None:
        now_ms = self._clock.now_ms()
        for lag in lags:
            silent_ms = now_ms - lag.asked_ms
            if silent_ms < ASKED_MS:
                raise QueueInUse(
                    f"a consumer of group {lag.group!r} has asked for messages of {lag.topic!r} {silent_ms} ms ago."
                    f" Stop the group's consumers, and wait for {ASKED_MS // 1000} s."
                )

    async def _require_no_message(self, name: str) -> None:
        """Refuse while a message that is not final goes to the topic."""
        search = Search(states=frozenset({State.PREPARED, State.SUBMITTED}), destination=topic_address(name))
        position = ""
        for _ in range(_PAGES_MAX):
            found = await self._store.search(search, position, 1)
            if found.rows:
                raise QueueInUse(
                    f"message {found.rows[0].gid!r} goes to topic {name!r} and is not final. Let it end, or stop it."
                )
            position = found.position
            if not position:
                return
        raise QueueInUse(f"too many messages are not final to look through them for those that go to {name!r}.")


def _changed_by_others() -> Overloaded:
    return Overloaded("other nodes change topics and groups at this moment; nothing was changed.")
