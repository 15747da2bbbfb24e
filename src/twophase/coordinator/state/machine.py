"""The state machine: applies the lifecycle table to messages.

It is the only code of a running coordinator that does. Every event of a message, requested or observed, arrives here as
a `Trigger`. The table names the action (`actions`), which plans a change; the group commit makes it durable; only then
are requesters answered and branches called (`applied`). The one exception is a submit with check-back durability: it is
answered and delivered first and stored with its outcome (correctness rule 25). So I1, I3, I5 and I7 are the table's,
and I8 is the order of the lines here. A lost compare-and-set takes the stored row, and the table is applied again to
its state (correctness rule 21).

On a store that several nodes share, that row may be another node's. A request acts on it all the same, and its change
makes the row this node's; a trigger that only means "try again" is dropped, because the owner will.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state import refusal
from twophase.coordinator.state.actions import ACTIONS, confirm_prepared, report_incident
from twophase.coordinator.state.active_message import (
    NOT_DONE,
    ActiveMessage,
    Reply,
    Trigger,
    Waiter,
    deliver,
    report_failed_requester,
)
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.appends import is_delayed
from twophase.coordinator.state.committed import apply_committed
from twophase.coordinator.state.context import Context, Listener
from twophase.coordinator.state.deferral import DeferralSlots
from twophase.coordinator.state.group_commit import GroupCommit
from twophase.coordinator.topics import Topics
from twophase.core.errors import InvalidRequest, NotYetDelivered, StoreError, StoreFenced, TwophaseError
from twophase.core.lifecycle import FINAL, TRANSITIONS, Action, Event, ReplyKind, State
from twophase.core.message import same_content, same_prepared
from twophase.core.verdict import BranchResult
from twophase.stores.batch import DecideEarly, Item, NotApplied, Rejected
from twophase.stores.rows import DecidedBy, LiveRow

ATTEMPTS_USED_UP: Final = "its branches have failed as often in a row as attempts_max allows"
_OTHER = {Event.PREPARE: Event.PREPARE_OTHER, Event.SUBMIT: Event.SUBMIT_OTHER}
# Names of this module, because up to Python 3.11 a member of an enum is found by a function written in Python: 0.1 µs
# each time, thirty times a message.
_FORGOTTEN: Final = State.FORGOTTEN
_PREPARED: Final = State.PREPARED
_SUBMITTED: Final = State.SUBMITTED
_SUCCEEDED: Final = State.SUCCEEDED
_PREPARE: Final = Event.PREPARE
_SUBMIT: Final = Event.SUBMIT
_COMMITTED: Final = Event.CHECK_COMMITTED
_BY_SUBMIT: Final = DecidedBy.SUBMIT
_NOTHING: Final = Action.NOTHING
_OK: Final = ReplyKind.OK
_DEFERRED_MS: Final = 2_000
_DEFERRED_MS_MAX: Final = 30_000


class StateMachine:
    """Handles the triggers of each message in order, one durable change at a time.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        memory: the messages in memory.
        topics: their subscribers, for new messages.
        listener: acts on what happens.
    """

    def __init__(self, runtime: Runtime, memory: ActiveSet, topics: Topics, listener: Listener) -> None:
        self._shared = runtime.store.shared
        self._memory = memory
        self._clock = runtime.clock
        self._random = runtime.random
        self._settings = runtime.settings
        self._observer = runtime.observer
        self._owners = runtime.owners
        self._listener = listener
        self._slots = DeferralSlots()
        self.group_commit = GroupCommit(runtime, memory, self)
        self._context = Context(runtime, memory, topics, self.group_commit, listener)

    def handle(self, active: ActiveMessage, trigger: Trigger) -> None:
        """Apply a trigger, now or when the message's change under way is durable."""
        if active.busy or active.queue:
            if active.queue is None:
                active.queue = deque()
            active.queue.append(trigger)
            return
        self._apply(active, trigger)
        if not active.busy and not active.early:
            self.evict_if_idle(active)

    def _apply(self, active: ActiveMessage, trigger: Trigger) -> None:
        event = trigger.event
        request = trigger.request
        owner = trigger.owner
        if owner is not None and active.owner and active.owner != owner.name and active.state > _FORGOTTEN:
            self._context.refuse(trigger, Reply(refusal.of_another(active), State.ABSENT))
            return
        if request is not None and active.state > _FORGOTTEN and event in _OTHER:
            if event is _PREPARE:
                same = same_prepared(active.message, request)
            else:
                same = same_content(active.message, request, committed=_SUBMITTED <= active.state <= _SUCCEEDED)
            if not same:
                event = _OTHER[event]
        elif event is _COMMITTED and trigger.decided_by is _BY_SUBMIT and _is_open(active):
            event = _OTHER[_SUBMIT]  # a gid names none of the branches that came late
        step = TRANSITIONS[active.state, event]
        if step.action is not _NOTHING:
            ACTIONS[step.action](self._context, active, trigger, step.next_state)
        elif self._shared and event is _PREPARE and active.state is _PREPARED and not trigger.confirmed:
            confirm_prepared(self._context, active, trigger)
        if not active.busy:
            if trigger.on_reply is not None:
                self._reply(active, trigger, step.reply)
            if active.waiters:
                self._release(active)

    def handle_queue(self, active: ActiveMessage) -> None:
        """Handle the triggers that waited for the message's change.

        Then evict the message, if nothing needs it in memory.
        """
        queue = active.queue
        while queue and not active.busy:
            self._apply(active, queue.popleft())
        if not queue:
            self._evict_if_idle(active)

    def evict_if_idle(self, active: ActiveMessage) -> None:
        """Evict a message, unless memory needs it or its change is with the store.

        One that is parked, or waits long for its own time, is not needed; one with requests that wait is.
        """
        if not active.queue:
            self._evict_if_idle(active)

    def _evict_if_idle(self, active: ActiveMessage) -> None:
        """Evict a message for which no trigger waits."""
        if active.detached or active.busy:
            return
        memory = self._memory
        state = active.state
        if state in FINAL or state <= _FORGOTTEN:
            memory.remove(active)
        elif not active.owned:
            if active.calls == 0 and active.round is None and not active.waiters:
                memory.remove(active)
        elif (
            active.round is None
            and (memory.crowded or active.parked or (state is _SUBMITTED and self._waits_long(active)))
            and active.calls == 0
        ):
            memory.remove(active)
            if not active.parked:
                self._listener.evicted(active.stored_due_ms)

    def _waits_long(self, active: ActiveMessage) -> bool:
        """Return True for a message whose own time lies beyond what is read into memory."""
        return (
            is_delayed(active.message)
            and self._memory.times.first_call_ms(active.message, active.created_ms)
            > self._clock.now_ms() + self._settings.page_ahead_ms
        )

    # Outcomes of the group commit.

    def applied(self, active: ActiveMessage, trigger: Trigger, item: Item, at_ms: int) -> None:
        """Continue after a durable change.

        Answer its requester, deliver, handle the triggers that waited.
        """
        was_early = active.early
        apply_committed(self._context, active, trigger, item, at_ms)
        if was_early and isinstance(item, DecideEarly) and self._memory.times.used_up(active):
            self.handle(active, Trigger(Event.PARK, reason=ATTEMPTS_USED_UP))
        if trigger.on_reply is not None:
            self._reply(active, trigger, _OK)
        if active.state is _SUBMITTED and active.slot is None and not active.parked and not active.busy:
            self._listener.submitted(active)
        if active.waiters:
            self._release(active)
        if active.queue:
            self.handle_queue(active)
        else:
            self._evict_if_idle(active)

    def refused(self, active: ActiveMessage, trigger: Trigger, found: NotApplied) -> None:
        """Continue after a change that the store refused."""
        if trigger.owner is not None and not active.version:
            self._owners.give_back(trigger.owner.name, active.bytes)  # it was counted as a new message, and is none
        if isinstance(found, Rejected):
            error = InvalidRequest(f"the store refuses this message's data: {found.error}", gid=active.message.gid)
            self._context.refuse(trigger, Reply(error, State.ABSENT))
            if active.version:
                self._observer.incident(active.message.gid, error.message)
                self.fail_and_evict(active, None, StoreError(error.message, gid=active.message.gid))
                return
        else:
            asked_only = trigger.event is _PREPARE and active.version > 0
            if not (asked_only and isinstance(found, LiveRow) and found.owned and found.version == active.version):
                was_early, decided_by = active.early, active.decided_by
                addresses = active.calls_to, active.message.check_url
                self._memory.load_row(active, found)
                if (active.calls_to, active.message.check_url) != addresses:
                    # Redirected elsewhere: answers of the earlier addresses prove nothing about these.
                    for waiting in (trigger, *(active.queue or ())):
                        waiting.outdate(active.state)
                if was_early:
                    self._keep_early(active, decided_by)
            trigger.confirmed = True
            self._apply(active, trigger)
        self.handle_queue(active)

    def _keep_early(self, active: ActiveMessage, decided_by: str) -> None:
        """Keep an early decision whose row has changed, or report an incident."""
        if active.state is _PREPARED:
            self._memory.unschedule(active)
            active.state = _SUBMITTED
            active.early = True
            active.decided_by = decided_by
            active.parked = False
        elif active.state is not _SUBMITTED and active.state is not State.SUCCEEDED:
            report_incident(self._context, active, Trigger(_SUBMIT), active.state)

    def fail_and_evict(self, active: ActiveMessage, trigger: Trigger | None, error: StoreError) -> None:
        """Answer every requester with `error` and evict the message.

        Its stored state is unknown and read again.
        """
        waiting = [] if trigger is None else [trigger]
        if active.queue:
            waiting.extend(active.queue)
            active.queue.clear()
        # Evicted first: a requester may ask again at once, and that must begin anew.
        self._memory.remove(active)
        self._listener.store_failed()
        for one in waiting:
            self._context.refuse(one, Reply(error, active.state))
        self.answer_waiters(active, Reply(error, active.state))

    def refuse_requests(self, active: ActiveMessage, error: TwophaseError) -> None:
        """Refuse the waiting requests that bring a new message; all others still wait."""
        waiting, active.queue = active.queue or deque(), deque()
        for trigger in waiting:
            if trigger.request is None:
                active.queue.append(trigger)
            else:
                self._context.refuse(trigger, Reply(error, active.state))

    def fenced(self, error: StoreFenced) -> None:
        """Report that this node has lost its slot on the store."""
        self._listener.fenced(error)

    # Replies: each requester gets one, and none that promises anything before it is durable (I8).

    def _reply(self, active: ActiveMessage, trigger: Trigger, kind: ReplyKind) -> None:
        on_reply = trigger.on_reply
        assert on_reply is not None, "a requester waits"
        if kind is _OK:
            request = trigger.request
            if request is not None and request.options.wait_result and trigger.event is _SUBMIT:
                if active.waiters is None:
                    active.waiters = []
                owner = trigger.owner
                active.waiters.append(Waiter(on_reply, owner is None or owner.reads_answers))
                return
            try:  # as `deliver`, without a call
                on_reply(Reply(None, active.state, active.created_ms))
            except Exception as fault:  # noqa: BLE001 -- the requester's own; no message stops for it
                report_failed_requester(fault)
            return
        error = refusal.of(active, trigger.event, kind)
        self._observer.refused(error.code)
        deliver(on_reply, Reply(error, active.state, active.created_ms))

    def _release(self, active: ActiveMessage) -> None:
        """Answer wait_result as soon as there is no delivery round to wait for."""
        if active.state is State.SUCCEEDED:
            self.answer_waiters(active, Reply(None, active.state, active.created_ms))
        elif active.state is State.FAILED:
            self.answer_waiters(active, Reply(refusal.of(active, _SUBMIT, ReplyKind.CONFLICT), active.state))
        elif active.round is None and not active.busy:
            error = NotYetDelivered("the branches are called later.")
            self.answer_waiters(active, Reply(error, active.state, active.created_ms, BranchResult.ONGOING))

    def answer_waiters(self, active: ActiveMessage, reply: Reply, masked: Reply | None = None) -> None:
        """Answer every submit with wait_result.

        `masked`: the reply for one that may not read answers, where that is another.
        """
        waiters, active.waiters = active.waiters, None
        for waiter in waiters or ():
            deliver(waiter.on_reply, reply if masked is None or waiter.reads_answers else masked)

    # Messages that are due and cannot be called now.

    def defer(self, active: ActiveMessage, waited_ms: int) -> None:
        """Try again later, because too many calls wait for the destination.

        Its row stays due. The pause is as long as others have waited for the destination: a message for a receiver that
        hangs costs little, and one for a busy receiver comes when its queue has passed. Messages are spread over as
        many queues as memory holds of them, so that about as many come as can be called. When others need the memory,
        the message leaves: its row gets a time of its own, so that it is not read before what is due.
        """
        if not active.owned:
            self.evict_if_idle(active)
            return
        now_ms = self._clock.now_ms()
        if self._memory.crowded:
            self.handle(active, Trigger(NOT_DONE[active.state], pause_ms=self._slots.pause_ms(now_ms)))
        else:
            pause_ms = min(max(waited_ms, _DEFERRED_MS), _DEFERRED_MS_MAX)
            queues = max(1.0, len(self._memory) / self._settings.queue_waiting_max)
            spread_ms = min(pause_ms * queues, _DEFERRED_MS_MAX)
            self._memory.schedule(active, now_ms + pause_ms + int(spread_ms * self._random()))

    def wait_until(self, active: ActiveMessage, first_call_ms: int) -> None:
        """Call nothing before `first_call_ms`, whatever the row's due time."""
        if first_call_ms - self._clock.now_ms() > self._settings.page_ahead_ms:
            self.handle(active, Trigger(Event.HURRY))  # gives the row a time, so that memory may evict the message
        if not active.busy and not active.detached and active.slot is None:
            self._memory.schedule(active, first_call_ms)


def _is_open(active: ActiveMessage) -> bool:
    return active.state is _PREPARED and active.message.options.open
