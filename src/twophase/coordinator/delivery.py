"""Calls a submitted message's branches until every one has succeeded.

Keeps I2: a round that does not end the matter is followed by another, for ever, at most one backoff cap later.
I1 is kept by who calls `begin`: only a SUBMITTED entry comes here, durable or decided by its producer's submit with
check-back durability (`Entry.early`). Branches are called in order, or all
at once when the message says `concurrent`; one that has succeeded is not called again (its bit in `done` is
stored with the next due time; after a crash before that, it is: I6 is the branch barrier's).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from twophase.coordinator.calls import Calls
from twophase.coordinator.decisions import Decisions
from twophase.coordinator.entry import Entry, Occurrence, ReplyOf
from twophase.coordinator.evidence import attempt_of
from twophase.coordinator.observer import Observer
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core import failpoint
from twophase.core.errors import NotYetDelivered
from twophase.core.hooks import Clock
from twophase.core.lifecycle import Event, State
from twophase.core.verdict import BranchResult, interpret_branch
from twophase.destinations.base import Answer, Call
from twophase.stores.base import AttemptKind

# Names of this module: see `decisions`.
_SUBMITTED: Final = State.SUBMITTED
_ALL_SUCCEEDED: Final = Event.ALL_SUCCEEDED
_SUCCEEDED: Final = BranchResult.SUCCEEDED


class _Round:
    """One pass over the branches that have not succeeded yet."""

    __slots__ = ("outstanding", "worst")

    def __init__(self) -> None:
        self.outstanding = 0
        self.worst: BranchResult | None = None


class Delivery:
    """Performs delivery rounds."""

    def __init__(
        self, calls: Calls, decisions: Decisions, settings: CoordinatorSettings, clock: Clock, observer: Observer
    ) -> None:
        self._calls = calls
        self._decisions = decisions
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self.headers: tuple[tuple[str, str], ...] = ()
        """What every call carries beside its message's own headers."""

    def begin(self, entry: Entry) -> None:
        """Start a round for a submitted message that has none."""
        assert entry.state is _SUBMITTED, "only a decision calls branches"
        assert entry.round is None, "one round at a time"
        if self._calls.draining or entry.detached:
            return
        round_ = entry.round = _Round()
        if entry.all_done:
            self._end(entry, round_)
        elif entry.message.options.concurrent:
            wanted = [i for i in range(len(entry.message.branches)) if not entry.done >> i & 1]
            round_.outstanding = len(wanted)
            for index in wanted:
                self._approach(entry, round_, index)
        else:
            self._next(entry, round_)

    def _next(self, entry: Entry, round_: _Round) -> None:
        for index in range(len(entry.message.branches)):
            if not entry.done >> index & 1:
                round_.outstanding = 1
                self._approach(entry, round_, index)
                return
        self._end(entry, round_)

    def _approach(self, entry: Entry, round_: _Round, index: int) -> None:
        url = entry.message.branches[index].url
        if not url:
            self._take(entry, round_, index, _SUCCEEDED)
            return
        build = partial(self._call, index)
        if not self._calls.start(entry, url, build, partial(self._answered, entry, round_, index)):
            self._take(entry, round_, index, BranchResult.ONGOING)

    def _call(self, index: int, entry: Entry) -> Call:
        if failpoint.ARMED:
            failpoint.reach("coordinator.before_branch_call")
        message = entry.message
        branch = message.branches[index]
        options = message.options
        return Call(
            branch.url,
            (
                ("branch_id", message.branch_id(index)),
                ("gid", message.gid),
                ("op", "action"),
                ("trans_type", "msg"),
            ),
            branch.payload,
            options.headers + self.headers if options.headers else self.headers,
            options.request_timeout_ms or self._settings.request_timeout_ms,
        )

    def _answered(self, entry: Entry, round_: _Round, index: int, key: str, answer: Answer) -> None:
        if failpoint.ARMED:
            failpoint.reach("coordinator.after_branch_call")
        result = interpret_branch(answer.status, answer.body)
        self._observer.branch_answered(result, key, answer.latency_ms / 1000)
        if entry.detached:
            return
        if result is not _SUCCEEDED:
            self._note(entry, index, answer, result)
        self._take(entry, round_, index, result)

    def _take(self, entry: Entry, round_: _Round, index: int, result: BranchResult) -> None:
        round_.outstanding -= 1
        if result is _SUCCEEDED:
            entry.done |= 1 << index
            if not entry.message.options.concurrent and not self._calls.draining and not entry.all_done:
                self._next(entry, round_)
                return
        elif round_.worst is None or result is not BranchResult.ONGOING:
            round_.worst = result
        if round_.outstanding == 0:
            self._end(entry, round_)

    def _end(self, entry: Entry, round_: _Round) -> None:
        assert entry.round is round_, "a round ends once"
        entry.round = None
        if entry.all_done:
            self._decisions.happen(entry, Occurrence(_ALL_SUCCEEDED))
            return
        # ONGOING asks to come again at the same pace; anything else slows down.
        if round_.worst is not None and round_.worst is not BranchResult.ONGOING:
            entry.attempts += 1
        self._decisions.happen(entry, Occurrence(Event.BRANCH_NOT_DONE))
        if entry.waiters:
            result = round_.worst or BranchResult.ONGOING
            error = NotYetDelivered(f"a branch answered {result.value}: wait result not return success.")
            self._decisions.answer_waiters(entry, ReplyOf(error, entry.state, entry.created_ms, result))

    def _note(self, entry: Entry, index: int, answer: Answer, result: BranchResult) -> None:
        message = entry.message
        self._decisions.committer.record(
            attempt_of(
                message.gid,
                AttemptKind.BRANCH,
                message.branch_id(index),
                message.branches[index].url,
                self._clock.now_ms(),
                answer,
                result.value,
            )
        )
