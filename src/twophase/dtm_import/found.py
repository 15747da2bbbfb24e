"""The content of dtm's store, and the protocol of a source.

Times are in milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec


class FoundBranch(msgspec.Struct, frozen=True):
    """One row of `trans_branch_op`."""

    branch_id: str
    op: str
    status: str
    url: str
    payload: bytes


class Found(msgspec.Struct, frozen=True):
    """One transaction that is not finished, with its branches as they stand there.

    `options`, `custom_data` and `ext_data` are dtm's JSON texts. `step_urls` are the addresses as the producer wrote
    them, where the store still has them. `expired`: the store names the gid, and has lost what it stood for; `broken`:
    what it holds cannot be read.
    """

    gid: str
    trans_type: str = "msg"
    status: str = ""
    branches: tuple[FoundBranch, ...] = ()
    query_prepared: str = ""
    protocol: str = ""
    options: str = ""
    custom_data: str = ""
    ext_data: str = ""
    created_ms: int | None = None
    due_ms: int | None = None
    interval_s: int = 0
    step_urls: tuple[str, ...] = ()
    expired: bool = False
    broken: bool = False


class Subscriber(msgspec.Struct, frozen=True):
    """One address of a topic, as dtm writes it into the topic's row."""

    url: str = ""
    remark: str = ""


class Topic(msgspec.Struct, frozen=True):
    """A topic; `subscribers` None when what dtm wrote cannot be read."""

    name: str
    subscribers: tuple[Subscriber, ...] | None


class Others(msgspec.Struct, frozen=True):
    """Unfinished transactions of one kind that are no messages."""

    trans_type: str
    status: str
    count: int


class Source(Protocol):
    """A store of dtm, only read. Every method may raise `SourceError`.

    `nothing_here`: a sentence for a person where nothing is found; empty where that leaves no doubt.
    """

    nothing_here: str

    def mark(self) -> str:
        """Return a text that changes when dtm works on any unfinished transaction."""
        ...

    def count(self) -> int:
        """About how many `pages` will bring."""
        ...

    def pages(self) -> Iterator[Sequence[Found]]:
        """Yield everything unfinished, some at a time.

        Transactions that are no messages may be among them.
        """
        ...

    def others(self) -> Sequence[Others]:
        """Return the transactions that `pages` leaves out because they are no messages."""
        ...

    def topics(self) -> Sequence[Topic]:
        """Return all topics."""
        ...

    def close(self) -> None:
        """Let go of the store. Safe to call twice."""
        ...


_subscribers = msgspec.json.Decoder(list[Subscriber] | None)


def topic(name: str, value: str | bytes | None) -> Topic:
    """Return the topic that dtm stores under this name.

    >>> topic("paid", '[{"url":"http://b/in","remark":""}]').subscribers
    (Subscriber(url='http://b/in', remark=''),)
    >>> topic("paid", "broken").subscribers is None
    True
    """
    try:
        return Topic(name, tuple(_subscribers.decode(value or b"null") or ()))
    except msgspec.MsgspecError:
        return Topic(name, None)
