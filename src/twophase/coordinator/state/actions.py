"""The actions of the lifecycle table: each plans one change for the store.

An action answers no requester and calls nothing, because its change is not durable yet (I8). The one exception is a
submit with check-back durability (`_decide_early`): it is answered and delivered first and stored with its outcome
(correctness rule 25).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from twophase.coordinator.state.active_message import ActiveMessage, Reply, Trigger, deliver
from twophase.coordinator.state.appends import all_done, appends_of, is_delayed
from twophase.coordinator.state.context import Context
from twophase.coordinator.state.merging import merge
from twophase.core import failpoint
from twophase.core.address import TOPIC_PREFIX
from twophase.core.errors import InvalidRequest, QuotaExceeded, StateConflict, StoreUnavailable, TwophaseError
from twophase.core.lifecycle import Action, Event, State
from twophase.core.message import Message, encode, may_be_called_early
from twophase.core.options import Durability
from twophase.core.queue_message import NOT_TO_BOTH, QUEUE_PREFIX, is_to_both
from twophase.core.redirect import redirect
from twophase.core.topic import fans_out
from twophase.stores.batch import Complete, Decide, DecideEarly, Finish, Insert, Item, Park, Redirect, Reschedule
from twophase.stores.rows import Attempt, AttemptKind, DecidedBy

# Names of this module: see `machine`.
_PREPARED: Final = State.PREPARED
_SUBMITTED: Final = State.SUBMITTED
_SUBMIT: Final = Event.SUBMIT
_BY_SUBMIT: Final = DecidedBy.SUBMIT
_ALL_SUCCEEDED: Final = Event.ALL_SUCCEEDED
_CHECK_BACK: Final = Durability.CHECK_BACK
_EARLY_RETRY_MS: Final = 1_000
CHECKS_USED_UP: Final = "its producers have answered 'unknown' as often as producer_checks_max allows"

Act = Callable[[Context, ActiveMessage, Trigger, State], None]
"""Called with (context, message, trigger, the state the table leads to)."""


def _insert(context: Context, active: ActiveMessage, trigger: Trigger, next_state: State) -> None:
    message = trigger.request
    assert message is not None, "only requests insert"
    # Admission has counted a message that it brought into memory; one that was looked up is counted here.
    counted = active.bytes if active.message is message else 0
    owner, full = "", context.runtime.owners.store_full
    if full is not None:
        _refuse(context, trigger, full)
        return
    # `fans_out`, nearly: on the hot path it costs half as much here.
    for branch in message.branches:
        if TOPIC_PREFIX in branch.url or branch.subscribers is not None:
            expanded = _expanded(context, trigger, message)
            if expanded is None:
                return
            message = expanded
            break
    if active.message is not message:
        active.become(message)
        context.memory.weigh(active)
    if trigger.owner is not None:
        owner = trigger.owner.name
        if counted:
            if counted != active.bytes:
                context.runtime.owners.grow(owner, active.bytes - counted)
        elif not trigger.owner.take_room(active.bytes):
            _refuse(context, trigger, QuotaExceeded(trigger.owner.why_no_room(active.bytes)))
            return
    options, settings = message.options, context.runtime.settings
    if next_state is _PREPARED:
        due_in_ms = options.timeout_to_fail_ms or settings.timeout_to_fail_ms
    else:
        due_in_ms = options.delay_ms
        if options.not_before_ms:
            due_in_ms = max(due_in_ms, options.not_before_ms - context.runtime.clock.now_ms())
        for branch in message.branches:
            if QUEUE_PREFIX in branch.url:
                _append_new(context, active, trigger, message, due_in_ms, owner)
                return
    context.group_commit.add(
        active, trigger, Insert(message.gid, next_state, due_in_ms, encode(message), trigger.created_ms, owner)
    )


def _append_new(
    context: Context, active: ActiveMessage, trigger: Trigger, message: Message, due_in_ms: int, owner: str
) -> None:
    """Store a plain message with its entries of queues.

    They end a message that has nothing else. What waits for a time is appended when it is due, unless other branches
    are beside it.
    """
    entries = appends_of(message, context.runtime.queue_counts)
    item: Item = Insert(message.gid, _SUBMITTED, due_in_ms, encode(message), trigger.created_ms, owner)
    if len(entries) == len(message.branches):
        if is_delayed(message):
            entries = ()
        else:
            item = Complete(message.gid, all_done(message), encode(message), owner)
    context.group_commit.add(active, trigger, item)
    if entries:
        context.group_commit.append(trigger, entries)


def _expanded(context: Context, trigger: Trigger, message: Message) -> Message | None:
    """Return a new message with its topics' subscribers; None for a refused one."""
    try:
        return context.topics.expand(message)
    except (InvalidRequest, StoreUnavailable) as error:
        _refuse(context, trigger, error)
        return None


