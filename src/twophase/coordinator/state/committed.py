"""Memory after a durable change: a message becomes what its row is (I8)."""

from __future__ import annotations

from typing import Final

from twophase.coordinator.state.active_message import ActiveMessage, Trigger
from twophase.coordinator.state.context import Context
from twophase.core import failpoint
from twophase.core.lifecycle import Event, State
from twophase.core.limits import ERROR_TEXT_BYTES_MAX
from twophase.stores.batch import Complete, Decide, DecideEarly, Finish, Insert, Item, Park, Redirect, Reschedule
from twophase.stores.rows import Attempt, AttemptKind

# Names of this module: see `machine`.
_PREPARED: Final = State.PREPARED
_SUBMITTED: Final = State.SUBMITTED
_ALL_SUCCEEDED: Final = Event.ALL_SUCCEEDED


def apply_committed(context: Context, active: ActiveMessage, trigger: Trigger, item: Item, at_ms: int) -> None:
    """Apply `item` to the message in memory.

    The store made it durable at `at_ms` of its clock.
    """
    active.version += 1
    active.owned = True
    memory = context.memory
    if isinstance(item, Insert):
        active.state = item.state
        active.version = 1
        active.decided_by = trigger.decided_by
        active.owner = item.owner
        active.created_ms = at_ms if item.created_ms is None else item.created_ms
        if trigger.merged is not None:
            _become(context, active, trigger)
        if active.holder != item.owner:
            memory.weigh(active, item.owner)
        active.stored_due_ms = at_ms + item.due_in_ms
        active.due_ms = context.runtime.clock.now_ms() + item.due_in_ms
        if item.state is _PREPARED or item.due_in_ms:
            memory.schedule(active, active.due_ms)
    elif isinstance(item, Decide):
        active.decided_by = item.decided_by
        if trigger.merged is not None:
            _become(context, active, trigger)
        active.stored_due_ms = at_ms + item.due_in_ms
        active.state = _SUBMITTED
        active.attempts = 0
        active.done = 0
        active.parked = False
        due_ms = context.runtime.clock.now_ms() + item.due_in_ms
        if item.due_in_ms:
            memory.schedule(active, due_ms)
        else:
            memory.unschedule(active)
            active.due_ms = due_ms
    elif isinstance(item, Finish):
        if failpoint.ARMED and trigger.event is _ALL_SUCCEEDED:
            failpoint.reach("coordinator.after_finish")
        active.state = item.state
        if active.owner:
            context.runtime.owners.give_back(active.owner, active.bytes)
        context.runtime.observer.finished(item.state, item.decided_by or active.decided_by)
    elif isinstance(item, Reschedule):
        active.stored_due_ms = item.due_ms
        if not active.parked:
            memory.schedule(active, item.due_ms)
    else:
        _seldom(context, active, trigger, item, at_ms)


def _seldom(
    context: Context,
    active: ActiveMessage,
    trigger: Trigger,
    item: Complete | DecideEarly | Redirect | Park,
    at_ms: int,
) -> None:
    if isinstance(item, Redirect):
        _redirected(context, active, trigger, item)
    elif isinstance(item, Park):
        _parked(context, active, trigger, item)
    elif isinstance(item, DecideEarly):
        active.stored_due_ms = at_ms + item.due_in_ms
        active.state = _SUBMITTED
        active.early = active.parked = False
        context.memory.schedule(active, context.runtime.clock.now_ms() + item.due_in_ms)
    else:
        active.state = State.SUCCEEDED
        active.created_ms = at_ms
        active.owner = item.owner
        if item.owner:
            context.runtime.owners.remove(item.owner, active.bytes)
        context.runtime.observer.finished(active.state, trigger.decided_by)


def _parked(context: Context, active: ActiveMessage, trigger: Trigger, item: Park) -> None:
    active.stored_due_ms = item.due_ms
    active.parked = item.parked
    if item.parked:
        context.memory.unschedule(active)
        context.listener.parked(active, trigger)
    else:
        active.attempts = 0
        context.memory.schedule(active, item.due_ms)


def _redirected(context: Context, active: ActiveMessage, trigger: Trigger, item: Redirect) -> None:
    _become(context, active, trigger)
    _record_moves(context, active, trigger)
    active.stored_due_ms = item.due_ms
    active.attempts = 0
    active.done = item.done
    for waiting in active.queue or ():
        waiting.outdate(active.state)
    if not active.parked:
        context.memory.schedule(active, item.due_ms)


def _record_moves(context: Context, active: ActiveMessage, trigger: Trigger) -> None:
    """Record the calls that a redirect has moved.

    Before it is durable, another node may move them elsewhere.
    """
    gid, now_ms = active.message.gid, context.runtime.clock.now_ms()
    for move in trigger.moves:
        text = f"{trigger.reason}; now {move.after}"[: ERROR_TEXT_BYTES_MAX.value]
        attempt = Attempt(gid, AttemptKind.OPERATOR, move.branch_id, move.before, now_ms, 0, 0, "redirect", text)
        context.group_commit.record(attempt)


def _become(context: Context, active: ActiveMessage, trigger: Trigger) -> None:
    if trigger.merged is not None:
        active.become(trigger.merged)
        context.memory.weigh(active)
