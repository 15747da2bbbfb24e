"""Another position for a group: earliest, latest, or by time.

Promise: the new position, and the act's row in the audit log, are one commit. What the group acknowledged before is
durable, and counts in what the answer says; receipts of messages that were given out before are stale afterwards.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twophase.coordinator.operator import Act
from twophase.coordinator.queues.cursor import done_of
from twophase.coordinator.queues.definitions import Definitions
from twophase.coordinator.queues.lags import Lags
from twophase.coordinator.queues.serving import Serving
from twophase.core.errors import InvalidRequest, QueuesElsewhere
from twophase.core.queue_message import require_full_name
from twophase.core.queue_operating import Reset, ResetRequest, ShownReset
from twophase.stores.base import Store
from twophase.stores.queue_rows import Progress, Span

TARGETS: Final = ("earliest", "latest", "time")


class Resetting:
    """See the module.

    Arguments:
        store, definitions, serving, lags: of the node.
    """

    def __init__(self, store: Store, definitions: Definitions, serving: Serving, lags: Lags) -> None:
        self._store = store
        self._definitions = definitions
        self._serving = serving
        self._lags = lags

    async def reset(self, group: str, asked: ResetRequest, act: Act) -> Reset:
        """Give a group another position in a topic.

        Raises:
            QueueNotFound: no such group, or no such topic.
            InvalidRequest: another target, or a queue that the topic does not have.
            QueuesElsewhere, QueuesUnavailable: another node serves the topic.
        """
        if asked.to not in TARGETS:
            raise InvalidRequest(f"to: {asked.to[:45]!r}, one of {', '.join(TARGETS)} is needed.")
        require_full_name(asked.topic)
        await self._lags.topic(asked.topic)
        await self._lags.require_group(group)
        if asked.dry_run:
            cursors = self._serving.served(group, asked.topic).get((group, asked.topic))
            own = {} if cursors is None else {queue: one.progress() for queue, one in cursors.cursors.items()}
            return Reset(group, asked.topic, await self._moves(group, asked, own))
        async with self._serving.set_aside([asked.topic], group):
            term = await self._serving.term(asked.topic)
            moves = await self._moves(group, asked, {})
            before, after = ({move.queue: move.before for move in moves}, {move.queue: move.after for move in moves})
            entry = msgspec.structs.replace(
                act.entry("reset-group", group), before=_listed(asked.topic, before), after=_listed(asked.topic, after)
            )
            progress = [Progress(group, asked.topic, move.queue, move.after, b"", term) for move in moves]
            if not await self._store.reset_queues(progress, entry):
                raise QueuesElsewhere(f"another node has just taken topic {asked.topic!r}; nothing was changed.")
        return Reset(group, asked.topic, moves)

    async def _moves(self, group: str, asked: ResetRequest, own: dict[int, Progress]) -> list[ShownReset]:
        spans = {one.queue: one for one in await self._store.queue_spans(asked.topic)}
        stored = {one.queue: one for one in await self._store.queue_progress(group, asked.topic)} | own
        queues = sorted({*range(self._definitions.topic_settings(asked.topic).queues), *spans})
        if asked.queue is not None and asked.queue not in queues:
            raise InvalidRequest(f"queue: topic {asked.topic!r} has none of the number {asked.queue}.")
        return [
            await self._move(
                spans.get(queue, Span(asked.topic, queue, 0, 0, None)),
                stored.get(queue, Progress(group, asked.topic, queue, 0, b"")),
                asked,
            )
            for queue in queues
            if asked.queue in {None, queue}
        ]

    async def _move(self, span: Span, progress: Progress, asked: ResetRequest) -> ShownReset:
        done = done_of(progress)
        target = {"earliest": span.first, "latest": span.end}.get(asked.to)
        if target is None:
            target = await self._first_from(span, asked.at_ms)
        repeated = span.end - target - done.missing(target, span.end)
        skipped = done.missing(span.first, target)
        return ShownReset(span.queue, max(span.first, done.start), target, repeated, skipped)

    async def _first_from(self, span: Span, at_ms: int) -> int:
        """Return the first number that was appended at a time or later; the end for none.

        Numbers grow with time, so it takes some twenty looks by an index.
        """
        least, end = span.first, span.end
        while least < end:
            middle = (least + end) // 2
            found = await self._store.queue_first(span.topic, span.queue, middle)
            if found is None or found[1] >= at_ms:
                end = middle
            else:
                least = found[0] + 1
        return least


def _listed(topic: str, positions: dict[int, int]) -> str:
    """Return positions for the audit log.

    >>> _listed("orders", {0: 17, 1: 4})
    'orders: queue 0 at 17, queue 1 at 4'
    """
    return f"{topic}: " + ", ".join(f"queue {queue} at {number}" for queue, number in positions.items())