def _refuse(context: Context, trigger: Trigger, error: TwophaseError) -> None:
    """Refuse a request that would have made a message."""
    context.refuse(trigger, Reply(error, State.ABSENT))
    trigger.on_reply = None


def confirm_prepared(context: Context, active: ActiveMessage, trigger: Trigger) -> None:
    """Confirm a prepared message against the store: another node may have decided it.

    The producer begins its transaction on the answer "prepared". The insert is refused with the row as it is, and the
    table is then applied to that row.
    """
    message = trigger.request
    assert message is not None, "only requests are confirmed"
    trigger.merged = message
    due_in_ms = message.options.timeout_to_fail_ms or context.runtime.settings.timeout_to_fail_ms
    context.group_commit.add(
        active, trigger, Insert(message.gid, _PREPARED, due_in_ms, encode(message), owner=active.owner)
    )


def _decide(context: Context, active: ActiveMessage, trigger: Trigger, next_state: State) -> None:
    assert next_state is _SUBMITTED, "a decision to submit"
    assert active.state is _PREPARED, "only a prepared message is decided"
    body: bytes | None = None
    message = active.message
    trigger.merged = None
    request = trigger.request
    if request is not None:
        merged = merge(message, request)
        if merged is not message:
            if len(merged.branches) != len(message.branches) and fans_out(merged.branches):
                merged = context.topics.expand_late(merged)
            trigger.merged = message = merged
            body = encode(merged)
    for branch in message.branches:
        if QUEUE_PREFIX in branch.url:
            _decide_with_queues(context, active, trigger, message, body)
            return
    options = active.message.options
    # The first condition is all that most messages need, and saves a call.
    if (
        options.durability is _CHECK_BACK
        and trigger.decided_by is _BY_SUBMIT  # a verdict that a stop has brought is stored, with the row of the stop
        and trigger.on_reply is not None
        and trigger.audited is None
        and body is None
        and may_be_called_early(active.message)
        and not active.parked
        and active.owned
    ):
        _decide_early(context, active, trigger)
        return
    options = message.options
    due_in_ms = _delay_ms(context, active, message) if options.delay_ms or options.not_before_ms else 0
    context.group_commit.add(active, trigger, Decide(message.gid, active.version, due_in_ms, trigger.decided_by, body))


def _delay_ms(context: Context, active: ActiveMessage, message: Message) -> int:
    """Return the time until the first call.

    A delay from a birth in the future, which a clock wrote that was ahead, counts from now.
    """
    now_ms = context.runtime.clock.now_ms()
    due_ms = context.memory.times.earliest_due_ms(_SUBMITTED, message, min(active.created_ms, now_ms))
    return max(0, due_ms - now_ms)


def _decide_with_queues(
    context: Context, active: ActiveMessage, trigger: Trigger, message: Message, body: bytes | None
) -> None:
    """Store the decision as `_append_new` stores a plain message.

    A submit that brings the delay, or the branch, to a message of which the queues would then not wait is refused.
    """
    if (
        trigger.merged is not None
        and trigger.event is _SUBMIT
        and is_delayed(message)
        and is_to_both(branch.url for branch in message.branches)
    ):
        trigger.merged = None
        context.refuse(trigger, Reply(InvalidRequest(NOT_TO_BOTH, gid=message.gid), _PREPARED, active.created_ms))
        trigger.on_reply = None
        return
    entries = appends_of(message, context.runtime.queue_counts)
    only_queues = len(entries) == len(message.branches)
    due_in_ms = _delay_ms(context, active, message) if is_delayed(message) else 0
    item: Item = Decide(message.gid, active.version, due_in_ms, trigger.decided_by, body)
    if only_queues and is_delayed(message):
        entries = ()
    elif only_queues and body is None:
        item = Finish(
            message.gid, active.version, State.SUCCEEDED, "", trigger.decided_by, active.attempts, all_done(message)
        )
    context.group_commit.add(active, trigger, item)
    if entries:
        context.group_commit.append(trigger, entries)


