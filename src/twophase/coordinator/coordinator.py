"""The coordinator: takes requests, remembers what it acknowledged, and sees every message through.

Requests come as callbacks because they are the hot path; each is answered exactly once, whatever happens. Which are
taken is the business of `admission`, what they do the lifecycle table's (`decisions`); here the parts are put together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from twophase.coordinator.active import Active
from twophase.coordinator.admission import Admission
from twophase.coordinator.alerts import Alerts
from twophase.coordinator.calls import Calls, why_not_callable
from twophase.coordinator.checkback import CheckBack
from twophase.coordinator.decisions import Decisions
from twophase.coordinator.delivery import Delivery
from twophase.coordinator.entry import Entry, Occurrence, OnReply, ReplyOf
from twophase.coordinator.gate import Gate
from twophase.coordinator.gauges import Gauges
from twophase.coordinator.horizon import Horizon, OldestHeader, horizon
from twophase.coordinator.looking import page_of
from twophase.coordinator.membership import Membership
from twophase.coordinator.moved import Moved
from twophase.coordinator.node import Node
from twophase.coordinator.observer import Observer
from twophase.coordinator.operator import Operator
from twophase.coordinator.recovery import Recovery
from twophase.coordinator.retention import Retention
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.stopping import Stopping
from twophase.coordinator.store_clock import StoreClock
from twophase.coordinator.timers import Timers
from twophase.coordinator.topic_changes import ChangeableTopics
from twophase.coordinator.view import MessageView, view_of
from twophase.core.errors import InvalidRequest, ShuttingDown, StoreError, StoreFenced
from twophase.core.hooks import Chance, Clock
from twophase.core.lifecycle import Event, State
from twophase.core.message import Message
from twophase.destinations.base import Destination
from twophase.stores.base import DecidedBy, Overview, Store
from twophase.stores.search import Search

# Names of this module: see `decisions`.
_PREPARE: Final = Event.PREPARE
_SUBMIT: Final = Event.SUBMIT
_BY_SUBMIT: Final = DecidedBy.SUBMIT
_BUSY_MS: Final = 1_000
_NOBODY_TO_ASK: Final = (
    "query_prepared is missing: this coordinator is strict, and prepares only what it can ask about."
)
_GIVE_ADDRESS: Final = (
    "Give the address that is asked whether the local transaction committed, or submit without prepare."
)


class Coordinator:
    """One node's engine between a store and destinations; lives in one event loop.

    `clock` is the time it goes by: on a store that nodes share, the store's. `topics` says who is called for
    `topic://name`, and changes it.
    """

    def __init__(
        self,
        store: Store,
        destinations: Mapping[str, Destination],
        settings: CoordinatorSettings,
        clock: Clock,
        chance: Chance,
        observer: Observer,
        alerts: Alerts | None = None,
    ) -> None:
        """Put the parts together; nothing runs before `start`.

        Arguments:
            store: where messages are kept; started and stopped by this coordinator.
            destinations: how to call an address, by its scheme; stopped by this coordinator.
            settings: bounds and schedules.
            clock, chance: time and randomness, the tests' own where they want.
            observer: hears what happens.
            alerts: tells an operator of messages that do not get on; stopped by this coordinator.
        """
        self._store = store
        self._destinations = destinations
        self._settings = settings
        self._store_clock = StoreClock(clock)
        if store.shared:
            clock = self._store_clock
        self.clock: Clock = clock
        self._observer = observer
        self._alerts = alerts or Alerts(None, None, after=1, timeout_ms=1, observer=observer)
        self._timers = Timers(clock, self._due)
        self._active = Active(self._timers, settings.active_max, settings.active_bytes_max)
        self.topics = ChangeableTopics(
            store, settings.topics_interval_ms, chance, observer, partial(why_not_callable, destinations)
        )
        self._decisions = Decisions(
            store,
            self.topics,
            self._active,
            self._timers,
            settings,
            clock,
            chance,
            observer,
            on_submitted=self._submitted,
            on_stop=self._stop_prepared,
            on_parked=self._parked,
            on_lost=self._lost,
            on_fault=self._fault,
            on_fenced=self._fenced,
        )
        self._admission = Admission(store, self._active, self._decisions, self.topics, settings, observer)
        bounds = (settings.in_flight_max, settings.in_flight_per_destination_max, settings.lane_waiting_max)
        self._branch_calls = Calls(destinations, Gate(*bounds))
        self._check_calls = Calls(destinations, Gate(*bounds))
        self._delivery = Delivery(
            self.topics, self._branch_calls, self._decisions, self._alerts, settings, clock, observer
        )
        self._check_back = CheckBack(self._check_calls, self._decisions, self._alerts, settings, clock, observer)
        self._retention = Retention(store, settings, clock, chance, observer)
        self._oldest_header = OldestHeader(store, settings.oldest_interval_ms, self._carry)
        self._recovery = Recovery(
            store, self._active, settings, clock, chance, observer, lambda: self._admission.is_open
        )
        self._moved = Moved(
            store,
            self._active,
            self._timers,
            clock,
            observer,
            on_ours=self._see_to,
            on_done=self._decisions.settle,
            on_fenced=self._fenced,
        )
        self._node = Node(
            self._admission,
            self._branch_calls,
            self._check_calls,
            self._decisions,
            self._moved,
            self._recovery,
            self._active,
            self._timers,
            self.tick,
        )
        self._membership = Membership(
            store, self._node, self._store_clock, settings, chance, observer, self._recovery.hurry
        )
        self._on_due = self._moved.sift if store.shared else self._see_to
        self._stopping = Stopping(self._check_back, self._decisions, settings)
        self.operator = Operator(store, self._decisions, clock, self._admission.find, settings.attempts_max)

    # ---- life -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, take up everything unfinished, and accept requests.

        Raises:
            StoreError: the store refuses to start; its class says why.
        """
        self._node.begin()
        await self._store.start()
        asked_ms = self._store_clock.own_ms()
        self._store_clock.follow(await self._store.now_ms(), asked_ms)
        await self.topics.start()
        self._admission.is_open = True
        await self._recovery.start()
        self._membership.start()
        await self._oldest_header.start()
        await self._retention.start()

    async def drain(self, timeout_ms: int) -> None:
        """Take no new work, cut nothing: end the calls and changes under way, within `timeout_ms`."""
        await self._end_work()
        await self._membership.leave()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._calling or self._admission.looking_up:
                    await asyncio.sleep(0.01)
                    await self._decisions.committer.drained()
                await self._decisions.committer.drained()
        except TimeoutError:
            pass
        for entry in self._active.entries():
            self._decisions.replies.answer_waiters(entry, ReplyOf(ShuttingDown(gid=entry.message.gid), entry.state))

    async def stop(self) -> None:
        """Stop at once what still runs, answer whoever waits, and close the store. Safe to call twice."""
        await self._end_work()
        await self._membership.stop()
        await self._decisions.committer.stop()
        await self._node.forget_all(StoreError("the coordinator has stopped"))
        await self._alerts.stop()
        try:
            for destination in {id(one): one for one in self._destinations.values()}.values():
                await destination.stop()
        finally:
            await self._store.stop()

    async def _end_work(self) -> None:
        self._admission.draining = True
        self._admission.is_open = False
        self._timers.stop()
        self._branch_calls.drain()
        self._check_calls.drain()
        await self._moved.stop()
        await self._recovery.stop()
        await self._oldest_header.stop()
        await self._retention.stop()
        await self.topics.stop()

    @property
    def ready(self) -> bool:
        """Whether requests are accepted."""
        return self._admission.is_open

    @property
    def _calling(self) -> int:
        return self._branch_calls.gate.in_flight + self._check_calls.gate.in_flight

    async def fatal(self) -> StoreError:
        """Wait for the error after which this node must stop: another process has taken its place."""
        return await self._node.fatal()

    def tick(self) -> None:
        """Look at the clock now: a test's has moved, or the store's is another than was thought."""
        self._recovery.wake()
        self._retention.wake()
        self.topics.wake()
        self._timers.tick()

    # ---- requests ---------------------------------------------------------------------------------------

    def prepare(self, message: Message, on_reply: OnReply) -> None:
        """Remember a message whose fate its producer's local transaction will decide."""
        if self._settings.strict and not message.check_url:
            self._admission.refuse(InvalidRequest(_NOBODY_TO_ASK, gid=message.gid, remedy=_GIVE_ADDRESS), on_reply)
            return
        entry = self._admission.admit(message, on_reply)
        if entry is not None:
            self._decisions.happen(entry, Occurrence(_PREPARE, message, on_reply))

    def submit(self, message: Message, on_reply: OnReply) -> None:
        """The local transaction is committed (or there is none): call the branches."""
        entry = self._admission.admit(message, on_reply)
        if entry is not None:
            self._decisions.happen(entry, Occurrence(_SUBMIT, message, on_reply, _BY_SUBMIT))

    def abort(self, gid: str, on_reply: OnReply) -> None:
        """The local transaction is rolled back: call nothing."""
        entry = self._admission.find(gid, on_reply)
        if entry is None:
            return
        self._decisions.happen(entry, Occurrence(Event.ABORT, None, on_reply, DecidedBy.ABORT, "the producer aborted"))

    def confirm(self, gid: str, on_reply: OnReply) -> None:
        """The local transaction of a *prepared* message is committed: call its branches.

        Unlike `submit` it begins nothing. The reply's state tells: ABSENT, no such message; FAILED, the opposite was
        decided before.
        """
        entry = self._admission.find(gid, on_reply)
        if entry is not None:
            self._decisions.happen(entry, Occurrence(Event.CHECK_COMMITTED, None, on_reply, _BY_SUBMIT))

    async def query(self, gid: str) -> MessageView | None:
        """What is known of a gid; None when nothing is.

        Raises:
            StoreError: the store cannot be read.
        """
        row = await self._store.get(gid)
        if row is None:
            return None
        return view_of(row, await self._store.attempts(gid))

    async def search(self, wanted: Search, position: str, limit: int) -> tuple[list[MessageView], str]:
        """A page of the messages that a person looks for, without what went wrong, and where the next one begins.

        Raises:
            InvalidRequest: no page ended with this position.
            StoreError: the store cannot be read.
        """
        return await page_of(self._store, wanted, position, limit)

    async def overview(self) -> Overview:
        """Counts and ages of what is unfinished, from the store."""
        return await self._store.overview()

    async def horizon(self, check_prefix: str, identity: str) -> Horizon:
        """Up to when all is decided and delivered; see `coordinator.horizon`."""
        return await horizon(self._store, check_prefix, identity)

    async def history_horizon_ms(self) -> int:
        """What was finished before this may have been forgotten; 0 when history was never cleaned."""
        return await self._store.history_horizon_ms()

    def gauges(self) -> Gauges:
        """How full everything is."""
        return Gauges(
            len(self._active),
            self._active.bytes,
            self._decisions.committer.waiting,
            self._branch_calls.gate.in_flight,
            self._branch_calls.gate.waiting,
            self._check_calls.gate.in_flight,
            self._check_calls.gate.waiting,
            *self._store.place,
        )

    # ---- inside -----------------------------------------------------------------------------------------

    def _carry(self, header: tuple[str, str]) -> None:
        self._delivery.headers = (header,)

    def _due(self, entry: Entry) -> None:
        if entry.parked or entry.round is not None:
            return  # unparked, it is scheduled anew; and so it is when its round ends
        if entry.busy:
            # Most changes set a time when they are durable; one that turns out to change nothing does not.
            self._timers.schedule(entry, self.clock.now_ms() + _BUSY_MS)
            return
        if entry.state is State.PREPARED or entry.state is State.SUBMITTED:
            self._on_due(entry)

    def _see_to(self, entry: Entry) -> None:
        if entry.state is State.PREPARED:
            self._check_back.ask(entry)
        else:
            self._delivery.begin(entry)

    def _stop_prepared(self, entry: Entry, on_reply: OnReply, reason: str) -> None:
        self._stopping.begin(entry, on_reply, reason)

    def _submitted(self, entry: Entry) -> None:
        self._delivery.begin(entry)

    def _parked(self, entry: Entry, occurrence: Occurrence) -> None:
        self._observer.parked(entry.message.gid, occurrence.reason)
        if occurrence.decided_by != DecidedBy.OPERATOR:
            self._alerts.parked(entry, occurrence.reason, self.clock.now_ms())

    def _lost(self, due_ms: int) -> None:
        self._recovery.note(due_ms)

    def _fault(self) -> None:
        self._recovery.fault()

    def _fenced(self, error: StoreFenced) -> None:
        if self._store.shared:
            self._membership.fenced(error)
        else:
            self._node.fail(error)
