"""What memory holds of a message after one of its changes has become durable (I8: never before).

Each method is told of one item that the store has applied, and makes the entry what its row now is.
"""

from __future__ import annotations

from typing import Final

from twophase.coordinator.observer import Observer
from twophase.coordinator.state.active_message import Entry, Occurrence
from twophase.coordinator.state.active_set import Active
from twophase.coordinator.state.timers import Timers
from twophase.core import failpoint
from twophase.core.hooks import Clock
from twophase.core.lifecycle import Event, State
from twophase.stores.base import Decide, Finish, Insert, Item, Park, Redirect, Reschedule

# Names of this module: see `decisions`.
_PREPARED: Final = State.PREPARED
_SUBMITTED: Final = State.SUBMITTED
_ALL_SUCCEEDED: Final = Event.ALL_SUCCEEDED


class Confirmed:
    """Brings entries up to date with their rows."""

    def __init__(self, active: Active, timers: Timers, clock: Clock, observer: Observer) -> None:
        self._active = active
        self._timers = timers
        self._clock = clock
        self._observer = observer

    def take(self, entry: Entry, occurrence: Occurrence, item: Item, at_ms: int) -> None:
        """The store has applied `item` at `at_ms` of its clock."""
        entry.version += 1
        entry.mine = True
        if isinstance(item, Insert):
            self._inserted(entry, occurrence, item, at_ms)
        elif isinstance(item, Decide):
            self._decided(entry, occurrence, item, at_ms)
        elif isinstance(item, Finish):
            self._finished(entry, occurrence, item)
        elif isinstance(item, Reschedule):
            entry.stored_due_ms = item.due_ms
            self._timers.schedule(entry, item.due_ms)
        elif isinstance(item, Redirect):
            self._redirected(entry, occurrence, item)
        else:
            self._parked(entry, item)

    def _inserted(self, entry: Entry, occurrence: Occurrence, item: Insert, at_ms: int) -> None:
        entry.state = item.state
        entry.version = 1
        entry.decided_by = occurrence.decided_by
        entry.created_ms = at_ms if item.created_ms is None else item.created_ms
        self._become(entry, occurrence)
        entry.stored_due_ms = at_ms + item.due_in_ms
        entry.due_ms = self._clock.now_ms() + item.due_in_ms
        if item.state is _PREPARED or item.due_in_ms:
            self._timers.schedule(entry, entry.due_ms)

    def _decided(self, entry: Entry, occurrence: Occurrence, item: Decide, at_ms: int) -> None:
        entry.decided_by = item.decided_by
        self._become(entry, occurrence)
        entry.stored_due_ms = at_ms + item.due_in_ms
        entry.state = _SUBMITTED
        if not entry.early:
            entry.attempts = 0
            entry.done = 0
        entry.early = False
        entry.parked = False
        due_ms = self._clock.now_ms() + item.due_in_ms
        if item.due_in_ms:
            self._timers.schedule(entry, due_ms)
        else:
            self._timers.cancel(entry)
            entry.due_ms = due_ms

    def _finished(self, entry: Entry, occurrence: Occurrence, item: Finish) -> None:
        if failpoint.ARMED and occurrence.event is _ALL_SUCCEEDED:
            failpoint.reach("coordinator.after_finish")
        entry.state = item.state
        self._observer.finished(item.state, item.decided_by or entry.decided_by)

    def _parked(self, entry: Entry, item: Park) -> None:
        entry.stored_due_ms = item.due_ms
        entry.parked = item.parked
        if item.parked:
            self._timers.cancel(entry)
        else:
            entry.attempts = 0
            self._timers.schedule(entry, item.due_ms)

    def _redirected(self, entry: Entry, occurrence: Occurrence, item: Redirect) -> None:
        self._become(entry, occurrence)
        entry.stored_due_ms = item.due_ms
        entry.attempts = 0
        entry.done = item.done
        for outcome in entry.queue or ():
            outcome.outdate(entry.state)
        if not entry.parked:
            self._timers.schedule(entry, item.due_ms)

    def _become(self, entry: Entry, occurrence: Occurrence) -> None:
        if occurrence.merged is not None:
            entry.become(occurrence.merged)
            self._active.weigh(entry)
