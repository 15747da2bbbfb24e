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
from typing import Final, Protocol

import msgspec

from twophase.core.errors import TwophaseError
from twophase.core.lifecycle import Event, State
from twophase.core.message import Branch, Message
from twophase.core.redirect import Move, Redirection
from twophase.core.topic import expansion_of
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


NOT_DONE: Final = {State.PREPARED: Event.CHECK_UNDECIDED, State.SUBMITTED: Event.BRANCH_NOT_DONE}
"""A try that did not end the matter, by the state in which it was made."""
_OF_AN_ADDRESS: Final = frozenset({Event.ALL_SUCCEEDED, Event.CHECK_COMMITTED, Event.CHECK_ROLLED_BACK, Event.PARK})

OnReply = Callable[[ReplyOf], None]


def tell(on_reply: OnReply, reply: ReplyOf) -> None:
    """Give a requester the one reply. What goes wrong in there is the requester's, and stops no message."""
    try:
        on_reply(reply)
    except Exception as error:  # noqa: BLE001 -- reported the way the event loop reports a failing callback
        context = {"message": "a requester failed to take its reply", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


def answers(future: asyncio.Future[ReplyOf]) -> OnReply:
    """What gives the reply to whoever awaits `future`, if somebody still does."""

    def on_reply(reply: ReplyOf) -> None:
        if not future.done():
            future.set_result(reply)

    return on_reply


class Occurrence(msgspec.Struct, eq=False):
    """An event with what came along: a request's message and reply, a verdict's evidence.

    `merged` is what the message will be when this occurrence's change is durable, if that is something else.
    `confirmed`: the store has been asked since it arrived, so that what memory says is no older than the request.
    `asked`: a force stop whose producer was asked first and gave no verdict; it is meant for a prepared message alone.
    `pause_ms`: how long until the next try; 0: what the schedule says.
    `created_ms`: the birth of a message that was begun at another coordinator; see `stores.base.Insert`.
    `redirection`: the other address that an operator wants; `moves`: what it came to.
    """

    event: Event
    said: Message | None = None
    on_reply: OnReply | None = None
    decided_by: str = ""
    reason: str = ""
    merged: Message | None = None
    confirmed: bool = False
    asked: bool = False
    pause_ms: int = 0
    redirection: Redirection | None = None
    moves: tuple[Move, ...] = ()
    created_ms: int | None = None

    def outdate(self, state: State) -> None:
        """Be no more than a try that failed: the address that it came from is not the message's any more."""
        if self.on_reply is None and self.event in _OF_AN_ADDRESS and state in NOT_DONE:
            self.event, self.said = NOT_DONE[state], None


class Round(Protocol):
    """One pass over the branches; whose it is, `calling.delivery`, knows the rest."""

    outstanding: int
    """Calls that have not been answered yet."""


class Entry:
    """One message in memory. Times in milliseconds since 1970.

    `calls_to` are the calls its message comes to, in the order of the bits of `done`: its branches, but the subscribers
    of a topic for that. `call_ids` names them; None when each is a branch.

    `due_ms` is when this process acts, by the clock it follows (a shared store's, or the machine's); `stored_due_ms` is
    what the row says, by the store's.
    `early`: SUBMITTED here, while the row still says PREPARED, because the message chose check-back durability.
    `mine`: this node owns the row. Another's is in memory only while a request or an answer here concerns it: it has
    no timer, no delivery round and no check-back, until a change from here has made it ours.
    `parked`: nothing is tried until an operator redrives it.
    `busy`: a change of it, or its look-up, is with the store; `queue` holds what happened meanwhile.
    `calls`: answers that are awaited for it, of branches, producers and the store; it stays in memory for them.
    `round`: the delivery round under way. `waiters`: the wait_result requests that its end answers.
    `bucket`: where the timers keep it, negative for nowhere.
    `detached`: no longer in memory; an answer that comes late changes nothing through it.
    """

    __slots__ = (
        "attempts",
        "bucket",
        "busy",
        "bytes",
        "call_ids",
        "calls",
        "calls_to",
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
        self.calls_to: tuple[Branch, ...] = message.branches
        self.call_ids: tuple[str, ...] | None = None
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
        self.round: Round | None = None

    def crowded_by(self, waiting_max: int) -> bool:
        """Whether this many occurrences, or this many wait_result requests, wait for it already."""
        queue, waiters = self.queue, self.waiters
        return bool((queue and len(queue) >= waiting_max) or (waiters and len(waiters) >= waiting_max))

    @property
    def all_done(self) -> bool:
        """Whether every branch has succeeded."""
        return self.done == (1 << len(self.calls_to)) - 1

    def call_id(self, index: int) -> str:
        """The id of one of `calls_to`."""
        return self.message.branch_id(index) if self.call_ids is None else self.call_ids[index]

    def become(self, message: Message) -> None:
        """Be another message of the same gid: as it was stored, with what came late, or redirected.

        A round that calls other addresses than these ends here; its answers count no more.
        """
        before = self.calls_to
        self.message = message
        expansion = expansion_of(message.branches)
        if expansion is None:
            self.calls_to, self.call_ids = message.branches, None
        else:
            self.calls_to, self.call_ids = expansion.branches, expansion.ids
        if self.round is not None and self.calls_to != before:
            self.round = None
