"""The coordinator: takes requests, remembers what it acknowledged, and sees every message through.

Requests come as callbacks because they are the hot path; each is answered exactly once, whatever happens. Which are
taken is the business of `admission`, what they do the lifecycle table's (`decisions`); both are parts of the `engine`.
Here it is joined to what runs beside it: recovery, the other nodes, retention.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from twophase.coordinator.cluster.membership import Membership
from twophase.coordinator.cluster.node import Node
from twophase.coordinator.cluster.ownership import Moved
from twophase.coordinator.cluster.store_clock import StoreClock
from twophase.coordinator.dispatch.alerts import Alerts
from twophase.coordinator.engine import Engine
from twophase.coordinator.gauges import Gauges
from twophase.coordinator.maintenance.horizon import Horizon, OldestHeader, horizon
from twophase.coordinator.maintenance.probing import Probing
from twophase.coordinator.maintenance.recovery import Recovery
from twophase.coordinator.maintenance.retention import Retention
from twophase.coordinator.observer import Observer
from twophase.coordinator.operator import Operator
from twophase.coordinator.search_page import page_of
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Entry, Occurrence, OnReply, ReplyOf
from twophase.coordinator.view import MessageView, view_of
from twophase.core.errors import InvalidRequest, ShuttingDown, StoreError, StoreFenced
from twophase.core.hooks import Chance, Clock
from twophase.core.lifecycle import Event
from twophase.core.message import Message
from twophase.destinations.base import Destination
from twophase.stores.base import DecidedBy, Overview, Store
from twophase.stores.nodes import NodeSeen
from twophase.stores.search import Search

# Names of this module: see `decisions`.
_PREPARE: Final = Event.PREPARE
_SUBMIT: Final = Event.SUBMIT
_BY_SUBMIT: Final = DecidedBy.SUBMIT
_NOBODY_TO_ASK: Final = (
    "query_prepared is missing: this coordinator is strict, and prepares only what it can ask about."
)
_GIVE_ADDRESS: Final = (
    "Give the address that is asked whether the local transaction committed, or submit without prepare."
)


class Coordinator:
    """One node's engine between a store and destinations, from its start to its end; lives in one event loop.

    `clock` is the time it goes by: on a store that nodes share, the store's. `topics` says who is called for
    `topic://name`, and changes it. Nothing runs before `start`.

    Arguments:
        store: where messages are kept; started and stopped by this coordinator.
        destinations: how to call an address, by its scheme; stopped by this coordinator.
        settings: bounds and schedules.
        clock, chance: time and randomness, the tests' own where they want.
        observer: hears what happens.
        alerts: tells an operator of messages that do not get on; stopped by this coordinator.
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
        self._store = store
        self._destinations = destinations
        self._settings = settings
        self._store_clock = StoreClock(clock)
        if store.shared:
            clock = self._store_clock
        self.clock: Clock = clock
        engine = self._engine = Engine(
            store,
            destinations,
            settings,
            clock,
            chance,
            observer,
            alerts or Alerts(None, None, after=1, timeout_ms=1, observer=observer),
            on_lost=self._lost,
            on_fault=self._fault,
            on_fenced=self._fenced,
            on_due=self._sift if store.shared else None,
        )
        self.topics = engine.topics
        self._active = engine.active
        self._decisions = engine.decisions
        self._admission = engine.admission
        self._recovery = Recovery(
            store, engine.active, settings, clock, chance, observer, lambda: self._admission.is_open
        )
        self._moved = Moved(
            store,
            engine.active,
            engine.timers,
            clock,
            observer,
            on_ours=engine.see_to,
            on_done=engine.decisions.settle,
            on_fenced=self._fenced,
        )
        self._node = Node(engine, self._moved, self._recovery, self.tick)
        self._membership = Membership(
            store, self._node, self._store_clock, settings, chance, observer, self._recovery.hurry
        )
        self._retention = Retention(store, settings, clock, chance, observer)
        self.probing = Probing(destinations, settings, clock, observer, engine.alerts)
        self._oldest_header = OldestHeader(store, settings.oldest_interval_ms, engine.carry)
        self.operator = Operator(store, self._decisions, clock, self._admission.find, settings.attempts_max)

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
        self._admission.open()
        await self._recovery.start()
        self._membership.start()
        await self._oldest_header.start()
        await self._retention.start()
        self.probing.start()

    async def drain(self, timeout_ms: int) -> None:
        """Take no new work, cut nothing: end the calls and changes under way, within `timeout_ms`."""
        await self._end_work()
        await self._membership.leave()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._engine.calling or self._admission.looking_up:
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
        self._decisions.committer.halt()
        await self._node.forget_all(StoreError("the coordinator has stopped; this was not written"))
        await self._engine.alerts.stop()
        try:
            for destination in {id(one): one for one in self._destinations.values()}.values():
                await destination.stop()
        finally:
            await self._store.stop()

    async def _end_work(self) -> None:
        self._admission.drain()
        self._engine.timers.stop()
        self._engine.drain()
        await self._moved.stop()
        await self._recovery.stop()
        await self._oldest_header.stop()
        await self._retention.stop()
        await self.probing.stop()
        await self.topics.stop()

    @property
    def ready(self) -> bool:
        """Whether requests are accepted."""
        return self._admission.is_open

    async def fatal(self) -> StoreError:
        """Wait for the error after which this node must stop: another process has taken its place."""
        return await self._node.fatal()

    def tick(self) -> None:
        """Look at the clock now: a test's has moved, or the store's is another than was thought."""
        self._recovery.wake()
        self._retention.wake()
        self.probing.wake()
        self.topics.wake()
        self._engine.timers.tick()

    def prepare(self, message: Message, on_reply: OnReply, created_ms: int | None = None) -> None:
        """Remember a message whose fate its producer's local transaction will decide.

        Arguments:
            created_ms: when it was begun at another coordinator, 0 for unknown; None: now.
        """
        if self._settings.strict and not message.check_url:
            self._admission.refuse(InvalidRequest(_NOBODY_TO_ASK, gid=message.gid, remedy=_GIVE_ADDRESS), on_reply)
            return
        entry = self._admission.admit(message, on_reply)
        if entry is not None:
            self.probing.notice(message)
            self._decisions.happen(entry, Occurrence(_PREPARE, message, on_reply, created_ms=created_ms))

    def submit(self, message: Message, on_reply: OnReply, created_ms: int | None = None) -> None:
        """The local transaction is committed (or there is none): call the branches. `created_ms`: as `prepare`."""
        entry = self._admission.admit(message, on_reply)
        if entry is not None:
            self._decisions.happen(entry, Occurrence(_SUBMIT, message, on_reply, _BY_SUBMIT, created_ms=created_ms))

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

    async def nodes(self) -> Sequence[NodeSeen]:
        """The places on the store; one where it is not shared."""
        return await self._store.nodes()

    def busiest(self, limit: int) -> list[tuple[str, int, int]]:
        """The destinations of most of this node's branch calls, as (destination, in flight, waiting)."""
        return self._engine.branch_calls.gate.busiest(limit)

    async def horizon(self, check_prefix: str, identity: str) -> Horizon:
        """Up to when all is decided and delivered; see `coordinator.maintenance.horizon`."""
        return await horizon(self._store, check_prefix, identity)

    async def history_horizon_ms(self) -> int:
        """What was finished before this may have been forgotten; 0 when history was never cleaned."""
        return await self._store.history_horizon_ms()

    def gauges(self) -> Gauges:
        """How full everything is."""
        branches, check_backs = self._engine.branch_calls.gate, self._engine.check_calls.gate
        return Gauges(
            len(self._active),
            self._active.bytes,
            self._decisions.committer.waiting,
            branches.in_flight,
            branches.waiting,
            check_backs.in_flight,
            check_backs.waiting,
            len(self.probing.addresses()),
            self.probing.failing,
            *self._store.place,
        )

    def _sift(self, entry: Entry) -> None:
        self._moved.sift(entry)

    def _lost(self, due_ms: int) -> None:
        self._recovery.note(due_ms)

    def _fault(self) -> None:
        self._recovery.fault()

    def _fenced(self, error: StoreFenced) -> None:
        if self._store.shared:
            self._membership.fenced(error)
        else:
            self._node.fail(error)
