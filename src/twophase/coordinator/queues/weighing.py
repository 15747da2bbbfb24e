"""The bytes that topics of queues keep, and what is beyond a topic's bound.

A topic's bytes are an estimate from a bounded sample: the number of its messages is known from the first and the next
number of each queue, so only their mean size is estimated. No counter is kept for it: one would be written with every
append, and with every removal. A topic with few messages is weighed exactly; with many, the estimate is off by the
spread of their sizes divided by the root of the sample: 4 to 6 % where it is as large as the mean.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final
from zlib import crc32

import msgspec

from twophase.coordinator.runtime import Runtime
from twophase.core.shell import argument
from twophase.stores.queue_rows import Reader, Span, Weight

SAMPLES_MAX: Final = 512
"""Messages of a topic that are looked at, and two more of each queue."""
SAMPLES_OF_MANY: Final = 32
"""The same, where many topics are shown."""
_ALL_DONE: Final = 2**62


class Hold(enum.Enum):
    """The reason why messages beyond a topic's bound stay."""

    HISTORY = "history"
    """History keeps every message so long (`retention_ms`), and with it the body."""
    GROUP = "group"
    """A group that reads the topic has not done them."""
    ARCHIVE = "archive"
    """The archive has not got them."""


class Sample(msgspec.Struct, frozen=True):
    """A message that stands for `count` neighbours in its queue."""

    queue: int
    number: int
    count: int


class Weighed(msgspec.Struct, frozen=True):
    """The bytes of a topic's messages.

    Arguments:
        messages: their number.
        bytes: of all of them, estimated.
        bytes_max: the topic's bound; 0 for none.
        cut_ms: messages that were stored before are beyond the bound; 0 when none is.
        held: the bytes beyond the bound, by what holds them. Without any, the next cleaning removes what is beyond it.
        slowest: the group that has done least, where a group holds them.
    """

    messages: int
    bytes: int
    bytes_max: int = 0
    cut_ms: int = 0
    held: Mapping[Hold, int] = {}
    slowest: str = ""