def _decide_early(context: Context, active: ActiveMessage, trigger: Trigger) -> None:
    """Take the producer's submit as the decision, before a flush.

    Neither the answer nor the branches wait.

    The row stays PREPARED until the branches have succeeded, which is then one change instead of two, or until one has
    not. If this process dies before, the check-back finds the decision again (correctness rule 25, decision 7).
    """
    context.memory.unschedule(active)
    active.state = _SUBMITTED
    active.early = True
    active.decided_by = trigger.decided_by
    active.attempts = active.done = 0
    active.due_ms = context.runtime.clock.now_ms()
    on_reply, trigger.on_reply = trigger.on_reply, None
    assert on_reply is not None, "a request waits for its reply"
    deliver(on_reply, Reply(None, _SUBMITTED, active.created_ms))
    context.listener.submitted(active)


def _finish(context: Context, active: ActiveMessage, trigger: Trigger, next_state: State) -> None:
    delivered = trigger.event is _ALL_SUCCEEDED
    if trigger.prepared_only and active.state is _SUBMITTED:
        return  # submitted meanwhile: the stop was meant for a prepared message
    if failpoint.ARMED and delivered:
        failpoint.reach("coordinator.before_finish")
    if delivered:
        # The row may have been read again since, and knows less of the branches than the round that ended.
        active.done = (1 << len(active.calls_to)) - 1
    item = Finish(
        active.message.gid,
        active.version,
        next_state,
        trigger.reason,
        (active.decided_by if active.early else "") if delivered else trigger.decided_by,
        active.attempts,
        active.done,
    )
    context.group_commit.add(active, trigger, item, urgent=bool(trigger.on_reply or active.waiters))
    if trigger.entries:
        context.group_commit.append(trigger, trigger.entries)


def _reschedule(context: Context, active: ActiveMessage, trigger: Trigger, next_state: State) -> None:
    if trigger.answered and next_state is _PREPARED and _is_answered_enough(context, active):
        trigger.reason = CHECKS_USED_UP
        _park(context, active, trigger, next_state)
        return
    if not active.owned:
        return
    runtime = context.runtime
    schedule = runtime.settings.check_back if next_state is _PREPARED else runtime.settings.delivery
    if next_state is _SUBMITTED:
        schedule = schedule.starting_at(active.message.options.retry_interval_ms)
    pause_ms = trigger.pause_ms or schedule.pause_ms(max(1, active.attempts), runtime.random())
    due_ms = runtime.clock.now_ms() + pause_ms
    active.due_ms = due_ms
    item: Item
    if active.early:
        item = _early(active, pause_ms)
    else:
        item = Reschedule(active.message.gid, active.version, due_ms, active.attempts, active.done)
    context.group_commit.add(active, trigger, item, urgent=False)


def _is_answered_enough(context: Context, active: ActiveMessage) -> bool:
    """Count a producer's answer "unknown"; True when the bound is reached."""
    active.attempts += 1
    now_ms, message = context.runtime.clock.now_ms(), active.message
    kind = AttemptKind.CHECK_BACK
    context.group_commit.record(Attempt(message.gid, kind, "00", message.check_url, now_ms, 0, 0, "unknown", ""))
    return 0 < context.runtime.settings.producer_checks_max <= active.attempts


def _park(context: Context, active: ActiveMessage, trigger: Trigger, _: State) -> None:
    if trigger.on_reply is None and not active.owned:
        return  # this node has used up its attempts; the row is another's, which has attempts of its own
    if active.early:
        _store_early(context, active, trigger)
        return
    active.due_ms = context.runtime.clock.now_ms()
    item = Park(active.message.gid, active.version, True, active.due_ms, active.attempts, active.done)
    context.group_commit.add(active, trigger, item)


def _redrive(context: Context, active: ActiveMessage, trigger: Trigger, _: State) -> None:
    active.due_ms = _not_later(context, active, active.message)
    context.group_commit.add(active, trigger, Park(active.message.gid, active.version, False, active.due_ms, 0))


def _hurry(context: Context, active: ActiveMessage, trigger: Trigger, _: State) -> None:
    if active.parked or active.early or active.round is not None or active.calls:
        return  # it is not tried at all, or is tried at this moment
    if trigger.on_reply is None and not active.owned:
        return  # this node meant to defer it; the row is another's now
    active.due_ms = _not_later(context, active, active.message)
    item = Reschedule(active.message.gid, active.version, active.due_ms, active.attempts, active.done)
    context.group_commit.add(active, trigger, item)


