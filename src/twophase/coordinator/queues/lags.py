"""The positions of groups, as operators see them.

What this node serves is read from memory, and the rest from the store. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twophase.coordinator.queues.cursor import Cursor, done_of
from twophase.coordinator.queues.definitions import Definitions
from twophase.coordinator.queues.serving import Serving
from twophase.coordinator.queues.weighing import SAMPLES_MAX, SAMPLES_OF_MANY, Weighing, why_held
from twophase.coordinator.runtime import Runtime
from twophase.core.errors import QueueNotFound
from twophase.core.queue_message import letters_of
from twophase.core.queue_operating import ShownGroup, ShownLag, ShownQueue, ShownTopic
from twophase.stores.queue_rows import Progress, Span

PAGE_MAX: Final = 100
"""The most topics, or groups, of one page."""

Allowed = Callable[[str], bool]
"""Returns True for the name of a topic that may be shown."""


class Lags:
    """See the module.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        definitions, serving: of the node.
    """

    def __init__(self, runtime: Runtime, definitions: Definitions, serving: Serving) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._weighing = Weighing(runtime)
        self._definitions = definitions
        self._serving = serving

    async def topics(self, position: str, limit: int, allowed: Allowed) -> tuple[list[ShownTopic], str]:
        """Return topics behind a name, and the position of the next page.

        The position is empty at the end.
        """
        await self._definitions.load()
        spans = await self._store.queue_spans()
        names = {*self._definitions.names("topic"), *(one.topic for one in spans if one.first < one.end)}
        page, following = _page([name for name in names if allowed(name)], position, limit)
        shown = [await self._topic(name, [one for one in spans if one.topic == name], SAMPLES_OF_MANY) for name in page]
        return shown, following

    async def topic(self, name: str) -> ShownTopic:
        """Return a topic.

        Raises:
            QueueNotFound: it does not exist, and no message of it.
        """
        await self._definitions.load()
        spans = await self._store.queue_spans(name)
        if self._definitions.known("topic", name) is None and all(one.first == one.end for one in spans):
            raise QueueNotFound(f"there is no topic {name!r}.", remedy="See `twophase queues list`.")
        return await self._topic(name, spans)

    async def _topic(self, name: str, spans: Sequence[Span], samples_max: int = SAMPLES_MAX) -> ShownTopic:
        settings = self._definitions.topic_settings(name)
        bytes_max = self._definitions.bytes_max_of(settings)
        weighed = await self._weighing.weigh(name, bytes_max, self._clock.now_ms(), spans, samples_max)
        why, remedy = why_held(name, weighed)
        groups = {one.group for one in await self._store.queue_readers(name)}
        groups |= {group for group, _ in self._serving.served(topic=name)}
        return ShownTopic(
            name,
            settings.queues,
            list(settings.kinds),
            settings.retention_ms,
            self._definitions.known("topic", name) is not None,
            [ShownQueue(one.queue, one.first, one.end, one.first_stored_ms or 0) for one in spans],
            [lag for group in sorted(groups) for lag in await self.of(group, name, spans)],
            bytes_max,
            weighed.bytes,
            sum(weighed.held.values()),
            f"{why}: {remedy}" if why else "",
        )

    async def groups(self, position: str, limit: int, allowed: Allowed) -> tuple[list[ShownGroup], str]:
        """Return groups behind a name, as `topics`."""
        await self._definitions.load()
        readers = await self._store.queue_readers()
        names = {*self._definitions.names("group"), *(one.group for one in readers)}
        names |= {group for group, _ in self._serving.served()}
        page, following = _page(list(names), position, limit)
        return [await self._group(name, allowed) for name in page], following

    async def group(self, name: str, allowed: Allowed) -> ShownGroup:
        """Return a group.

        Raises:
            QueueNotFound: it does not exist, and nothing that it has done.
        """
        await self._definitions.load()
        await self.require_group(name)
        return await self._group(name, allowed)

    async def require_group(self, name: str) -> None:
        """Refuse a group that neither an operator nor a consumer has made.

        Raises:
            QueueNotFound: it does not exist.
        """
        if self._definitions.known("group", name) is None and not await self.topics_of(name):
            raise QueueNotFound(f"there is no group {name!r}.", remedy="See `twophase groups list`.")

    async def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group reads, by name."""
        read = {one.topic for one in await self._store.queue_readers(group=group)}
        return sorted(read | {topic for _, topic in self._serving.served(group)})

    async def _group(self, name: str, allowed: Allowed) -> ShownGroup:
        settings = self._definitions.group_settings(name)
        lags: list[ShownLag] = []
        for topic in await self.topics_of(name):
            if allowed(topic):
                lags += await self.of(name, topic, await self._store.queue_spans(topic))
        return ShownGroup(
            name,
            settings.attempts_max,
            list(settings.backoff_ms),
            self._definitions.known("group", name) is not None,
            sum(one.end - one.first for one in await self._store.queue_spans(letters_of(name))),
            lags,
        )

    async def of(self, group: str, topic: str, spans: Sequence[Span]) -> list[ShownLag]:
        """Return the position of a group in each queue of a topic.

        Arguments:
            group, topic: their names.
            spans: the extents of the topic's queues that have had a message.
        """
        there = {one.queue: one for one in spans}
        stored = {one.queue: one for one in await self._store.queue_progress(group, topic)}
        queues = sorted({*range(self._definitions.topic_settings(topic).queues), *there, *stored})
        return [
            await self._lag(
                there.get(queue, Span(topic, queue, 0, 0, None)),
                stored.get(queue, Progress(group, topic, queue, 0, b"")),
            )
            for queue in queues
        ]

    async def _lag(self, span: Span, progress: Progress) -> ShownLag:
        subscription = self._serving.served(progress.group, progress.topic).get((progress.group, progress.topic))
        cursor: Cursor | None = None if subscription is None else subscription.cursors.get(progress.queue)
        done = done_of(progress) if cursor is None else cursor.done
        least = max(span.first, done.start)
        lag, oldest = done.missing(least, span.end), None
        if lag:
            oldest = await self._store.queue_first(progress.topic, progress.queue, done.first_missing(least))
        return ShownLag(
            progress.group,
            progress.topic,
            progress.queue,
            least,
            span.end,
            lag,
            0 if oldest is None else oldest[1],
            0 if cursor is None else cursor.in_flight,
            0 if cursor is None else cursor.held_back,
            self._serving.asked_ms(progress.group, progress.topic),
        )


def _page(names: Sequence[str], position: str, limit: int) -> tuple[list[str], str]:
    """Return the names behind a position, and the position of the next page.

    >>> _page(["c", "a", "b"], "", 2), _page(["c", "a", "b"], "b", 2)
    ((['a', 'b'], 'b'), (['c'], ''))
    """
    left = sorted(name for name in names if name > position)
    page = left[: min(limit, PAGE_MAX)]
    return page, page[-1] if len(left) > len(page) else ""
