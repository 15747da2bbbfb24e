"""A message in memory, the triggers of its state machine, and the reply.

An `ActiveMessage` mirrors a stored row: `state` and `version` are those that the store has confirmed. Only an `early`
one is ahead of its row, by a decision that the check-back would find again. While one of its changes is with the store
it is `busy`, and triggers wait in `queue`, so a batch never holds two changes of one gid and the table is always
applied to a confirmed state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from twophase.core.audit_log import AuditEntry
from twophase.core.errors import TwophaseError
from twophase.core.lifecycle import Event, State
from twophase.core.message import Branch, Message
from twophase.core.redirect import Move, Redirection
from twophase.core.topic import expansion_of
from twophase.core.verdict import BranchResult
from twophase.core.wheel import Slot
from twophase.stores.queue_rows import Append


class Reply(msgspec.Struct, frozen=True):
    """The one reply to a request.

    `error`: None when the request was accepted and is durable (or `early`, which the check-back recovers); `state`: the
    message's state now; `prepared_at_ms`: the store's time of its prepare; `result`: the result of the first delivery
    round, for wait_result.
    """

    error: TwophaseError | None
    state: State
    prepared_at_ms: int = 0
    result: BranchResult | None = None


class Owner(Protocol):
    """The client that sends a request, where clients have tokens."""

    name: str

    @property
    def reads_answers(self) -> bool:
        """True for a client that may read the texts of branches' answers."""
        ...

    def take_room(self, size: int, /) -> bool:
        """Count a new message, by its bytes of memory; False beyond the quota."""
        ...

    def why_no_room(self, size: int, /) -> str:
        """Return the reason for which the quota allows no new message of this size."""
        ...


NOT_DONE: Final = {State.PREPARED: Event.CHECK_UNDECIDED, State.SUBMITTED: Event.BRANCH_NOT_DONE}
"""The event of a try without a decision, by the state in which it was made."""
_OF_AN_ADDRESS: Final = frozenset({Event.ALL_SUCCEEDED, Event.CHECK_COMMITTED, Event.CHECK_ROLLED_BACK, Event.PARK})

OnReply = Callable[[Reply], None]
Validate = Callable[[Message, Sequence[Move]], None]
"""Called with a redirected message and the changes.

Raises InvalidRequest where it could not be called.
"""


class Waiter(NamedTuple):
    """A wait_result request; `reads_answers` as its owner's."""

    on_reply: OnReply
    reads_answers: bool


def deliver(on_reply: OnReply, reply: Reply) -> None:
    """Give a requester its one reply, whatever its callback raises."""
    try:
        on_reply(reply)
    except Exception as error:  # noqa: BLE001 -- the requester's own; no message stops for it
        report_failed_requester(error)


def report_failed_requester(error: Exception) -> None:
    """Report a requester's error as the event loop reports a failing callback."""
    context = {"message": "a requester failed to take its reply", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)


def answers(future: asyncio.Future[Reply]) -> OnReply:
    """Return a callback that sets the result of `future` to the reply."""

    def on_reply(reply: Reply) -> None:
        if not future.done():
            future.set_result(reply)

    return on_reply


class Audited(msgspec.Struct, eq=False):
    """An operator's act on a message, and whether its row of the audit log is written."""

    entry: AuditEntry
    written: bool = False


class Trigger(msgspec.Struct, eq=False):
    """An event of a message with its request, reply or evidence.

    `merged`: the message after this trigger's change is durable, where that is another one.
    `confirmed`: the store was asked after the trigger arrived, so memory is no older than the request.
    `asked`: a force stop whose producer was asked first and gave no verdict.
    `prepared_only`: a force stop that is meant for a prepared message alone, as every `asked` one is.
    `override`: a force stop that counts without a verdict.
    `pause_ms`: time until the next try; 0 for the schedule's.
    `created_ms`: the birth of a message that was begun at another coordinator; see `stores.base.Insert`.
    `owner`: the client of the request; None for one that may act on every owner's messages.
    `redirection`: the address that an operator wants; `moves`: the changes that follow from it; `validate`: raises
    InvalidRequest when the message as it would be cannot be called.
    `audited`: an operator's act, whose row goes with the change.
    `answered`: a producer's own "unknown", over its connection; it counts as a try.
    `entries`: those of queues that a delayed message brings when it is due; `appended`, `numbers`: the entries of its
    change and their numbers, when they are durable.
    """

    event: Event
    request: Message | None = None
    on_reply: OnReply | None = None
    decided_by: str = ""
    reason: str = ""
    merged: Message | None = None
    confirmed: bool = False
    asked: bool = False
    prepared_only: bool = False
    override: bool = False
    pause_ms: int = 0
    redirection: Redirection | None = None
    moves: tuple[Move, ...] = ()
    validate: Validate | None = None
    created_ms: int | None = None
    owner: Owner | None = None
    audited: Audited | None = None
    answered: bool = False
    entries: tuple[Append, ...] = ()
    appended: tuple[Append, ...] = ()
    numbers: tuple[int, ...] = ()

    def outdate(self, state: State) -> None:
        """Become a try without a decision: its address is no longer the message's."""
        if self.on_reply is None and self.event in _OF_AN_ADDRESS and state in NOT_DONE:
            self.event, self.request = NOT_DONE[state], None


