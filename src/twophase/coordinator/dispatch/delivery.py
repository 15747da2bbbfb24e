"""Calls a submitted message's branches until every one has succeeded.

Keeps I2: a round without success is followed by another, for ever, at most one backoff cap later. The caller of `begin`
keeps I1: it passes only a SUBMITTED message, durable or decided by its producer's submit with check-back durability
(`ActiveMessage.early`). Branches are called in order, or all at once when the message has the option `concurrent`; one
that has succeeded is not called again (its bit in `done` is stored with the next due time; after a crash before that,
it is: I6 is the branch barrier's). None is called before the message's delay or time has passed, for any trigger of a
round: the timer, an operator, or the node that adopted the message. A message with a bound on failed rounds is parked
after them: durable, visible, and redriven with all its attempts. One whose destination has a full queue is tried again
later and its row stays unchanged: were each written anew, a destination that hangs would take the store from all
others. No call begins once a park is durable (rule 23): those under way finish, and if they were the last branches, the
message succeeds.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from twophase.coordinator.dispatch.alerts import AlertEvent, Alerts
from twophase.coordinator.dispatch.calls import NO_PERMIT, Calls
from twophase.coordinator.dispatch.evidence import attempt_of, tellable
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.active_message import ActiveMessage, Reply, Trigger
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.appends import appends_of
from twophase.coordinator.state.machine import ATTEMPTS_USED_UP, StateMachine
from twophase.coordinator.topics import Topics
from twophase.core import failpoint
from twophase.core.address import TOPIC_PREFIX
from twophase.core.errors import NotYetDelivered
from twophase.core.headers import without_reserved
from twophase.core.lifecycle import Event, State
from twophase.core.topic import late_id
from twophase.core.verdict import BranchResult, interpret_branch
from twophase.destinations.base import Answer, Call
from twophase.stores.rows import Attempt, AttemptKind

# Names of this module: see `machine`.
_SUBMITTED: Final = State.SUBMITTED
_ALL_SUCCEEDED: Final = Event.ALL_SUCCEEDED
_SUCCEEDED: Final = BranchResult.SUCCEEDED
_NO_SUBSCRIBER: Final = Answer(0, error="topic not found: it has no subscriber")


class _Round:
    """One pass over the branches that have not succeeded yet."""

    __slots__ = ("failed", "no_permit_ms", "outstanding", "progress", "worst")

    def __init__(self) -> None:
        self.outstanding = 0
        self.no_permit_ms = -1
        """Age of the oldest queued call where the limiter was full.

        It is negative if the limiter was full nowhere.
        """
        self.worst: BranchResult | None = None
        self.failed: Attempt | None = None
        self.progress = False


class Delivery:
    """Performs delivery rounds."""

    def __init__(
        self,
        runtime: Runtime,
        memory: ActiveSet,
        machine: StateMachine,
        topics: Topics,
        calls: Calls,
        alerts: Alerts,
    ) -> None:
        self._memory = memory
        self._times = memory.times
        self._machine = machine
        self._topics = topics
        self._calls = calls
        self._alerts = alerts
        self._settings = runtime.settings
        self._strict = runtime.settings.strict
        self._clock = runtime.clock
        self._observer = runtime.observer
        self._queue_counts = runtime.queue_counts
        self._carried: tuple[tuple[str, str], ...] = ()

    def carry(self, *headers: tuple[str, str]) -> None:
        """Set the headers of every call beside its message's own."""
        self._carried = headers

    def begin(self, active: ActiveMessage) -> None:
        """Start a round for a submitted message that has none."""
        assert active.state is _SUBMITTED, "only a decision calls branches"
        assert active.round is None, "one round at a time"
        if self._calls.draining or active.detached:
            return
        options = active.message.options
        if options.delay_ms or options.not_before_ms:
            first_call_ms = self._times.first_call_ms(active.message, active.created_ms)
            if first_call_ms > self._clock.now_ms():
                self._machine.wait_until(active, first_call_ms)
                return
            entries = appends_of(active.message, self._queue_counts)
            if entries and len(entries) == len(active.message.branches):
                self._machine.handle(active, Trigger(_ALL_SUCCEEDED, entries=entries))
                return
        round_ = active.round = _Round()
        if active.done == active.all_done:
            self._end(active, round_)
        elif options.concurrent:
            left = [i for i in range(len(active.calls_to)) if not active.done >> i & 1]
            round_.outstanding = len(left)
            for index in left:
                self._approach(active, round_, index)
        else:
            self._next(active, round_)

    def _next(self, active: ActiveMessage, round_: _Round) -> None:
        for index in range(len(active.calls_to)):
            if not active.done >> index & 1:
                round_.outstanding = 1
                self._approach(active, round_, index)
                return
        self._end(active, round_)

    def _approach(self, active: ActiveMessage, round_: _Round, index: int) -> None:
        url = active.calls_to[index].url
        if not url:
            self._take(active, round_, index, _SUCCEEDED)
            return
        if active.call_ids is not None and url.startswith(TOPIC_PREFIX):
            self._approach_topic(active, round_, index)
            return
        build = partial(self._call, round_, index)
        on_answer = partial(self._answered, active, round_, index, url)
        pressure = self._memory.pressure(active) if self._memory.crowded else 0
        self._calls.start(active, url, build, on_answer, pressure=pressure)

    def _call(self, round_: _Round, index: int, active: ActiveMessage) -> Call | None:
        if active.round is not round_ or active.parked:
            return None  # redirected or parked while it waited for its turn
        if failpoint.ARMED:
            failpoint.reach("coordinator.before_branch_call")
        message = active.message
        branch = active.calls_to[index]
        options = message.options
        return Call(
            branch.url,
            (
                ("branch_id", active.call_id(index)),
                ("gid", message.gid),
                ("op", "action"),
                ("trans_type", "msg"),
            ),
            branch.payload,
            self._carried + without_reserved(options.headers + options.trace)
            if options.headers or options.trace
            else self._carried,
            options.request_timeout_ms or self._settings.request_timeout_ms,
        )

    def _answered(self, active: ActiveMessage, round_: _Round, index: int, url: str, key: str, answer: Answer) -> None:
        if answer is NO_PERMIT:
            if active.round is round_:
                self._note_no_permit(active, round_, url)
                self._take(active, round_, index, BranchResult.ONGOING)
            return
        if failpoint.ARMED:
            failpoint.reach("coordinator.after_branch_call")
        result = interpret_branch(answer.status, answer.body, strict=self._strict or active.message.options.strict)
        self._observer.branch_answered(result, key, answer.latency_ms / 1000)
        if active.detached or active.round is not round_:
            self._note_late(active, active.call_id(index), url, answer, result)
            return
        if result is not _SUCCEEDED:
            self._note(active, round_, active.call_id(index), url, answer, result)
        self._take(active, round_, index, result)

    def _approach_topic(self, active: ActiveMessage, round_: _Round, index: int) -> None:
        """Call the present subscribers of a topic.

        The topic's one bit is set when all have succeeded.
        """
        assert active.call_ids is not None, "its message names a topic"
        branch_id, topic = active.call_ids[index], active.calls_to[index].url
        urls = self._topics.subscribers(topic, active.message.protocol)
        if not urls:
            self._note(active, round_, branch_id, topic, _NO_SUBSCRIBER, BranchResult.ERROR)
            self._take(active, round_, index, BranchResult.ERROR)
            return
        late = _Round()
        late.outstanding = len(urls)
        for url in urls:
            id_ = late_id(branch_id, url)
            build = partial(self._call_subscriber, round_, index, id_, url)
            on_answer = partial(self._subscriber_answered, active, round_, index, late, id_, url)
            pressure = self._memory.pressure(active) if self._memory.crowded else 0
            self._calls.start(active, url, build, on_answer, pressure=pressure)

    def _call_subscriber(
        self, round_: _Round, index: int, branch_id: str, url: str, active: ActiveMessage
    ) -> Call | None:
        call = self._call(round_, index, active)
        if call is None:
            return None
        return msgspec.structs.replace(call, url=url, query=(("branch_id", branch_id), *call.query[1:]))

    def _subscriber_answered(
        self,
        active: ActiveMessage,
        round_: _Round,
        index: int,
        late: _Round,
        branch_id: str,
        url: str,
        key: str,
        answer: Answer,
    ) -> None:
        if answer is NO_PERMIT:
            if active.round is round_:
                self._note_no_permit(active, round_, url)
                self._take_late(active, round_, index, late, BranchResult.ONGOING)
            return
        if failpoint.ARMED:
            failpoint.reach("coordinator.after_branch_call")
        result = interpret_branch(answer.status, answer.body, strict=self._strict or active.message.options.strict)
        self._observer.branch_answered(result, key, answer.latency_ms / 1000)
        if active.detached or active.round is not round_:
            self._note_late(active, branch_id, url, answer, result)
            return
        if result is not _SUCCEEDED:
            self._note(active, round_, branch_id, url, answer, result)
        self._take_late(active, round_, index, late, result)

    def _note_no_permit(self, active: ActiveMessage, round_: _Round, url: str) -> None:
        round_.no_permit_ms = max(round_.no_permit_ms, self._calls.waited_ms(active, url))

    def _take_late(self, active: ActiveMessage, round_: _Round, index: int, late: _Round, result: BranchResult) -> None:
        late.outstanding -= 1
        if result is not _SUCCEEDED and (late.worst is None or result is not BranchResult.ONGOING):
            late.worst = result
        if late.outstanding == 0:
            self._take(active, round_, index, late.worst or _SUCCEEDED)

    def _take(self, active: ActiveMessage, round_: _Round, index: int, result: BranchResult) -> None:
        round_.outstanding -= 1
        if result is _SUCCEEDED:
            active.done |= 1 << index
            round_.progress = True
            if active.done != active.all_done and not active.message.options.concurrent and not self._calls.draining:
                self._next(active, round_)
                return
        elif round_.worst is None or result is not BranchResult.ONGOING:
            round_.worst = result
        if round_.outstanding == 0:
            self._end(active, round_)

    def _end(self, active: ActiveMessage, round_: _Round) -> None:
        assert active.round is round_, "a round ends once"
        active.round = None
        if active.done == active.all_done:
            self._machine.handle(active, Trigger(_ALL_SUCCEEDED))
            return
        if round_.progress:
            active.attempts = 0
        # ONGOING asks for another call at the same pace; anything else slows down.
        if round_.worst is not None and round_.worst is not BranchResult.ONGOING:
            active.attempts += 1
            if round_.failed is not None:
                self._alerts.failing(active, round_.failed, AlertEvent.BRANCH_FAILING)
        # Answered first: the next step may evict the message.
        if active.waiters:
            result = round_.worst or BranchResult.ONGOING
            reply, masked = (
                Reply(NotYetDelivered(why), active.state, active.created_ms, result)
                for why in _why_not(round_.failed, result)
            )
            self._machine.answer_waiters(active, reply, masked)
        if active.parked:
            self._keep_done(active, round_)
        elif (
            round_.no_permit_ms >= 0
            and not round_.progress
            and round_.worst is BranchResult.ONGOING
            and not active.early
        ):
            self._machine.defer(active, round_.no_permit_ms)
        elif self._times.used_up(active) and not active.early:
            self._machine.handle(active, Trigger(Event.PARK, reason=ATTEMPTS_USED_UP))
        else:
            self._machine.handle(active, Trigger(Event.BRANCH_NOT_DONE))

    def _keep_done(self, active: ActiveMessage, round_: _Round) -> None:
        """Store which branches of a parked message succeeded in its last round.

        A redirect does not move these.
        """
        if round_.progress:
            self._machine.handle(active, Trigger(Event.BRANCH_NOT_DONE, pause_ms=1))
        else:
            self._machine.evict_if_idle(active)

    def _note_late(self, active: ActiveMessage, branch_id: str, url: str, answer: Answer, result: BranchResult) -> None:
        """Record an answer that arrives after the message was stopped or redirected (24).

        It has no effect. One that left memory otherwise is recorded by the node that has it now.
        """
        if active.detached and active.state is not State.FAILED:
            return
        why = "the message was failed" if active.state is State.FAILED else "the message was redirected"
        what = f"{result.value} arrived late, {why}"
        answer = Answer(answer.status, error=what, latency_ms=answer.latency_ms)
        self._record(active, branch_id, url, answer, result)
        self._machine.evict_if_idle(active)

    def _note(
        self, active: ActiveMessage, round_: _Round, branch_id: str, url: str, answer: Answer, result: BranchResult
    ) -> None:
        attempt = self._record(active, branch_id, url, answer, result)
        if result is not BranchResult.ONGOING:
            round_.failed = attempt

    def _record(self, active: ActiveMessage, branch_id: str, url: str, answer: Answer, result: BranchResult) -> Attempt:
        now_ms = self._clock.now_ms()
        attempt = attempt_of(active.message.gid, AttemptKind.BRANCH, branch_id, url, now_ms, answer, result.value)
        self._machine.group_commit.record(attempt)
        return attempt


def _why_not(failed: Attempt | None, result: BranchResult) -> tuple[str, str]:
    """Describe a failed round for wait_result: the branch and the start of its answer.

    The second text is for a client that may not read answers.
    """
    if failed is None:
        words = f"a branch answered {result.value}."
        return words, words
    named = f"branch {failed.branch_id}"
    answered = f"{named} answered {failed.status}" if failed.status else named
    whole = named if failed.error.startswith("gRPC ") else answered
    told = tellable(failed)
    return f"{whole}: {failed.error or 'without a word'}", f"{answered}: {told}" if told else answered
