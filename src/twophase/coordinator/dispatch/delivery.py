"""Calls a submitted message's branches until every one has succeeded.

Keeps I2: a round that does not end the matter is followed by another, for ever, at most one backoff cap later.
I1 is kept by who calls `begin`: only a SUBMITTED entry comes here, durable or decided by its producer's submit with
check-back durability (`Entry.early`). Branches are called in order, or all
at once when the message says `concurrent`; one that has succeeded is not called again (its bit in `done` is
stored with the next due time; after a crash before that, it is: I6 is the branch barrier's). None is called before the
message's delay or time has come, whoever wishes a round: the timer, an operator, or a node that took the message over.
A message that may fail only so often is parked after that: durable, visible, and redriven with all its attempts.
One that finds no place, because too many wait for its destination already, comes again and its row stays as it is:
were each written anew, a destination that hangs would take the store from all others.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from twophase.coordinator.dispatch.alerts import AlertEvent, Alerts
from twophase.coordinator.dispatch.calls import Calls
from twophase.coordinator.dispatch.evidence import attempt_of
from twophase.coordinator.observer import Observer
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Entry, Occurrence, ReplyOf
from twophase.coordinator.state.machine import ATTEMPTS_USED_UP, Decisions
from twophase.coordinator.topics import Topics
from twophase.core import failpoint
from twophase.core.errors import NotYetDelivered
from twophase.core.hooks import Clock
from twophase.core.lifecycle import Event, State
from twophase.core.topic import TOPIC_PREFIX, late_id
from twophase.core.verdict import BranchResult, interpret_branch
from twophase.destinations.base import Answer, Call
from twophase.stores.base import Attempt, AttemptKind

# Names of this module: see `decisions`.
_SUBMITTED: Final = State.SUBMITTED
_ALL_SUCCEEDED: Final = Event.ALL_SUCCEEDED
_SUCCEEDED: Final = BranchResult.SUCCEEDED
_NOBODY: Final = Answer(0, error="topic not found: it has no subscriber")


class _Round:
    """One pass over the branches that have not succeeded yet."""

    __slots__ = ("failed", "no_place_ms", "outstanding", "progress", "worst")

    def __init__(self) -> None:
        self.outstanding = 0
        self.no_place_ms = -1
        """How long others have waited where it found no place; negative: it found one everywhere."""
        self.worst: BranchResult | None = None
        self.failed: Attempt | None = None
        self.progress = False


class Delivery:
    """Performs delivery rounds."""

    def __init__(
        self,
        topics: Topics,
        calls: Calls,
        decisions: Decisions,
        alerts: Alerts,
        settings: CoordinatorSettings,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._topics = topics
        self._calls = calls
        self._decisions = decisions
        self._alerts = alerts
        self._settings = settings
        self._strict = settings.strict
        self._clock = clock
        self._observer = observer
        self._carried: tuple[tuple[str, str], ...] = ()

    def carry(self, *headers: tuple[str, str]) -> None:
        """What every call carries from now on beside its message's own headers."""
        self._carried = headers

    def begin(self, entry: Entry) -> None:
        """Start a round for a submitted message that has none."""
        assert entry.state is _SUBMITTED, "only a decision calls branches"
        assert entry.round is None, "one round at a time"
        if self._calls.draining or entry.detached:
            return
        options = entry.message.options
        if options.delay_ms or options.not_before_ms:
            first_call_ms = self._decisions.times.first_call_ms(entry.message, entry.created_ms)
            if first_call_ms > self._clock.now_ms():
                self._decisions.postpone(entry, first_call_ms)
                return
        round_ = entry.round = _Round()
        if entry.all_done:
            self._end(entry, round_)
        elif entry.message.options.concurrent:
            wanted = [i for i in range(len(entry.calls_to)) if not entry.done >> i & 1]
            round_.outstanding = len(wanted)
            for index in wanted:
                self._approach(entry, round_, index)
        else:
            self._next(entry, round_)

    def _next(self, entry: Entry, round_: _Round) -> None:
        for index in range(len(entry.calls_to)):
            if not entry.done >> index & 1:
                round_.outstanding = 1
                self._approach(entry, round_, index)
                return
        self._end(entry, round_)

    def _approach(self, entry: Entry, round_: _Round, index: int) -> None:
        url = entry.calls_to[index].url
        if not url:
            self._take(entry, round_, index, _SUCCEEDED)
            return
        if entry.call_ids is not None and url.startswith(TOPIC_PREFIX):
            self._approach_topic(entry, round_, index)
            return
        build = partial(self._call, round_, index)
        if not self._calls.start(entry, url, build, partial(self._answered, entry, round_, index, url)):
            round_.no_place_ms = max(round_.no_place_ms, self._calls.waited_ms(entry, url))
            self._take(entry, round_, index, BranchResult.ONGOING)

    def _call(self, round_: _Round, index: int, entry: Entry) -> Call | None:
        if entry.round is not round_:
            return None  # redirected while it waited for its place
        if failpoint.ARMED:
            failpoint.reach("coordinator.before_branch_call")
        message = entry.message
        branch = entry.calls_to[index]
        options = message.options
        return Call(
            branch.url,
            (
                ("branch_id", entry.call_id(index)),
                ("gid", message.gid),
                ("op", "action"),
                ("trans_type", "msg"),
            ),
            branch.payload,
            self._carried + options.headers + options.trace if options.headers or options.trace else self._carried,
            options.request_timeout_ms or self._settings.request_timeout_ms,
        )

    def _answered(self, entry: Entry, round_: _Round, index: int, url: str, key: str, answer: Answer) -> None:
        if failpoint.ARMED:
            failpoint.reach("coordinator.after_branch_call")
        result = interpret_branch(answer.status, answer.body, strict=self._strict or entry.message.options.strict)
        self._observer.branch_answered(result, key, answer.latency_ms / 1000)
        if entry.detached or entry.round is not round_:
            self._note_late(entry, entry.call_id(index), url, answer, result)
            return
        if result is not _SUCCEEDED:
            self._note(entry, round_, entry.call_id(index), url, answer, result)
        self._take(entry, round_, index, result)

    def _approach_topic(self, entry: Entry, round_: _Round, index: int) -> None:
        """Call whoever has subscribed by now. Its one bit is set when every one of them has succeeded."""
        assert entry.call_ids is not None, "its message names a topic"
        branch_id, topic = entry.call_ids[index], entry.calls_to[index].url
        urls = self._topics.subscribers(topic, entry.message.protocol)
        if not urls:
            self._note(entry, round_, branch_id, topic, _NOBODY, BranchResult.ERROR)
            self._take(entry, round_, index, BranchResult.ERROR)
            return
        late = _Round()
        late.outstanding = len(urls)
        for url in urls:
            id_ = late_id(branch_id, url)
            build = partial(self._call_subscriber, round_, index, id_, url)
            if not self._calls.start(
                entry, url, build, partial(self._subscriber_answered, entry, round_, index, late, id_, url)
            ):
                round_.no_place_ms = max(round_.no_place_ms, self._calls.waited_ms(entry, url))
                self._take_late(entry, round_, index, late, BranchResult.ONGOING)

    def _call_subscriber(self, round_: _Round, index: int, branch_id: str, url: str, entry: Entry) -> Call | None:
        call = self._call(round_, index, entry)
        if call is None:
            return None
        return msgspec.structs.replace(call, url=url, query=(("branch_id", branch_id), *call.query[1:]))

    def _subscriber_answered(
        self, entry: Entry, round_: _Round, index: int, late: _Round, branch_id: str, url: str, key: str, answer: Answer
    ) -> None:
        if failpoint.ARMED:
            failpoint.reach("coordinator.after_branch_call")
        result = interpret_branch(answer.status, answer.body, strict=self._strict or entry.message.options.strict)
        self._observer.branch_answered(result, key, answer.latency_ms / 1000)
        if entry.detached or entry.round is not round_:
            self._note_late(entry, branch_id, url, answer, result)
            return
        if result is not _SUCCEEDED:
            self._note(entry, round_, branch_id, url, answer, result)
        self._take_late(entry, round_, index, late, result)

    def _take_late(self, entry: Entry, round_: _Round, index: int, late: _Round, result: BranchResult) -> None:
        late.outstanding -= 1
        if result is not _SUCCEEDED and (late.worst is None or result is not BranchResult.ONGOING):
            late.worst = result
        if late.outstanding == 0:
            self._take(entry, round_, index, late.worst or _SUCCEEDED)

    def _take(self, entry: Entry, round_: _Round, index: int, result: BranchResult) -> None:
        round_.outstanding -= 1
        if result is _SUCCEEDED:
            entry.done |= 1 << index
            round_.progress = True
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
        if round_.progress:
            entry.attempts = 0
        # ONGOING asks to come again at the same pace; anything else slows down.
        if round_.worst is not None and round_.worst is not BranchResult.ONGOING:
            entry.attempts += 1
            if round_.failed is not None:
                self._alerts.failing(entry, round_.failed, AlertEvent.BRANCH_FAILING)
        # Told first: what comes next may let the entry go.
        if entry.waiters:
            result = round_.worst or BranchResult.ONGOING
            error = NotYetDelivered(_why_not(round_.failed, result))
            self._decisions.replies.answer_waiters(entry, ReplyOf(error, entry.state, entry.created_ms, result))
        if round_.no_place_ms >= 0 and not round_.progress and round_.worst is BranchResult.ONGOING and not entry.early:
            self._decisions.put_off(entry, round_.no_place_ms)
        elif self._decisions.times.used_up(entry) and not entry.early:
            self._decisions.happen(entry, Occurrence(Event.PARK, reason=ATTEMPTS_USED_UP))
        else:
            self._decisions.happen(entry, Occurrence(Event.BRANCH_NOT_DONE))

    def _note_late(self, entry: Entry, branch_id: str, url: str, answer: Answer, result: BranchResult) -> None:
        """Record the answer to a call that was under way when the message was stopped or redirected (24).

        It has no effect. One that left memory otherwise is recorded by the node that has it now.
        """
        if entry.detached and entry.state is not State.FAILED:
            return
        why = "the message was failed" if entry.state is State.FAILED else "the message was redirected"
        what = f"{result.value} arrived late, {why}"
        answer = Answer(answer.status, error=what, latency_ms=answer.latency_ms)
        self._record(entry, branch_id, url, answer, result)
        self._decisions.settle(entry)

    def _note(
        self, entry: Entry, round_: _Round, branch_id: str, url: str, answer: Answer, result: BranchResult
    ) -> None:
        attempt = self._record(entry, branch_id, url, answer, result)
        if result is not BranchResult.ONGOING:
            round_.failed = attempt

    def _record(self, entry: Entry, branch_id: str, url: str, answer: Answer, result: BranchResult) -> Attempt:
        now_ms = self._clock.now_ms()
        attempt = attempt_of(entry.message.gid, AttemptKind.BRANCH, branch_id, url, now_ms, answer, result.value)
        self._decisions.committer.record(attempt)
        return attempt


def _why_not(failed: Attempt | None, result: BranchResult) -> str:
    """What a submit that waited is told: which branch, and the beginning of what it said."""
    if failed is None:
        return f"a branch answered {result.value}."
    answered = f" answered {failed.status}" if failed.status and not failed.error.startswith("gRPC ") else ""
    return f"branch {failed.branch_id}{answered}: {failed.error or 'without a word'}"