def _not_later(context: Context, active: ActiveMessage, message: Message) -> int:
    """Return the soonest time of a try; a question is never postponed.

    The soonest time of a message that was born ahead of the clock moves on with the clock. A parked row waits for none.
    The time of a delayed delivery is the message's own, and a row that falls due before it is given it again.
    """
    memory = context.memory
    soonest_ms = memory.times.soonest_ms(active.state, message, active.created_ms)
    if active.parked or active.state is not _PREPARED:
        return soonest_ms
    waits_ms = memory.latest_ms(active, active.stored_due_ms)
    return min(soonest_ms, max(waits_ms, context.runtime.clock.now_ms()))


def _redirect(context: Context, active: ActiveMessage, trigger: Trigger, _: State) -> None:
    redirection = trigger.redirection
    assert redirection is not None, "an operator names the new address"
    if active.early:
        _store_early(context, active, trigger)
        return
    message = active.message
    try:
        if redirection.check and active.state is not _PREPARED:
            text = f"current status '{active.state}', cannot redirect: its producer is no longer asked."
            raise StateConflict(text, gid=message.gid)
        redirected, moves = redirect(message, active.done, redirection)
        if trigger.validate is not None:
            trigger.validate(redirected, moves)  # again: it may be another message than the one that was read
    except (InvalidRequest, StateConflict) as error:
        context.refuse(trigger, Reply(error, active.state, active.created_ms))
        trigger.on_reply = None
        return
    trigger.moves = moves  # also none: another node has moved the call since the redirect was planned first
    if not moves:
        return
    trigger.merged = redirected
    active.due_ms = _not_later(context, active, redirected)
    item = Redirect(message.gid, active.version, active.due_ms, active.done, encode(redirected))
    context.group_commit.add(active, trigger, item)


def _stop_prepared(context: Context, active: ActiveMessage, trigger: Trigger, next_state: State) -> None:
    on_reply, trigger.on_reply = trigger.on_reply, None
    if trigger.asked:
        trigger.on_reply = on_reply
        _finish(context, active, trigger, next_state)
    elif on_reply is not None:
        context.listener.stop_requested(active, on_reply, trigger)


def _store_early(context: Context, active: ActiveMessage, trigger: Trigger) -> None:
    """Store an early decision, which memory alone has; then handle the trigger."""
    if active.queue is None:
        active.queue = deque()
    active.queue.appendleft(trigger)
    context.group_commit.add(active, Trigger(_SUBMIT), _early(active, _EARLY_RETRY_MS))


def _early(active: ActiveMessage, due_in_ms: int) -> DecideEarly:
    return DecideEarly(active.message.gid, active.version, due_in_ms, active.decided_by, active.attempts, active.done)


def report_incident(context: Context, active: ActiveMessage, trigger: Trigger, _: State) -> None:
    """Record and report a contrary decision."""
    what = f"{trigger.event.name.lower()} arrived when the message was {active.state}"
    context.runtime.observer.incident(active.message.gid, what)
    _note(context, active, AttemptKind.INCIDENT, what)


def _record_late(context: Context, active: ActiveMessage, trigger: Trigger, _: State) -> None:
    what = f"{trigger.event.name.lower()} arrived late, the message was {active.state}"
    _note(context, active, AttemptKind.BRANCH, what)


def _note(context: Context, active: ActiveMessage, kind: AttemptKind, what: str) -> None:
    now_ms = context.runtime.clock.now_ms()
    context.group_commit.record(Attempt(active.message.gid, kind, "", "", now_ms, 0, 0, kind.value, what))


ACTIONS: Final[Mapping[Action, Act]] = {
    Action.INSERT: _insert,
    Action.DECIDE_SUBMIT: _decide,
    Action.FINISH: _finish,
    Action.RESCHEDULE: _reschedule,
    Action.PARK: _park,
    Action.REDRIVE: _redrive,
    Action.HURRY: _hurry,
    Action.REDIRECT: _redirect,
    Action.CHECK_BACK_FIRST: _stop_prepared,
    Action.INCIDENT: report_incident,
    Action.RECORD: _record_late,
}
"""The function of each action of the lifecycle table."""
