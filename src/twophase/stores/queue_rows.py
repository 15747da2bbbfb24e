"""The rows of queues: entries, progress, topics and groups."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""The most bytes of the bodies of one page of entries, but for its last."""


class Append(msgspec.Struct, frozen=True):
    """A new entry of a queue: one branch of the message whose change it comes with."""

    topic: str
    queue: int
    branch: int


class Entry(msgspec.Struct, frozen=True):
    """An entry of a queue, with the body of its message's row.

    `number`: its offset. A queue's numbers grow by one in commit order, and a reader sees none before those below it.
    """

    number: int
    gid: str
    branch: int
    stored_ms: int
    body: bytes


class Place(msgspec.Struct, frozen=True):
    """The place of an entry."""

    topic: str
    queue: int
    number: int


class Span(msgspec.Struct, frozen=True):
    """The extent of a queue: its entries have numbers from `first` to before `end`.

    `first` of an empty queue is `end`, and it has no `first_stored_ms`.
    """

    topic: str
    queue: int
    first: int
    end: int
    first_stored_ms: int | None


class Weight(msgspec.Struct, frozen=True):
    """The bytes of an entry's message, with all its branches.

    `stored_ms`: when the entry was stored.
    """

    queue: int
    number: int
    stored_ms: int
    bytes: int


class Weights(msgspec.Struct, frozen=True):
    """The weights of some entries, and how far an archive has history.

    `archived_until_ms`: None without an archive.
    """

    entries: list[Weight]
    archived_until_ms: int | None


class Reader(msgspec.Struct, frozen=True):
    """The position of a group in a queue, without what is unfinished.

    `changed_ms`: when it was last written.
    """

    group: str
    topic: str
    queue: int
    next_number: int
    changed_ms: int


class Progress(msgspec.Struct, frozen=True):
    """The progress of a group in a queue.

    Every entry below `next_number` is done. `unfinished` has what is done above it, and the deliveries of what is not;
    the store does not read it. `term`: that in which its node serves the topic; see `QueueStore.own_topic`.
    """

    group: str
    topic: str
    queue: int
    next_number: int
    unfinished: bytes
    term: int = 0


class Definition(msgspec.Struct, frozen=True):
    """A topic of queues, or a group of consumers.

    `text` has its settings, which the store does not read.
    """

    kind: Literal["topic", "group"]
    name: str
    text: str
