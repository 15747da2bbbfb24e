"""The only place that applies the lifecycle table to a running coordinator's messages.

Whatever happens to a message, requested or observed, arrives here as an `Occurrence`; the table says what it does; the
change is made durable; only then is anybody told and anything called. The one exception is a submit with check-back
durability (`_decide_early`): told and called first, stored with its outcome (correctness rule 25). So I1, I3, I5 and I7
are the table's, and I8 is the order of the lines here. A lost compare-and-set takes the stored row, and the table is
applied again to what it says (correctness rule 21).

On a store that several nodes share, that row may be another node's. A request acts on it all the same, and what it
changes becomes ours; what only says that this node must try again is dropped, because the owner will.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from twophase.coordinator.active import Active
from twophase.coordinator.committer import Committer
from twophase.coordinator.confirmed import Confirmed
from twophase.coordinator.entry import Entry, Occurrence, OnReply, ReplyOf, tell
from twophase.coordinator.merging import merge
from twophase.coordinator.observer import Observer
from twophase.coordinator.replies import Replies
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.timers import Timers
from twophase.coordinator.topics import Topics
from twophase.core import failpoint
from twophase.core.errors import InvalidRequest, StoreError, StoreFenced, StoreUnavailable
from twophase.core.hooks import Chance, Clock
from twophase.core.lifecycle import FINAL, TRANSITIONS, Action, Event, Reply, State
from twophase.core.message import Durability, Message, encode, may_be_called_early, same_content, same_prepared
from twophase.core.schedule import PAUSE_MS_MAX
from twophase.core.topic import TOPIC_PREFIX, fans_out
from twophase.stores.base import (
    Attempt,
    AttemptKind,
    Decide,
    Finish,
    Insert,
    Item,
    LiveRow,
    Park,
    Refusal,
    Rejected,
    Reschedule,
    Store,
)

ATTEMPTS_USED_UP: Final = "its branches have failed as often in a row as attempts_max allows"
_OTHER = {Event.PREPARE: Event.PREPARE_OTHER, Event.SUBMIT: Event.SUBMIT_OTHER}
# Names of this module, because up to Python 3.11 a member of an enum is found by a function written in Python: 0.1 µs
# each time, thirty times a message.
_FORGOTTEN: Final = State.FORGOTTEN
_PREPARED: Final = State.PREPARED
_SUBMITTED: Final = State.SUBMITTED
_PREPARE: Final = Event.PREPARE
_SUBMIT: Final = Event.SUBMIT
_ALL_SUCCEEDED: Final = Event.ALL_SUCCEEDED
_NOTHING: Final = Action.NOTHING
_OK: Final = Reply.OK
_CHECK_BACK: Final = Durability.CHECK_BACK
_EARLY_RETRY_MS: Final = 1_000
_NO_PLACE_MS: Final = 2_000
_NO_PLACE_MS_MAX: Final = 30_000


class Decisions:
    """Applies occurrences to entries, in the order in which they came, one durable change at a time."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        active: Active,
        timers: Timers,
        settings: CoordinatorSettings,
        clock: Clock,
        chance: Chance,
        observer: Observer,
        *,
        on_submitted: Callable[[Entry], None],
        on_stop: Callable[[Entry, OnReply, str], None],
        on_parked: Callable[[Entry, Occurrence], None],
        on_lost: Callable[[int], None],
        on_fault: Callable[[], None],
        on_fenced: Callable[[StoreFenced], None],
    ) -> None:
        self._shared = store.shared
        self._topics = topics
        self._active = active
        self._timers = timers
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._observer = observer
        self._on_submitted = on_submitted
        self._on_stop = on_stop
        self._on_parked = on_parked
        self._on_lost = on_lost
        self._on_fault = on_fault
        self.replies = Replies(observer)
        self._confirmed = Confirmed(active, timers, clock, observer)
        self.committer = Committer(
            store,
            observer,
            flush_items_max=settings.flush_items_max,
            linger_ms=settings.linger_ms,
            on_applied=self._applied,
            on_refused=self._refused,
            on_failed=self.give_up,
            on_fenced=on_fenced,
        )
        self._actions: dict[Action, Callable[[Entry, Occurrence, State], None]] = {
            Action.INSERT: self._insert,
            Action.DECIDE_SUBMIT: self._decide,
            Action.FINISH: self._finish,
            Action.RESCHEDULE: self._reschedule,
            Action.PARK: self._park,
            Action.REDRIVE: self._redrive,
            Action.HURRY: self._hurry,
            Action.CHECK_BACK_FIRST: self._stop_prepared,
            Action.INCIDENT: self._incident,
            Action.RECORD: self._record_late,
        }

    # ---- what happens -----------------------------------------------------------------------------

    def happen(self, entry: Entry, occurrence: Occurrence) -> None:
        """Apply an occurrence, now or when the entry's change under way is durable."""
        if entry.busy or entry.queue:
            if entry.queue is None:
                entry.queue = deque()
            entry.queue.append(occurrence)
            return
        self._apply(entry, occurrence)
        if not entry.busy and (not entry.mine or entry.state <= _FORGOTTEN):
            self.settle(entry)

    def _apply(self, entry: Entry, occurrence: Occurrence) -> None:
        event = occurrence.event
        said = occurrence.said
        if said is not None and entry.state > _FORGOTTEN and event in _OTHER:
            same = same_prepared if event is _PREPARE else same_content
            if not same(entry.message, said):
                event = _OTHER[event]
        step = TRANSITIONS[entry.state, event]
        if step.action is not _NOTHING:
            self._actions[step.action](entry, occurrence, step.next_state)
        elif self._shared and event is _PREPARE and entry.state is _PREPARED and not occurrence.confirmed:
            self._confirm(entry, occurrence)
        if not entry.busy:
            self.replies.answer(entry, occurrence, step.reply)
            if entry.waiters:
                self.replies.release(entry)

    def drain_queue(self, entry: Entry) -> None:
        """Go on with what waited for the entry; then let it go, if nothing needs it in memory."""
        queue = entry.queue
        while queue and not entry.busy:
            self._apply(entry, queue.popleft())
        if not entry.busy and not queue:
            self.settle(entry)

    def settle(self, entry: Entry) -> None:
        """Let an entry go that is not with the store, if nothing needs it in memory."""
        if entry.detached:
            return
        if entry.state in FINAL or entry.state <= _FORGOTTEN:
            self._active.remove(entry)
        elif not entry.mine:
            if entry.calls == 0 and entry.round is None and not entry.waiters:
                self._active.remove(entry)
        elif self._active.crowded and entry.calls == 0 and entry.round is None:
            self._active.remove(entry)
            self._on_lost(entry.stored_due_ms)

    # ---- actions: each hands one change to the committer --------------------------------------------

    def _insert(self, entry: Entry, occurrence: Occurrence, next_state: State) -> None:
        said = occurrence.said
        assert said is not None, "only requests insert"
        # `fans_out`, nearly: here it is on the way of every message, and so costs half as much.
        for branch in said.branches:
            if TOPIC_PREFIX in branch.url or branch.subscribers is not None:
                expanded = self._expanded(occurrence, said)
                if expanded is None:
                    return
                said = expanded
                break
        if entry.message is not said:
            entry.become(said)
        options = said.options
        if next_state is _PREPARED:
            due_in_ms = options.timeout_to_fail_ms or self._settings.timeout_to_fail_ms
        elif options.not_before_ms:
            due_in_ms = max(options.delay_ms, options.not_before_ms - self._clock.now_ms())
        else:
            due_in_ms = options.delay_ms
        self.committer.add(entry, occurrence, Insert(said.gid, next_state, due_in_ms, encode(said)))

    def _expanded(self, occurrence: Occurrence, said: Message) -> Message | None:
        """A new message with its topics' subscribers; None, and its requester is told, when it cannot be one."""
        try:
            return self._topics.expand(said)
        except (InvalidRequest, StoreUnavailable) as error:
            self.replies.refuse(occurrence, ReplyOf(error, State.ABSENT))
            occurrence.on_reply = None
            return None

    def _confirm(self, entry: Entry, occurrence: Occurrence) -> None:
        """Prepared, says memory; another node may have decided since, and who is told "prepared" begins his business.

        The insert is refused with the row as it is; the table is then applied to that.
        """
        said = occurrence.said
        assert said is not None, "only requests are confirmed"
        occurrence.merged = said
        due_in_ms = said.options.timeout_to_fail_ms or self._settings.timeout_to_fail_ms
        self.committer.add(entry, occurrence, Insert(said.gid, _PREPARED, due_in_ms, encode(said)))

    def _decide(self, entry: Entry, occurrence: Occurrence, next_state: State) -> None:
        assert next_state is _SUBMITTED, "a decision to submit"
        assert entry.state is _PREPARED, "only a prepared message is decided"
        body: bytes | None = None
        message = entry.message
        occurrence.merged = None
        said = occurrence.said
        if said is not None:
            merged = merge(message, said)
            if merged is not message:
                if len(merged.branches) != len(message.branches) and fans_out(merged.branches):
                    merged = self._topics.expand_late(merged)
                occurrence.merged = message = merged
                body = encode(merged)
        if occurrence.on_reply is not None and body is None and _decided_early(entry):
            self._decide_early(entry, occurrence)
            return
        options = message.options
        due_in_ms = 0
        if options.delay_ms or options.not_before_ms:
            due_in_ms = max(0, self.earliest_due_ms(_SUBMITTED, message, entry.created_ms) - self._clock.now_ms())
        self.committer.add(
            entry, occurrence, Decide(message.gid, entry.version, due_in_ms, occurrence.decided_by, body)
        )

    def _decide_early(self, entry: Entry, occurrence: Occurrence) -> None:
        """The producer's submit is the decision, and nothing waits for a flush: not the answer, not the branches.

        The row says PREPARED until the branches have succeeded, which is then one change instead of two, or until one
        has not. Should this process die before, the check-back finds it again (correctness rule 25, decision 7).
        """
        self._timers.cancel(entry)
        entry.state = _SUBMITTED
        entry.early = True
        entry.decided_by = occurrence.decided_by
        entry.attempts = entry.done = 0
        entry.due_ms = self._clock.now_ms()
        on_reply, occurrence.on_reply = occurrence.on_reply, None
        assert on_reply is not None, "somebody is told"
        tell(on_reply, ReplyOf(None, _SUBMITTED, entry.created_ms))
        self._on_submitted(entry)

    def _finish(self, entry: Entry, occurrence: Occurrence, next_state: State) -> None:
        delivered = occurrence.event is _ALL_SUCCEEDED
        if occurrence.asked and entry.state is _SUBMITTED:
            return  # submitted while its producer was asked: that was meant for a prepared message
        if failpoint.ARMED and delivered:
            failpoint.reach("coordinator.before_finish")
        if delivered:
            # The row may have been read anew since, and knows less of the branches than the round that ended.
            entry.done = (1 << len(entry.calls_to)) - 1
        item = Finish(
            entry.message.gid,
            entry.version,
            next_state,
            occurrence.reason,
            (entry.decided_by if entry.early else "") if delivered else occurrence.decided_by,
            entry.attempts,
            entry.done,
        )
        self.committer.add(entry, occurrence, item, urgent=bool(occurrence.on_reply or entry.waiters))

    def _reschedule(self, entry: Entry, occurrence: Occurrence, next_state: State) -> None:
        if not entry.mine:
            return
        schedule = self._settings.check_back if next_state is _PREPARED else self._settings.delivery
        if next_state is _SUBMITTED:
            schedule = schedule.starting_at(entry.message.options.retry_interval_ms)
        pause_ms = schedule.pause_ms(max(1, entry.attempts), self._chance())
        due_ms = self._clock.now_ms() + pause_ms
        entry.due_ms = due_ms
        if entry.early:
            decide = Decide(entry.message.gid, entry.version, pause_ms, entry.decided_by)
            self.committer.add(entry, occurrence, decide, urgent=False)
            return
        item = Reschedule(entry.message.gid, entry.version, due_ms, entry.attempts, entry.done)
        self.committer.add(entry, occurrence, item, urgent=False)

    def _park(self, entry: Entry, occurrence: Occurrence, _: State) -> None:
        if occurrence.on_reply is None and not entry.mine:
            return  # this node has come to the end of its attempts; the row is another's, which has attempts of its own
        if entry.early:
            self._store_early(entry, occurrence)
            return
        entry.due_ms = self._clock.now_ms()
        item = Park(entry.message.gid, entry.version, True, entry.due_ms, entry.attempts, entry.done)
        self.committer.add(entry, occurrence, item)

    def _redrive(self, entry: Entry, occurrence: Occurrence, _: State) -> None:
        entry.due_ms = max(self._clock.now_ms(), self.earliest_due_ms(entry.state, entry.message, entry.created_ms))
        self.committer.add(entry, occurrence, Park(entry.message.gid, entry.version, False, entry.due_ms, 0))

    def _hurry(self, entry: Entry, occurrence: Occurrence, _: State) -> None:
        if entry.parked or entry.early or entry.round is not None or entry.calls:
            return  # it is not tried at all, or is this very moment
        if occurrence.on_reply is None and not entry.mine:
            return  # this node wanted to put it off; the row is another's now
        entry.due_ms = max(self._clock.now_ms(), self.earliest_due_ms(entry.state, entry.message, entry.created_ms))
        item = Reschedule(entry.message.gid, entry.version, entry.due_ms, entry.attempts, entry.done)
        self.committer.add(entry, occurrence, item)

    def earliest_ms(self, state: State, message: Message, created_ms: int) -> int:
        """Before this nobody is asked or called, however much somebody hurries.

        A producer who is asked before it has begun its transaction can never begin it.
        """
        if state is _PREPARED:
            return created_ms + (message.options.timeout_to_fail_ms or self._settings.timeout_to_fail_ms)
        return message.options.first_call_ms(created_ms)

    def earliest_due_ms(self, state: State, message: Message, created_ms: int) -> int:
        """The due time of a row that is not tried before `earliest_ms`.

        A far one says that no branch has been called yet (see `horizon`). With check-back durability one may have been,
        before a submit brought the time: such a row falls due in between, and is put off again.
        """
        earliest_ms = self.earliest_ms(state, message, created_ms)
        if state is _SUBMITTED and message.options.durability is _CHECK_BACK:
            return min(earliest_ms, self._clock.now_ms() + PAUSE_MS_MAX)
        return earliest_ms

    def _stop_prepared(self, entry: Entry, occurrence: Occurrence, next_state: State) -> None:
        on_reply, occurrence.on_reply = occurrence.on_reply, None
        if occurrence.asked:
            occurrence.on_reply = on_reply
            self._finish(entry, occurrence, next_state)
        elif on_reply is not None:
            self._on_stop(entry, on_reply, occurrence.reason)

    def _store_early(self, entry: Entry, occurrence: Occurrence) -> None:
        """Store the decision that stands in memory alone; then comes what happened."""
        if entry.queue is None:
            entry.queue = deque()
        entry.queue.appendleft(occurrence)
        decide = Decide(entry.message.gid, entry.version, _EARLY_RETRY_MS, entry.decided_by)
        self.committer.add(entry, Occurrence(_SUBMIT), decide)

    def _incident(self, entry: Entry, occurrence: Occurrence, _: State) -> None:
        what = f"{occurrence.event.name.lower()} arrived when the message was {entry.state.name.lower()}"
        self._observer.incident(entry.message.gid, what)
        self._note(entry, AttemptKind.INCIDENT, what)

    def _record_late(self, entry: Entry, occurrence: Occurrence, _: State) -> None:
        what = f"{occurrence.event.name.lower()} arrived late, the message was {entry.state.name.lower()}"
        self._note(entry, AttemptKind.BRANCH, what)

    def _note(self, entry: Entry, kind: AttemptKind, what: str) -> None:
        self.committer.record(Attempt(entry.message.gid, kind, "", "", self._clock.now_ms(), 0, 0, kind.value, what))

    # ---- outcomes: each is durable when it is told here ---------------------------------------------

    def _applied(self, entry: Entry, occurrence: Occurrence, item: Item, at_ms: int) -> None:
        was_early = entry.early
        self._confirmed.take(entry, occurrence, item, at_ms)
        if isinstance(item, Park) and item.parked:
            self._on_parked(entry, occurrence)
        elif was_early and isinstance(item, Decide) and self.used_up(entry):
            self.happen(entry, Occurrence(Event.PARK, reason=ATTEMPTS_USED_UP))
        self.replies.answer(entry, occurrence, _OK)
        if entry.state is _SUBMITTED and entry.bucket < 0 and not entry.parked and not entry.busy:
            self._on_submitted(entry)
        if entry.waiters:
            self.replies.release(entry)
        if entry.queue:
            self.drain_queue(entry)
        elif not entry.busy:
            self.settle(entry)

    def _refused(self, entry: Entry, occurrence: Occurrence, found: Refusal) -> None:
        if isinstance(found, Rejected):
            error = InvalidRequest(f"the store refuses this message's data: {found.error}", gid=entry.message.gid)
            self.replies.refuse(occurrence, ReplyOf(error, State.ABSENT))
            if entry.version:
                self._observer.incident(entry.message.gid, error.message)
                self.give_up(entry, None, StoreError(error.message, gid=entry.message.gid))
                return
        else:
            asked_only = occurrence.event is _PREPARE and entry.version > 0
            if not (asked_only and isinstance(found, LiveRow) and found.mine and found.version == entry.version):
                was_early, decided_by = entry.early, entry.decided_by
                self._active.mirror(entry, found)
                if was_early:
                    self._keep_early(entry, decided_by)
            occurrence.confirmed = True
            self._apply(entry, occurrence)
        self.drain_queue(entry)

    def _keep_early(self, entry: Entry, decided_by: str) -> None:
        """A decision that stood in memory alone has met a row that changed: it holds, or it is an incident."""
        if entry.state is _PREPARED:
            self._timers.cancel(entry)
            entry.state = _SUBMITTED
            entry.early = True
            entry.decided_by = decided_by
            entry.parked = False
        elif entry.state is not _SUBMITTED and entry.state is not State.SUCCEEDED:
            self._incident(entry, Occurrence(_SUBMIT), entry.state)

    def give_up(self, entry: Entry, occurrence: Occurrence | None, error: StoreError) -> None:
        """The stored state is not known: tell everybody who waits, and forget the entry; it is read again."""
        waiting = [] if occurrence is None else [occurrence]
        if entry.queue:
            waiting.extend(entry.queue)
            entry.queue.clear()
        # Forgotten first: who is told may ask again at once, and that must begin anew.
        self._active.remove(entry)
        self._on_fault()
        for one in waiting:
            self.replies.refuse(one, ReplyOf(error, entry.state))
        self.replies.answer_waiters(entry, ReplyOf(error, entry.state))

    # ---- when ---------------------------------------------------------------------------------------

    def used_up(self, entry: Entry) -> bool:
        """Whether a message whose branches fail has failed as often in a row as it may."""
        attempts_max = entry.message.options.attempts_max or self._settings.attempts_max
        return 0 < attempts_max <= entry.attempts

    def put_off(self, entry: Entry) -> None:
        """Nobody could be called for want of a place: it comes again in memory; its row is due, and remains so.

        The longer it has waited, the longer the next pause, so that what waits costs little, however much it is.
        """
        if entry.mine:
            now_ms = self._clock.now_ms()
            pause_ms = min(max(now_ms - entry.stored_due_ms, _NO_PLACE_MS), _NO_PLACE_MS_MAX)
            self._timers.schedule(entry, now_ms + pause_ms + int(pause_ms * self._chance()))
        else:
            self.settle(entry)

    def postpone(self, entry: Entry) -> None:
        """Its time has not come, whatever the row says: nothing is called before."""
        if entry.first_call_ms - self._clock.now_ms() > self._settings.page_ahead_ms:
            self.happen(entry, Occurrence(Event.HURRY))  # which gives the row a time, so that memory may let it go
        if not entry.busy and not entry.detached and entry.bucket < 0:
            self._timers.schedule(entry, entry.first_call_ms)


def _decided_early(entry: Entry) -> bool:
    """Whether a submit of this prepared message is not flushed before it counts."""
    # The first line is all that most messages need, and saves them a call.
    return (
        entry.message.options.durability is _CHECK_BACK
        and may_be_called_early(entry.message)
        and not entry.parked
        and entry.mine
    )
