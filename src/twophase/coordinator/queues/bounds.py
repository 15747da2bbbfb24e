"""The bounds of what topics of queues keep: for how long, and how many bytes.

Both become one time for each topic, before which the cleaning removes entries. So one removal serves both, and its
promises hold for both: nothing goes that a group of the topic has not done, or that an archive has not got, and a queue
loses entries from its old end only. A bound of bytes removes nothing that history keeps anyway (`retention_ms`): the
body is in history's row, so nothing would become free, and an audit compares both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from twophase.coordinator.gauges import KeptGauge
from twophase.coordinator.queues.definitions import Definitions
from twophase.coordinator.queues.weighing import SAMPLES_MAX, SAMPLES_OF_MANY, Hold, Weighed, Weighing, why_held
from twophase.coordinator.runtime import Runtime
from twophase.stores.queue_rows import Span

_LOOKED_AT_MAX: Final = 100 * SAMPLES_MAX
"""Messages that are weighed before a cleaning, and after it, all topics together."""


class Bounds:
    """The bounds of the topics in one cleaning; it implements `retention.Bounds`.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        definitions: of the node.
    """

    def __init__(self, runtime: Runtime, definitions: Definitions) -> None:
        self._definitions = definitions
        self._store = runtime.store
        self._weighing = Weighing(runtime)
        self._settings = runtime.settings
        self._observer = runtime.observer
        self._cuts: dict[str, tuple[int, int]] = {}
        """The bound of each topic that is beyond it, and the time of the cut."""
        self._weighed: dict[str, Weighed] = {}
        self._held: dict[str, frozenset[Hold]] = {}

    async def begin(self, now_ms: int) -> None:
        """Weigh the topics that have a bound, before entries are removed."""
        if self._store.shared:
            await self._definitions.load()  # another node may have changed some
        weighed = await self._weigh_all(now_ms)
        self._cuts = {topic: (one.bytes_max, one.cut_ms) for topic, one in weighed.items() if one.cut_ms}

    def before_ms(self, now_ms: int) -> Mapping[str, int]:
        """Return the time before which entries go, of each topic that has one of its own.

        A bound that was changed since `begin` counts from the next cleaning on.
        """
        history_ms = now_ms - self._settings.retention_ms
        before = {topic: now_ms - kept_ms for topic, kept_ms in self._definitions.retentions().items()}
        bytes_max = self._definitions.bytes_max()
        for topic, (bound, cut_ms) in self._cuts.items():
            if bytes_max.get(topic) == bound:
                before[topic] = max(before[topic], min(cut_ms, history_ms))
        return before

    async def end(self, now_ms: int) -> None:
        """Weigh them again, and report those that keep more than their bound."""
        self._weighed = await self._weigh_all(now_ms)
        held = {topic: frozenset(one.held) for topic, one in self._weighed.items() if one.held}
        for topic, reasons in held.items():
            if self._held.get(topic) != reasons:
                self._observer.topic_over(topic, *why_held(topic, self._weighed[topic]))
        for topic in self._held.keys() - held.keys():
            self._observer.topic_within(topic)
        self._held = held

    async def _weigh_all(self, now_ms: int) -> dict[str, Weighed]:
        weighed: dict[str, Weighed] = {}
        bounds = self._definitions.bytes_max()
        if not bounds:
            return weighed
        spans: dict[str, list[Span]] = {}
        for one in await self._store.queue_spans():
            spans.setdefault(one.topic, []).append(one)
        samples_max = max(SAMPLES_OF_MANY, min(SAMPLES_MAX, _LOOKED_AT_MAX // len(bounds)))
        for topic, bytes_max in bounds.items():
            began_s = time.monotonic()
            of_topic = spans.get(topic, [])
            weighed[topic] = await self._weighing.weigh(topic, bytes_max, now_ms, of_topic, samples_max)
            await asyncio.sleep((time.monotonic() - began_s) * (1 / self._settings.purge_share - 1))
        return weighed

    def gauges(self) -> tuple[KeptGauge, ...]:
        """Return what the topics with a bound had after the last cleaning."""
        return tuple(
            KeptGauge(
                topic, one.messages, one.bytes, one.bytes_max, {hold.value: one.held.get(hold, 0) for hold in Hold}
            )
            for topic, one in self._weighed.items()
        )