class Weighing:
    """Weighs topics.

    Arguments:
        runtime: the node's store, clock, settings and observer.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._retention_ms = runtime.settings.retention_ms

    async def weigh(
        self,
        topic: str,
        bytes_max: int,
        now_ms: int,
        spans: Sequence[Span] | None = None,
        samples_max: int = SAMPLES_MAX,
    ) -> Weighed:
        """Return the bytes of a topic's messages.

        Arguments:
            topic: its name.
            bytes_max: its bound in bytes; 0 for none.
            now_ms: the store's clock.
            spans: the extents of its queues, where they are known.
            samples_max: messages that are looked at.
        """
        spans = await self._store.queue_spans(topic) if spans is None else spans
        counts = {(one.queue, one.number): one.count for one in samples(spans, samples_max)}
        if not counts:
            return Weighed(0, 0, bytes_max)
        found = await self._store.queue_weights(topic, list(counts))
        weights = [
            msgspec.structs.replace(one, bytes=one.bytes * counts[one.queue, one.number]) for one in found.entries
        ]
        messages, total = sum(counts.values()), sum(one.bytes for one in weights)
        cut = cut_ms(weights, bytes_max)
        if not cut:
            return Weighed(messages, total, bytes_max)
        least = least_done(await self._store.queue_readers(topic), [one.queue for one in spans])
        history_ms = now_ms - self._retention_ms if self._retention_ms else 0
        held: dict[Hold, int] = {}
        slow: dict[str, int] = {}
        for one in weights:
            if one.stored_ms >= cut:
                continue
            done, group = least[one.queue]
            hold = hold_of(one, done, history_ms, found.archived_until_ms)
            if hold is not None:
                held[hold] = held.get(hold, 0) + one.bytes
            if hold is Hold.GROUP:
                slow[group] = slow.get(group, 0) + one.bytes
        return Weighed(messages, total, bytes_max, cut, held, max(slow, key=slow.__getitem__, default=""))


def samples(spans: Sequence[Span], samples_max: int) -> list[Sample]:
    """Return one message of each stretch of a topic's queues.

    The stretches are equally long, and begin at multiples of their length. The place within a stretch follows no
    rhythm, so that one of large and small messages is not met again and again, and it is the same each time: estimates
    of the same messages agree, and cleanings by several of them do not add up their errors.

    >>> found = samples([Span("orders", 0, 10, 14, 1), Span("orders", 1, 0, 3, 1)], 4)
    >>> [(one.queue, one.number // 2, one.count) for one in found]
    [(0, 5, 2), (0, 6, 2), (1, 0, 2), (1, 1, 1)]
    """
    total = sum(one.end - one.first for one in spans)
    stretch = 1 << max(0, -(-total // samples_max) - 1).bit_length()
    found: list[Sample] = []
    for one in spans:
        begin = one.first
        while begin < one.end:
            block = begin // stretch
            end = min((block + 1) * stretch, one.end)
            place = crc32(f"{one.topic}/{one.queue}/{block}".encode()) % (end - begin)
            found.append(Sample(one.queue, begin + place, end - begin))
            begin = end
    return found


def cut_ms(weights: Sequence[Weight], bytes_max: int) -> int:
    """Return the time before which messages are beyond a bound; 0 when none is.

    The newest ones have at least the bytes of the bound together: the message that reaches it stays.

    Arguments:
        weights: of a topic's messages, in any order.
        bytes_max: the bound; 0 for none.

    >>> weights = [Weight(0, number, stored_ms=1_000 + number, bytes=100) for number in range(5)]
    >>> [cut_ms(weights, bytes_max) for bytes_max in (250, 300, 499, 500, 0)]
    [1002, 1001, 1000, 0, 0]
    """
    left = bytes_max
    for one in sorted(weights, key=lambda one: one.stored_ms, reverse=True) if bytes_max else ():
        left -= one.bytes
        if left < 0:
            return one.stored_ms
    return 0


def least_done(readers: Sequence[Reader], queues: Sequence[int]) -> dict[int, tuple[int, str]]:
    """Return the number below which every group has done a queue, by queue.

    With it comes the group that has done least. A group that reads the topic, and has done nothing of a queue, needs
    all of it. Without a group all is done.

    >>> least_done([Reader("fast", "orders", 0, 9, 1), Reader("slow", "orders", 0, 4, 1)], [0, 1])
    {0: (4, 'slow'), 1: (0, 'fast')}
    """
    done = {(one.group, one.queue): one.next_number for one in readers}
    groups = sorted({one.group for one in readers})
    return {
        queue: min([(done.get((group, queue), 0), group) for group in groups], default=(_ALL_DONE, ""))
        for queue in queues
    }


def hold_of(one: Weight, done: int, history_ms: int, archived_until_ms: int | None) -> Hold | None:
    """Return the hold on a message beyond the bound.

    None when the next cleaning removes it.

    Arguments:
        one: the message.
        done: every group has done the numbers below.
        history_ms: history keeps what was stored then or later.
        archived_until_ms: the archive has what ended before; None without an archive.
    """
    if one.stored_ms >= history_ms:
        return Hold.HISTORY
    if one.number >= done:
        return Hold.GROUP
    if archived_until_ms is not None and one.stored_ms >= archived_until_ms:
        return Hold.ARCHIVE
    return None


def why_held(name: str, weighed: Weighed) -> tuple[str, str]:
    """Return why a topic keeps more than its bound, and what to do.

    Both are empty when nothing holds messages.

    >>> why_held("orders", Weighed(9, 900, 500, 7, {Hold.GROUP: 300}, "billing"))[0]
    "group 'billing' has not done 300 bytes of them"
    """
    texts: list[str] = []
    remedies: list[str] = []
    for hold, size in weighed.held.items():
        if hold is Hold.GROUP:
            texts.append(f"group {weighed.slowest!r} has not done {size} bytes of them")
            remedies.append(f"start its consumers, or remove it: twophase groups remove {argument(weighed.slowest)}")
        elif hold is Hold.HISTORY:
            texts.append(f"history keeps {size} bytes of them (retention_ms)")
            change = f"twophase queues change --retention-bytes BYTES {argument(name)}"
            remedies.append(f"lower retention_ms, or raise the bound: {change}")
        else:
            texts.append(f"the archive has not got {size} bytes of them")
            remedies.append("run the archive: twophase spark archive")
    return "; ".join(texts), "; ".join(remedies)