class Round(Protocol):
    """One pass over the branches; `dispatch.delivery` owns it."""

    outstanding: int
    """The number of calls without an answer."""


class ActiveMessage:
    """One message in memory. Times in milliseconds since 1970.

    `calls_to`: the calls of the message, in the order of the bits of `done`: its branches, with a topic's subscribers
    in its place. `call_ids` names them; None when each is a branch. `all_done`: the value of `done` when every call has
    succeeded.
    `due_ms`: the time of the next try by this process' clock (a shared store's, or the machine's); `stored_due_ms`: the
    row's, by the store's clock.
    `early`: SUBMITTED here, while the row is still PREPARED, because the message chose check-back durability.
    `owned`: this node drives the row. A row of another node is in memory only while a request or an answer here
    concerns it: it has no timer, no delivery round and no check-back, until a change from here makes it owned.
    `owner`: the name of its producer's token, empty for none. `holder`: the owner in whose share of memory it counts,
    which is that of the request that brought it until its row is known.
    `parked`: nothing is tried until an operator redrives it.
    `busy`: a change of it, or its look-up, is with the store; `queue` holds the triggers that wait for that.
    `calls`: the number of answers it waits for, of branches, producers and the store; memory keeps it for them.
    `round`: the delivery round under way. `waiters`: the wait_result requests that the round's end answers.
    `slot`: the slot of its due time, None when it has none.
    `detached`: no longer in memory; a late answer changes nothing through it.
    """

    __slots__ = (
        "all_done",
        "attempts",
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
        "holder",
        "message",
        "owned",
        "owner",
        "parked",
        "queue",
        "round",
        "slot",
        "state",
        "stored_due_ms",
        "version",
        "waiters",
    )

    def __init__(self, message: Message) -> None:
        self.message = message
        self.calls_to: tuple[Branch, ...] = message.branches
        self.all_done = (1 << len(message.branches)) - 1
        self.call_ids: tuple[str, ...] | None = None
        self.state = State.ABSENT
        self.version = 0
        self.created_ms = 0
        self.due_ms = 0
        self.stored_due_ms = 0
        self.decided_by = ""
        self.attempts = 0
        self.parked = False
        self.owned = True
        self.owner = ""
        self.holder = ""
        self.done = 0
        self.bytes = 0
        self.busy = False
        self.early = False
        self.detached = False
        self.queue: deque[Trigger] | None = None
        self.waiters: list[Waiter] | None = None
        self.slot: Slot[ActiveMessage] | None = None
        self.calls = 0
        self.round: Round | None = None

    @property
    def quiet(self) -> bool:
        """True when no change, answer or request of it is under way.

        Then only its due time can move it.
        """
        return not (self.busy or self.calls or self.queue or self.waiters or self.round is not None)

    def crowded_by(self, waiting_max: int) -> bool:
        """Return True when this many triggers or wait_result requests wait for it."""
        queue, waiters = self.queue, self.waiters
        return bool((queue and len(queue) >= waiting_max) or (waiters and len(waiters) >= waiting_max))

    def call_id(self, index: int) -> str:
        """Return the id of one of `calls_to`."""
        return self.message.branch_id(index) if self.call_ids is None else self.call_ids[index]

    def become(self, message: Message) -> None:
        """Adopt the content of another message of the same gid.

        It is the stored, completed or redirected one. A round that calls other addresses than these ends here, and its
        answers no longer count.
        """
        before = self.calls_to
        self.message = message
        expansion = expansion_of(message.branches)
        if expansion is None:
            self.calls_to, self.call_ids = message.branches, None
        else:
            self.calls_to, self.call_ids = expansion.branches, expansion.ids
        self.all_done = (1 << len(self.calls_to)) - 1
        if self.round is not None and self.calls_to != before:
            self.round = None
