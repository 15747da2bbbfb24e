"""The coordinator: keeps what it acknowledged, drives each message to its end.

It accepts requests. They have callbacks instead of results because they are the hot path; each is answered exactly
once. A request passes `admission` and the state machine, whose changes the group commit makes durable; `dispatcher`
calls branches and asks producers. Beside them run recovery, retention, probes, and the membership among the nodes of a
shared store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from twophase.coordinator.admission import Admission
from twophase.coordinator.cluster.lease import Lease
from twophase.coordinator.cluster.membership import Membership
from twophase.coordinator.cluster.node import Node
from twophase.coordinator.cluster.ownership import Ownership
from twophase.coordinator.cluster.store_clock import StoreClock
from twophase.coordinator.dispatch.alerts import Alerts
from twophase.coordinator.dispatch.calls import why_not_callable
from twophase.coordinator.dispatch.dispatcher import Dispatcher
from twophase.coordinator.gauges import Gauges
from twophase.coordinator.maintenance.counting import Counting
from twophase.coordinator.maintenance.horizon import Horizon, OldestHeader, horizon
from twophase.coordinator.maintenance.probing import Probing
from twophase.coordinator.maintenance.recovery import Recovery
from twophase.coordinator.maintenance.retention import Retention
from twophase.coordinator.observer import Observer
from twophase.coordinator.operator import Operator
from twophase.coordinator.page_turns import PageTurns, look_up_turns
from twophase.coordinator.queues.bounds import Bounds
from twophase.coordinator.queues.operating import QueueOperator
from twophase.coordinator.queues.service import Queues
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.search_page import page_of
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import ActiveMessage, Audited, OnReply, Owner, Reply, Trigger
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.acts import Acts
from twophase.coordinator.state.machine import StateMachine
from twophase.coordinator.state.times import Times
from twophase.coordinator.topic_changes import ChangeableTopics
from twophase.coordinator.view import MessageView, view_of
from twophase.core.audit_log import AuditEntry, AuditHead, AuditPage, AuditRow, AuditSearch
from twophase.core.errors import InvalidRequest, ShuttingDown, StoreError, StoreFenced
from twophase.core.hooks import Chance, Clock
from twophase.core.lifecycle import Event, State
from twophase.core.message import Message
from twophase.core.queue_message import QUEUE_PREFIX
from twophase.destinations.base import Destination
from twophase.stores.base import Overview, Store
from twophase.stores.rows import DecidedBy, NodeSeen
from twophase.stores.search import Search

# Names of this module: see `machine`.
_PREPARE: Final = Event.PREPARE
_SUBMIT: Final = Event.SUBMIT
_BY_SUBMIT: Final = DecidedBy.SUBMIT
_BUSY_MS: Final = 1_000
_NO_CHECK_ADDRESS: Final = (
    "query_prepared is missing: this coordinator is strict, and prepares only what it can ask about."
)
_GIVE_ADDRESS: Final = (
    "Give the address that is asked whether the local transaction committed, or submit without prepare."
)


class Coordinator:
    """One node between a store and destinations, from its start to its end.

    It lives in one event loop. `clock` is its time: the store's where nodes share it. `topics` has the subscribers of
    `topic://name`. It implements the state machine's `Listener`. Nothing runs before `start`.

    Arguments:
        store: keeps the messages; started and stopped by this coordinator.
        destinations: how to call an address, by its scheme; stopped by this coordinator.
        settings: bounds and schedules.
        clock, random: time and randomness; tests give their own.
        observer: counts and logs what happens.
        alerts: reports messages whose calls fail; stopped by this coordinator.
    """

    def __init__(
        self,
        store: Store,
        destinations: Mapping[str, Destination],
        settings: CoordinatorSettings,
        clock: Clock,
        random: Chance,
        observer: Observer,
        alerts: Alerts | None = None,
    ) -> None:
        self._store_clock = StoreClock(clock)
        self.clock: Clock = self._store_clock if store.shared else clock
        self._destinations = destinations
        self._settings = settings
        self._alerts = alerts or Alerts(None, None, after=1, timeout_ms=1, observer=observer)
        runtime = self._runtime = Runtime(store, self.clock, random, settings, observer)
        memory = self._memory = ActiveSet(self.clock, self._due, Times(settings, self.clock), settings)
        # A topic's subscribers are called one by one; a queue is none of them.
        callable_ = {scheme: one for scheme, one in destinations.items() if scheme != QUEUE_PREFIX[:-3]}
        check_address = partial(why_not_callable, callable_)
        self.topics = ChangeableTopics(store, settings.topics_interval_ms, random, observer, check_address)
        machine = self._machine = StateMachine(runtime, memory, self.topics, self)
        self._admission = Admission(runtime, memory, machine, self.topics)
        self._dispatcher = Dispatcher(runtime, memory, machine, self.topics, destinations, self._alerts)
        self._lease = Lease(store.lease_ms)
        self.queues = Queues(runtime, self._admission, machine, self._dispatcher.producers, self._lease)
        machine.group_commit.readers = self.queues.serving
        make_room = self._dispatcher.make_room
        self._recovery = Recovery(runtime, memory, lambda: self._admission.is_open, make_room)
        self._ownership = Ownership(runtime, memory, machine, self._dispatcher.dispatch)
        self._node = Node(
            memory, machine, self._admission, self._dispatcher, self._ownership, self._recovery, self.tick
        )
        self._membership = Membership(runtime, self._node, self._store_clock, self._lease, self._recovery.hurry)
        self._bounds = Bounds(runtime, self.queues.definitions)
        self._retention = Retention(runtime, self._bounds)
        self._counting = Counting(runtime)
        self._horizon_turns = PageTurns()
        self._look_up_turns = look_up_turns()
        self.owners = runtime.owners
        self.probing = Probing(runtime, destinations, self._alerts)
        self._oldest_header = OldestHeader(store, settings.oldest_interval_ms, self._dispatcher.delivery.carry)
        self.acts = Acts(store, machine.group_commit)
        self.operator = Operator(runtime, memory, machine, self._admission.find, self.acts)
        self.queue_operator = QueueOperator(runtime, self.queues, self._dispatcher.producers, self.acts)
        # The state machine's listener; the busiest are the parts' own methods, which saves a call a message.
        self.submitted: Callable[[ActiveMessage], None] = self._dispatcher.delivery.begin
        self.stop_requested: Callable[[ActiveMessage, OnReply, Trigger], None] = self._dispatcher.force_stop.begin
        self.evicted: Callable[[int], None] = self._recovery.note
        self.store_failed: Callable[[], None] = self._recovery.fault

    async def start(self) -> None:
        """Open the store, read everything unfinished, and accept requests.

        Raises:
            StoreError: the store refuses to start; its class says why.
        """
        self._node.begin()
        asked_s = self._lease.now_s()
        await self._runtime.store.start()
        self._lease.renewed(asked_s)
        asked_ms = self._store_clock.own_ms()
        self._store_clock.follow(await self._runtime.store.now_ms(), asked_ms)
        await self.topics.start()
        await self.queues.start()
        self._admission.open()
        await self._recovery.start()
        self._membership.start()
        await self._oldest_header.start()
        await self._retention.start()
        await self._counting.start()
        self.probing.start()

    async def drain(self, timeout_ms: int) -> None:
        """Accept no new work, cut nothing: end the calls and changes under way.

        It takes no longer than `timeout_ms`.
        """
        await self._end_work()
        await self._membership.leave()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._dispatcher.calling or self._admission.looking_up:
                    await asyncio.sleep(0.01)
                    await self._machine.group_commit.drained()
                await self._machine.group_commit.drained()
        except TimeoutError:
            pass
        for active in self._memory.messages():
            self._machine.answer_waiters(active, Reply(ShuttingDown(gid=active.message.gid), active.state))

    async def stop(self) -> None:
        """Stop all work at once, answer every requester, close the store.

        A second call is safe.
        """
        await self._end_work()
        await self._membership.stop()
        self._machine.group_commit.halt()
        await self._node.forget_all(StoreError("the coordinator has stopped; this was not written"))
        await self._alerts.stop()
        try:
            for destination in {id(one): one for one in self._destinations.values()}.values():
                await destination.stop()
        finally:
            await self._runtime.store.stop()

    async def _end_work(self) -> None:
        self._admission.drain()
        await self.queues.stop()
        self._memory.due_times.stop()
        self._dispatcher.drain()
        await self._ownership.stop()
        await self._recovery.stop()
        await self._oldest_header.stop()
        await self._retention.stop()
        await self._counting.stop()
        await self.probing.stop()
        await self.topics.stop()

    @property
    def ready(self) -> bool:
        """True while requests are accepted."""
        return self._admission.is_open

    async def fatal(self) -> StoreError:
        """Wait for the error after which this node must stop.

        Another process has taken its slot.
        """
        return await self._node.fatal()

    def tick(self) -> None:
        """Look at the clock now.

        A test has moved it, or the store's differs from what was known.
        """
        self._recovery.wake()
        self._retention.wake()
        self.probing.wake()
        self.topics.wake()
        self.queues.serving.wake()
        self._memory.due_times.tick()

    def prepare(
        self,
        message: Message,
        on_reply: OnReply,
        created_ms: int | None = None,
        owner: Owner | None = None,
        audited: Audited | None = None,
    ) -> None:
        """Keep a message whose fate its producer's local transaction will decide.

        Arguments:
            created_ms: when it was begun at another coordinator, 0 for unknown; None: now.
            owner: the client, where clients have tokens; another owner's message is refused.
            audited: the act of taking it over.
        """
        if self._settings.strict and not message.check_url:
            self._admission.refuse(InvalidRequest(_NO_CHECK_ADDRESS, gid=message.gid, remedy=_GIVE_ADDRESS), on_reply)
            return
        active = self._admission.admit(message, on_reply, owner=owner)
        if active is not None:
            if message.options.explicit_verdict and message.check_url not in self.probing.seen:
                self.probing.notice(message)
            trigger = Trigger(_PREPARE, message, on_reply, created_ms=created_ms, owner=owner, audited=audited)
            self._machine.handle(active, trigger)

    def submit(
        self,
        message: Message,
        on_reply: OnReply,
        created_ms: int | None = None,
        owner: Owner | None = None,
        audited: Audited | None = None,
    ) -> None:
        """Call the branches of a message with a committed local transaction, or none.

        `created_ms`, `owner`, `audited`: as `prepare`.
        """
        active = self._admission.admit(message, on_reply, is_submit=True, owner=owner)
        if active is not None:
            trigger = Trigger(
                _SUBMIT, message, on_reply, _BY_SUBMIT, created_ms=created_ms, owner=owner, audited=audited
            )
            self._machine.handle(active, trigger)

    def abort(self, gid: str, on_reply: OnReply, owner: Owner | None = None) -> None:
        """Call nothing: the local transaction is rolled back. `owner`: as `prepare`."""
        active = self._admission.find(gid, on_reply)
        if active is None:
            return
        trigger = Trigger(Event.ABORT, None, on_reply, DecidedBy.ABORT, "the producer aborted", owner=owner)
        self._machine.handle(active, trigger)

    def confirm(self, gid: str, on_reply: OnReply, owner: Owner | None = None) -> None:
        """Call the branches of a *prepared* message: its local transaction is committed.

        Unlike `submit` it begins nothing. The reply's state shows the outcome: ABSENT, no such message; FAILED, the
        opposite was decided before. A message prepared `open` is refused. `owner`: as `prepare`.
        """
        active = self._admission.find(gid, on_reply)
        if active is not None:
            self._machine.handle(active, Trigger(Event.CHECK_COMMITTED, None, on_reply, _BY_SUBMIT, owner=owner))

    async def query(self, gid: str, client: str = "") -> MessageView | None:
        """Return the message of a gid; None for an unknown gid.

        `client`: the name or address of who asks, for its turn.

        Raises:
            StoreError: the store cannot be read.
        """
        async with self._look_up_turns.of(client):
            row = await self._runtime.store.get(gid)
            return None if row is None else view_of(row, await self._runtime.store.attempts(gid))

    async def search(
        self, search: Search, position: str, limit: int, client: str = ""
    ) -> tuple[list[MessageView], str]:
        """Return a page of the messages that a person looks for, and the next position.

        The messages come without their record of what went wrong. `client`: the name of who asks, for its turn.

        Raises:
            InvalidRequest: no page ended with this position.
            Overloaded: too many such requests wait for their turn.
            StoreError: the store cannot be read.
        """
        async with self._runtime.page_turns.of(client):
            return await page_of(self._runtime.store, search, position, limit)

    async def overview(self) -> Overview:
        """Return counts and ages of what is unfinished, from the store."""
        return await self._runtime.store.overview()

    async def nodes(self) -> Sequence[NodeSeen]:
        """Return the node slots of the store; one where it is not shared."""
        return await self._runtime.store.nodes()

    def busiest(self, limit: int) -> list[tuple[str, int, int]]:
        """Return the destinations of most of this node's branch calls.

        Each is (destination, in flight, waiting).
        """
        return self._dispatcher.branch_calls.limiter.busiest(limit)

    async def horizon(self, check_prefix: str, identity: str) -> Horizon:
        """Return the time up to which all is decided and delivered.

        See `coordinator.maintenance.horizon`. Its turns are its own, so that pages do not stop a cleaning.

        Raises:
            Overloaded, StoreError: as `search`.
        """
        async with self._horizon_turns.of():
            return await horizon(self._runtime.store, check_prefix, identity)

    async def history_horizon_ms(self) -> int:
        """Return the history horizon; 0 when history was never cleaned."""
        return await self._runtime.store.history_horizon_ms()

    async def note_act(self, entry: AuditEntry) -> None:
        """Write an act that changes no message into the audit log.

        Raises:
            StoreError: it cannot be written.
        """
        await self._runtime.store.append_audit([entry])

    async def audit_chain(self, after_seq: int, limit: int, client: str = "") -> tuple[Sequence[AuditRow], AuditHead]:
        """Return rows of the audit log in their order, and both ends afterwards.

        `client`: as for `search`. Raises as `audit_search`.
        """
        async with self._runtime.page_turns.of(client):
            rows = await self._runtime.store.audit_chain(after_seq, limit)
        return rows, await self._runtime.store.audit_head()

    async def audit_search(self, search: AuditSearch, position: int, limit: int, client: str = "") -> AuditPage:
        """Return a page of the audit log, the newest first; see `Store.audit_search`.

        `client`: as for `search`.

        Raises:
            Overloaded: too many such requests wait for their turn.
            StoreError: the store cannot be read.
        """
        async with self._runtime.page_turns.of(client):
            return await self._runtime.store.audit_search(search, position, limit)

    async def note_takeover(self, *, again: bool) -> None:
        """Note that messages of another coordinator were taken over now.

        See `Store.note_takeover`.
        """
        await self._runtime.store.note_takeover(self.clock.now_ms(), again=again)

    def gauges(self) -> Gauges:
        """Return the fill of every bounded part."""
        branches, check_backs = self._dispatcher.branch_calls.limiter, self._dispatcher.check_calls.limiter
        return Gauges(
            len(self._memory),
            self._memory.bytes,
            self._machine.group_commit.waiting,
            branches.in_flight,
            branches.waiting,
            check_backs.in_flight,
            check_backs.waiting,
            len(self.probing.addresses()),
            self.probing.failing,
            *self._runtime.store.slot,
            self._dispatcher.producers.questions,
            self.queues.serving.redelivered,
            self.queues.serving.gauges(),
            self._dispatcher.producers.waiting_by_age(),
            self._bounds.gauges(),
        )

    def parked(self, active: ActiveMessage, trigger: Trigger) -> None:
        """Report a parked message; alert unless an operator parked it."""
        self._runtime.observer.parked(active.message.gid, trigger.reason)
        if trigger.decided_by != DecidedBy.OPERATOR:
            self._alerts.parked(active, trigger.reason, self.clock.now_ms())

    def fenced(self, error: StoreFenced) -> None:
        """Rejoin a shared store whose slot this node has lost; else stop."""
        if self._runtime.store.shared:
            self._membership.fenced(error)
        else:
            self._node.fail(error)

    def _due(self, active: ActiveMessage) -> None:
        """Dispatch a message that is due; on a shared store check its owner first."""
        if active.parked or active.round is not None:
            return  # scheduled again when it is redriven, or when its round ends
        if active.busy:
            # Most changes set a time when they are durable; one that turns out to change nothing does not.
            self._memory.schedule(active, self.clock.now_ms() + _BUSY_MS)
        elif active.state is State.PREPARED or active.state is State.SUBMITTED:
            if self._runtime.store.shared:
                self._ownership.check(active)
            else:
                self._dispatcher.dispatch(active)
