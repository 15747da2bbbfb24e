"""What each action of the lifecycle table does: one change for the store, handed to the committer.

Nothing is told and nothing called here, for nothing is durable yet (I8). The one exception is a submit with check-back
durability (`_decide_early`): told and called first, stored with its outcome (correctness rule 25).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from twophase.coordinator.observer import Observer
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Entry, Occurrence, OnReply, ReplyOf, tell
from twophase.coordinator.state.group_commit import Committer
from twophase.coordinator.state.merging import merge
from twophase.coordinator.state.replies import Replies
from twophase.coordinator.state.timers import Timers
from twophase.coordinator.state.times import Times
from twophase.coordinator.topics import Topics
from twophase.core import failpoint
from twophase.core.errors import InvalidRequest, StateConflict, StoreUnavailable
from twophase.core.hooks import Chance, Clock
from twophase.core.lifecycle import Action, Event, State
from twophase.core.limits import ERROR_TEXT_BYTES_MAX
from twophase.core.message import Durability, Message, encode, may_be_called_early
from twophase.core.redirect import redirect
from twophase.core.topic import TOPIC_PREFIX, fans_out
from twophase.stores.base import Attempt, AttemptKind, Decide, Finish, Insert, Park, Redirect, Reschedule

# Names of this module: see `decisions`.
_PREPARED: Final = State.PREPARED
_SUBMITTED: Final = State.SUBMITTED
_SUBMIT: Final = Event.SUBMIT
_ALL_SUCCEEDED: Final = Event.ALL_SUCCEEDED
_CHECK_BACK: Final = Durability.CHECK_BACK
_EARLY_RETRY_MS: Final = 1_000

Act = Callable[[Entry, Occurrence, State], None]
"""Called with (entry, occurrence, the state the table leads to)."""


class Changes:
    """The actions, by name."""

    def __init__(
        self,
        committer: Committer,
        times: Times,
        topics: Topics,
        timers: Timers,
        settings: CoordinatorSettings,
        clock: Clock,
        chance: Chance,
        replies: Replies,
        observer: Observer,
        *,
        on_submitted: Callable[[Entry], None],
        on_stop: Callable[[Entry, OnReply, str], None],
    ) -> None:
        self._committer = committer
        self._times = times
        self._topics = topics
        self._timers = timers
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._replies = replies
        self._observer = observer
        self._on_submitted = on_submitted
        self._on_stop = on_stop
        self.actions: dict[Action, Act] = {
            Action.INSERT: self._insert,
            Action.DECIDE_SUBMIT: self._decide,
            Action.FINISH: self._finish,
            Action.RESCHEDULE: self._reschedule,
            Action.PARK: self._park,
            Action.REDRIVE: self._redrive,
            Action.HURRY: self._hurry,
            Action.REDIRECT: self._redirect,
            Action.CHECK_BACK_FIRST: self._stop_prepared,
            Action.INCIDENT: self.incident,
            Action.RECORD: self._record_late,
        }

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
        item = Insert(said.gid, next_state, due_in_ms, encode(said), occurrence.created_ms)
        self._committer.add(entry, occurrence, item)

    def _expanded(self, occurrence: Occurrence, said: Message) -> Message | None:
        """A new message with its topics' subscribers; None, and its requester is told, when it cannot be one."""
        try:
            return self._topics.expand(said)
        except (InvalidRequest, StoreUnavailable) as error:
            self._replies.refuse(occurrence, ReplyOf(error, State.ABSENT))
            occurrence.on_reply = None
            return None

    def confirm(self, entry: Entry, occurrence: Occurrence) -> None:
        """Prepared, says memory; another node may have decided since, and who is told "prepared" begins his business.

        The insert is refused with the row as it is; the table is then applied to that.
        """
        said = occurrence.said
        assert said is not None, "only requests are confirmed"
        occurrence.merged = said
        due_in_ms = said.options.timeout_to_fail_ms or self._settings.timeout_to_fail_ms
        self._committer.add(entry, occurrence, Insert(said.gid, _PREPARED, due_in_ms, encode(said)))

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
            due_in_ms = max(
                0, self._times.earliest_due_ms(_SUBMITTED, message, entry.created_ms) - self._clock.now_ms()
            )
        self._committer.add(
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
        self._committer.add(entry, occurrence, item, urgent=bool(occurrence.on_reply or entry.waiters))

    def _reschedule(self, entry: Entry, occurrence: Occurrence, next_state: State) -> None:
        if not entry.mine:
            return
        schedule = self._settings.check_back if next_state is _PREPARED else self._settings.delivery
        if next_state is _SUBMITTED:
            schedule = schedule.starting_at(entry.message.options.retry_interval_ms)
        pause_ms = occurrence.pause_ms or schedule.pause_ms(max(1, entry.attempts), self._chance())
        due_ms = self._clock.now_ms() + pause_ms
        entry.due_ms = due_ms
        if entry.early:
            decide = Decide(entry.message.gid, entry.version, pause_ms, entry.decided_by)
            self._committer.add(entry, occurrence, decide, urgent=False)
            return
        item = Reschedule(entry.message.gid, entry.version, due_ms, entry.attempts, entry.done)
        self._committer.add(entry, occurrence, item, urgent=False)

    def _park(self, entry: Entry, occurrence: Occurrence, _: State) -> None:
        if occurrence.on_reply is None and not entry.mine:
            return  # this node has come to the end of its attempts; the row is another's, which has attempts of its own
        if entry.early:
            self._store_early(entry, occurrence)
            return
        entry.due_ms = self._clock.now_ms()
        item = Park(entry.message.gid, entry.version, True, entry.due_ms, entry.attempts, entry.done)
        self._committer.add(entry, occurrence, item)

    def _redrive(self, entry: Entry, occurrence: Occurrence, _: State) -> None:
        entry.due_ms = self._times.soonest_ms(entry.state, entry.message, entry.created_ms)
        self._committer.add(entry, occurrence, Park(entry.message.gid, entry.version, False, entry.due_ms, 0))

    def _hurry(self, entry: Entry, occurrence: Occurrence, _: State) -> None:
        if entry.parked or entry.early or entry.round is not None or entry.calls:
            return  # it is not tried at all, or is this very moment
        if occurrence.on_reply is None and not entry.mine:
            return  # this node wanted to put it off; the row is another's now
        entry.due_ms = self._times.soonest_ms(entry.state, entry.message, entry.created_ms)
        item = Reschedule(entry.message.gid, entry.version, entry.due_ms, entry.attempts, entry.done)
        self._committer.add(entry, occurrence, item)

    def _redirect(self, entry: Entry, occurrence: Occurrence, _: State) -> None:
        wanted = occurrence.redirection
        assert wanted is not None, "an operator says where to"
        if entry.early:
            self._store_early(entry, occurrence)
            return
        message = entry.message
        try:
            if wanted.check and entry.state is not _PREPARED:
                text = f"current status '{entry.state.name.lower()}', cannot redirect: its producer is asked no more."
                raise StateConflict(text, gid=message.gid)
            redirected, moves = redirect(message, entry.done, wanted)
        except (InvalidRequest, StateConflict) as error:
            self._replies.refuse(occurrence, ReplyOf(error, entry.state, entry.created_ms))
            occurrence.on_reply = None
            return
        if not moves:
            return
        if moves != occurrence.moves:  # once, also when the row has changed meanwhile and it is planned again
            now_ms = self._clock.now_ms()
            for move in moves:
                told = f"{occurrence.reason}; now {move.after}"[: ERROR_TEXT_BYTES_MAX.value]
                attempt = Attempt(
                    message.gid, AttemptKind.OPERATOR, move.branch_id, move.before, now_ms, 0, 0, "redirect", told
                )
                self._committer.record(attempt)
        occurrence.moves, occurrence.merged = moves, redirected
        entry.due_ms = self._times.soonest_ms(entry.state, redirected, entry.created_ms)
        item = Redirect(message.gid, entry.version, entry.due_ms, entry.done, encode(redirected))
        self._committer.add(entry, occurrence, item)

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
        self._committer.add(entry, Occurrence(_SUBMIT), decide)

    def incident(self, entry: Entry, occurrence: Occurrence, _: State) -> None:
        what = f"{occurrence.event.name.lower()} arrived when the message was {entry.state.name.lower()}"
        self._observer.incident(entry.message.gid, what)
        self._note(entry, AttemptKind.INCIDENT, what)

    def _record_late(self, entry: Entry, occurrence: Occurrence, _: State) -> None:
        what = f"{occurrence.event.name.lower()} arrived late, the message was {entry.state.name.lower()}"
        self._note(entry, AttemptKind.BRANCH, what)

    def _note(self, entry: Entry, kind: AttemptKind, what: str) -> None:
        self._committer.record(Attempt(entry.message.gid, kind, "", "", self._clock.now_ms(), 0, 0, kind.value, what))


def _decided_early(entry: Entry) -> bool:
    """Whether a submit of this prepared message is not flushed before it counts."""
    # The first line is all that most messages need, and saves them a call.
    return (
        entry.message.options.durability is _CHECK_BACK
        and may_be_called_early(entry.message)
        and not entry.parked
        and entry.mine
    )
