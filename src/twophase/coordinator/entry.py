"""One message in memory, what may happen to it, and what a requester is told.

An `Entry` mirrors a stored row: `state` and `version` are what the store has confirmed, never what is hoped for; only
an `early` one is ahead of its row, by a decision that the check-back would find again. While one of its changes is with
the store it is `busy`, and whatever happens meanwhile waits in `queue`, so a batch never holds two changes of one gid
and the table is always applied to a confirmed state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from twophase.core.errors import TwophaseError
from twophase.core.lifecycle import Event, State
from twophase.core.message import Message
from twophase.core.verdict import BranchResult


class ReplyOf(msgspec.Struct, frozen=True):
    """The one reply to a request.

    `error` None means it was accepted and is durable (or `early`, which the check-back recovers); `state` is the
    message's state now; `prepared_at_ms` is when the store first saw it, in its own clock; `result` is what a first
    delivery round came to, for wait_result.
    """

    error: TwophaseError | None
    state: State
    prepared_at_ms: int = 0
    result: BranchResult | None = None


OnReply = Callable[[ReplyOf], None]


def tell(on_reply: OnReply, reply: ReplyOf) -> None:
    """Give a requester the one reply. What goes wrong in there is the requester's, and stops no message."""
    try:
        on_reply(reply)
    except Exception as error:  # noqa: BLE001 -- reported the way the event loop reports a failing callback
        context = {"message": "a requester failed to take its reply", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


class Occurrence(msgspec.Struct, eq=False):
    """An event with what came along: a request's message and reply, a verdict's evidence.

    `merged` is what the message will be when this occurrence's change is durable, if that is something else.
    `confirmed`: the store has been asked since it arrived, so that what memory says is no older than the request.
    """

    event: Event
    said: Message | None = None
    on_reply: OnReply | None = None
    decided_by: str = ""
    reason: str = ""
    merged: Message | None = None
    confirmed: bool = False


class Entry:
    """One message in memory. Times in milliseconds since 1970.

    `due_ms` is when this process acts, by the clock it follows (a shared store's, or the machine's); `stored_due_ms` is
    what the row says, by the store's.
    `early`: SUBMITTED here, while the row still says PREPARED, because the message chose check-back durability.
    `mine`: this node owns the row. Another's is in memory only while a request or an answer here concerns it: it has
    no timer, no delivery round and no check-back, until a change from here has made it ours.
    """

    __slots__ = (
        "attempts",
        "bucket",
        "busy",
        "bytes",
        "calls",
        "created_ms",
        "decided_by",
        "detached",
        "done",
        "due_ms",
        "early",
        "message",
        "mine",
        "parked",
        "queue",
        "round",
        "state",
        "stored_due_ms",
        "version",
        "waiters",
    )

    def __init__(self, message: Message) -> None:
        self.message = message
        self.state = State.ABSENT
        self.version = 0
        self.created_ms = 0
        self.due_ms = 0
        self.stored_due_ms = 0
        self.decided_by = ""
        self.attempts = 0
        self.parked = False
        self.mine = True
        self.done = 0
        self.bytes = 0
        self.busy = False
        self.early = False
        self.detached = False
        self.queue: deque[Occurrence] | None = None
        self.waiters: list[OnReply] | None = None
        self.bucket: int = -1
        self.calls = 0
        self.round: object | None = None

    def crowded_by(self, waiting_max: int) -> bool:
        """Whether this many occurrences, or this many wait_result requests, wait for it already."""
        queue, waiters = self.queue, self.waiters
        return bool((queue and len(queue) >= waiting_max) or (waiters and len(waiters) >= waiting_max))

    @property
    def all_done(self) -> bool:
        """Whether every branch has succeeded."""
        return self.done == (1 << len(self.message.branches)) - 1
