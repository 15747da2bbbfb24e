"""The engine: messages in memory, and what happens to each of them until it is final.

The parts are put together here: requests are admitted, decided and made durable, branches called, producers asked. What
memory does not hold, and who else shares the store, is not known here; whoever knows is told by callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from twophase.coordinator.admission import Admission
from twophase.coordinator.dispatch.alerts import Alerts
from twophase.coordinator.dispatch.calls import Calls, why_not_callable
from twophase.coordinator.dispatch.check_back import CheckBack
from twophase.coordinator.dispatch.delivery import Delivery
from twophase.coordinator.dispatch.force_stop import Stopping
from twophase.coordinator.dispatch.limiter import Gate
from twophase.coordinator.observer import Observer
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Entry, Occurrence, OnReply
from twophase.coordinator.state.active_set import Active
from twophase.coordinator.state.machine import Decisions
from twophase.coordinator.state.timers import Timers
from twophase.coordinator.state.times import Times
from twophase.coordinator.topic_changes import ChangeableTopics
from twophase.core.errors import StoreFenced
from twophase.core.hooks import Chance, Clock
from twophase.core.lifecycle import State
from twophase.destinations.base import Destination
from twophase.stores.base import DecidedBy, Store

_BUSY_MS: Final = 1_000


class Engine:
    """The parts that see a message through.

    Arguments:
        store, destinations, settings, clock, chance, observer, alerts: as of the coordinator.
        on_lost: told the due time of an unfinished message that leaves memory.
        on_fault: the store has failed, and what it holds of some messages is not known.
        on_fenced: the store says that this node has lost its place.
        on_due: what is done with a message that is due, instead of `see_to`: who shares the store finds out first
            whose it is.
    """

    def __init__(
        self,
        store: Store,
        destinations: Mapping[str, Destination],
        settings: CoordinatorSettings,
        clock: Clock,
        chance: Chance,
        observer: Observer,
        alerts: Alerts,
        *,
        on_lost: Callable[[int], None],
        on_fault: Callable[[], None],
        on_fenced: Callable[[StoreFenced], None],
        on_due: Callable[[Entry], None] | None = None,
    ) -> None:
        self._clock = clock
        self._observer = observer
        self.alerts = alerts
        self.timers = Timers(clock, self._due)
        self.active = Active(self.timers, Times(settings, clock), settings.active_max, settings.active_bytes_max)
        check_address = partial(why_not_callable, destinations)
        self.topics = ChangeableTopics(store, settings.topics_interval_ms, chance, observer, check_address)
        self.decisions = Decisions(
            store,
            self.topics,
            self.active,
            self.timers,
            settings,
            clock,
            chance,
            observer,
            on_submitted=self._submitted,
            on_stop=self._stop_prepared,
            on_parked=self._parked,
            on_lost=on_lost,
            on_fault=on_fault,
            on_fenced=on_fenced,
        )
        self.admission = Admission(store, self.active, self.decisions, self.topics, settings, observer)
        bounds = (settings.in_flight_max, settings.in_flight_per_destination_max, settings.lane_waiting_max)
        self.branch_calls = Calls(destinations, Gate(*bounds, clock))
        self.check_calls = Calls(destinations, Gate(*bounds, clock))
        self._delivery = Delivery(self.topics, self.branch_calls, self.decisions, alerts, settings, clock, observer)
        self._check_back = CheckBack(self.check_calls, self.decisions, alerts, settings, clock, observer)
        self._stopping = Stopping(self._check_back, self.decisions, settings)
        self._on_due = on_due or self.see_to

    @property
    def calling(self) -> int:
        """How many calls are under way."""
        return self.branch_calls.gate.in_flight + self.check_calls.gate.in_flight

    def drain(self) -> None:
        """Start no call until `resume`, and forget those that wait; the ones under way end as they would."""
        self.branch_calls.drain()
        self.check_calls.drain()

    def resume(self) -> None:
        """Start calls again."""
        self.branch_calls.resume()
        self.check_calls.resume()

    def carry(self, header: tuple[str, str]) -> None:
        """What every branch call carries from now on."""
        self._delivery.carry(header)

    def see_to(self, entry: Entry) -> None:
        """Ask its producer, or call its branches."""
        if entry.state is State.PREPARED:
            self._check_back.ask(entry)
        else:
            self._delivery.begin(entry)

    def _due(self, entry: Entry) -> None:
        if entry.parked or entry.round is not None:
            return  # unparked, it is scheduled anew; and so it is when its round ends
        if entry.busy:
            # Most changes set a time when they are durable; one that turns out to change nothing does not.
            self.timers.schedule(entry, self._clock.now_ms() + _BUSY_MS)
            return
        if entry.state is State.PREPARED or entry.state is State.SUBMITTED:
            self._on_due(entry)

    def _stop_prepared(self, entry: Entry, on_reply: OnReply, reason: str) -> None:
        self._stopping.begin(entry, on_reply, reason)

    def _submitted(self, entry: Entry) -> None:
        self._delivery.begin(entry)

    def _parked(self, entry: Entry, occurrence: Occurrence) -> None:
        self._observer.parked(entry.message.gid, occurrence.reason)
        if occurrence.decided_by != DecidedBy.OPERATOR:
            self.alerts.parked(entry, occurrence.reason, self._clock.now_ms())
