"""The only place that applies the lifecycle table to a running coordinator's messages.

Whatever happens to a message, requested or observed, arrives here as an `Occurrence`; the table says what it does
(`changes`); the change is made durable; only then is anybody told and anything called. The one exception is a submit
with check-back durability: told and called first, stored with its outcome (correctness rule 25). So I1, I3, I5 and I7
are the table's, and I8 is the order of the lines here. A lost compare-and-set takes the stored row, and the table is
applied again to what it says (correctness rule 21).

On a store that several nodes share, that row may be another node's. A request acts on it all the same, and what it
changes becomes ours; what only says that this node must try again is dropped, because the owner will.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from twophase.coordinator.observer import Observer
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.actions import Act, Changes
from twophase.coordinator.state.active_message import NOT_DONE, Entry, Occurrence, OnReply, ReplyOf
from twophase.coordinator.state.active_set import Active
from twophase.coordinator.state.confirmed import Confirmed
from twophase.coordinator.state.deferral import Slots
from twophase.coordinator.state.group_commit import Committer
from twophase.coordinator.state.replies import Replies
from twophase.coordinator.state.timers import Timers
from twophase.coordinator.state.times import Times
from twophase.coordinator.topics import Topics
from twophase.core.errors import InvalidRequest, StoreError, StoreFenced
from twophase.core.hooks import Chance, Clock
from twophase.core.lifecycle import FINAL, TRANSITIONS, Action, Event, Reply, State
from twophase.core.message import same_content, same_prepared
from twophase.stores.base import (
    Decide,
    Item,
    LiveRow,
    NotApplied,
    Park,
    Rejected,
    Store,
)

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
_NOTHING: Final = Action.NOTHING
_OK: Final = Reply.OK
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
        self._active = active
        self._page_ahead_ms = settings.page_ahead_ms
        self._lane_waiting_max = settings.lane_waiting_max
        self._timers = timers
        self._clock = clock
        self._chance = chance
        self._observer = observer
        self._on_submitted = on_submitted
        self._on_parked = on_parked
        self._on_lost = on_lost
        self._slots = Slots()
        self._on_fault = on_fault
        self.replies = Replies(observer)
        self._confirmed = Confirmed(active, timers, clock, observer)
        self.committer = Committer(
            store,
            observer,
            flush_items_max=settings.flush_items_max,
            linger_ms=settings.linger_ms,
            memory_bytes=lambda: active.bytes,
            on_applied=self._applied,
            on_refused=self._refused,
            on_failed=self.give_up,
            on_fenced=on_fenced,
        )
        self.times = Times(settings, clock)
        self._changes = Changes(
            self.committer,
            self.times,
            topics,
            timers,
            settings,
            clock,
            chance,
            self.replies,
            observer,
            on_submitted=on_submitted,
            on_stop=on_stop,
        )
        self._actions: dict[Action, Act] = self._changes.actions

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
            if event is _PREPARE:
                same = same_prepared(entry.message, said)
            else:
                same = same_content(entry.message, said, committed=_SUBMITTED <= entry.state <= _SUCCEEDED)
            if not same:
                event = _OTHER[event]
        step = TRANSITIONS[entry.state, event]
        if step.action is not _NOTHING:
            self._actions[step.action](entry, occurrence, step.next_state)
        elif self._shared and event is _PREPARE and entry.state is _PREPARED and not occurrence.confirmed:
            self._changes.confirm(entry, occurrence)
        if not entry.busy:
            self.replies.answer(entry, occurrence, step.reply)
            if entry.waiters:
                self.replies.release(entry)

    def drain_queue(self, entry: Entry) -> None:
        """Go on with what waited for the entry; then let it go, if nothing needs it in memory."""
        queue = entry.queue
        while queue and not entry.busy:
            self._apply(entry, queue.popleft())
        if not queue:
            self.settle(entry)

    def settle(self, entry: Entry) -> None:
        """Let an entry go, if nothing needs it in memory; never one whose change is with the store."""
        if entry.detached or entry.busy:
            return
        if entry.state in FINAL or entry.state <= _FORGOTTEN:
            self._active.remove(entry)
        elif not entry.mine:
            if entry.calls == 0 and entry.round is None and not entry.waiters:
                self._active.remove(entry)
        elif self._active.crowded and entry.calls == 0 and entry.round is None:
            self._active.remove(entry)
            self._on_lost(entry.stored_due_ms)

    def _applied(self, entry: Entry, occurrence: Occurrence, item: Item, at_ms: int) -> None:
        was_early = entry.early
        self._confirmed.take(entry, occurrence, item, at_ms)
        if isinstance(item, Park) and item.parked:
            self._on_parked(entry, occurrence)
        elif was_early and isinstance(item, Decide) and self.times.used_up(entry):
            self.happen(entry, Occurrence(Event.PARK, reason=ATTEMPTS_USED_UP))
        self.replies.answer(entry, occurrence, _OK)
        if entry.state is _SUBMITTED and entry.bucket < 0 and not entry.parked and not entry.busy:
            self._on_submitted(entry)
        if entry.waiters:
            self.replies.release(entry)
        if entry.queue:
            self.drain_queue(entry)
        else:
            self.settle(entry)

    def _refused(self, entry: Entry, occurrence: Occurrence, found: NotApplied) -> None:
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
                addresses = entry.calls_to, entry.message.check_url
                self._active.mirror(entry, found)
                if (entry.calls_to, entry.message.check_url) != addresses:
                    # Redirected elsewhere: what was heard at the addresses before says nothing of these.
                    for outcome in (occurrence, *(entry.queue or ())):
                        outcome.outdate(entry.state)
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
            self._changes.incident(entry, Occurrence(_SUBMIT), entry.state)

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

    def put_off(self, entry: Entry, waited_ms: int) -> None:
        """Nobody could be called or asked for want of a place: it comes again in memory; its row stays as it is, due.

        The pause is as long as those have waited who found one: what waits for a receiver that hangs costs little,
        however much it is, and what waits for a busy one comes when its queue has passed. They are spread over as many
        queues as memory can hold of them, so that about as many come as find a place. When others need the memory it
        leaves: its row gets a time of its own, so that it is not read before what is due.
        """
        if not entry.mine:
            self.settle(entry)
            return
        now_ms = self._clock.now_ms()
        if self._active.crowded:
            self.happen(entry, Occurrence(NOT_DONE[entry.state], pause_ms=self._slots.pause_ms(now_ms)))
        else:
            pause_ms = min(max(waited_ms, _NO_PLACE_MS), _NO_PLACE_MS_MAX)
            queues = max(1.0, len(self._active) / self._lane_waiting_max)
            spread_ms = min(pause_ms * queues, _NO_PLACE_MS_MAX)
            self._timers.schedule(entry, now_ms + pause_ms + int(spread_ms * self._chance()))

    def postpone(self, entry: Entry, first_call_ms: int) -> None:
        """Its time has not come, whatever the row says: nothing is called before."""
        if first_call_ms - self._clock.now_ms() > self._page_ahead_ms:
            self.happen(entry, Occurrence(Event.HURRY))  # which gives the row a time, so that memory may let it go
        if not entry.busy and not entry.detached and entry.bucket < 0:
            self._timers.schedule(entry, first_call_ms)
