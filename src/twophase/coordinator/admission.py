"""Admission: refuses requests beyond the bounds, and finds a request's message.

The message is in memory, new, or looked up in the store. A request beyond the bounds is refused before anything is done
for it. A gid has at most one message in memory, because every requested one is found or made here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.active_message import ActiveMessage, OnReply, Owner, Reply, deliver
from twophase.coordinator.state.active_set import ActiveSet, held_bytes
from twophase.coordinator.state.machine import StateMachine
from twophase.coordinator.store_faults import as_store_error
from twophase.coordinator.topics import Topics
from twophase.core.address import TOPIC_PREFIX
from twophase.core.audit_log import Actor
from twophase.core.errors import InvalidRequest, Overloaded, ShuttingDown, StoreFenced, TwophaseError
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.core.queue_message import QUEUE_PREFIX


class QueueTopics(Protocol):
    """The part of the definitions of queues that new messages need."""

    def unmade(self, message: Message) -> Sequence[tuple[str, str]]:
        """Return namespace and name of each topic of its branches that there is not yet."""
        ...

    async def make(self, topics: Sequence[tuple[str, str]], actor: Actor) -> None:
        """Make topics by their first use.

        Raises:
            InvalidRequest: one is not made. StoreError.
        """
        ...


class Admission:
    """Accepts requests and finds their messages; see the module.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        memory: the messages in memory.
        machine: handles the triggers of messages that were looked up.
        topics: know the messages whose topics cannot be expanded.
    """

    def __init__(self, runtime: Runtime, memory: ActiveSet, machine: StateMachine, topics: Topics) -> None:
        self._store = runtime.store
        self._owners = runtime.owners
        self._settings = runtime.settings
        self._observer = runtime.observer
        self._memory = memory
        self._machine = machine
        self._group_commit = machine.group_commit
        self._topics = topics
        self.queue_topics: QueueTopics | None = None
        """Set where there are queues."""
        self._lookups: set[asyncio.Task[None]] = set()
        self._is_open = False
        self._draining = False

    def open(self) -> None:
        """Accept requests from now on."""
        self._is_open = True

    def close(self) -> None:
        """Accept none until `open`."""
        self._is_open = False

    def drain(self) -> None:
        """Accept none any more: the coordinator ends."""
        self._draining = True
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """True while requests are accepted."""
        return self._is_open

    @property
    def draining(self) -> bool:
        """True when requests will never be accepted again."""
        return self._draining

    @property
    def looking_up(self) -> int:
        """The number of look-ups under way."""
        return len(self._lookups)

    def admit(
        self, message: Message, on_reply: OnReply, *, is_submit: bool = False, owner: Owner | None = None
    ) -> ActiveMessage | None:
        """Return the message that a prepare or submit is about.

        None when the request was refused and answered. A submit with a check address was prepared before: where nodes
        share the store and this one does not know it, another does. Reading its row costs less than an insert that is
        refused.
        """
        gid = message.gid
        active = self._memory.get(gid)
        if self._turned_away(gid, active, on_reply):
            return None
        if active is not None:
            return active
        holder, held = "", 0
        if owner is not None:
            holder = owner.name
            if self._memory.crowded and self._memory.full_for(holder):
                self.refuse(Overloaded(f"memory has no room for more messages of {holder!r}.", gid=gid), on_reply)
                return None
            if self._group_commit.is_full_for(holder):
                self.refuse(Overloaded(f"too many changes of {holder!r} wait for the store.", gid=gid), on_reply)
                return None
        # Where no new message is taken, one that is in the store still is.
        if self._owners.store_full is not None or (is_submit and message.check_url and self._store.shared):
            return self.look_up(gid, holder, self._unmade(message))
        goes_to_queue = False
        for branch in message.branches:
            if TOPIC_PREFIX in branch.url and not self._topics.can_expand(message):
                # A new message cannot be expanded, but one in the store was expanded when it was inserted.
                return self.look_up(gid, holder)
            if not goes_to_queue and branch.url.startswith(QUEUE_PREFIX):
                goes_to_queue = True
        if goes_to_queue and (unmade := self._unmade(message)):
            return self.look_up(gid, holder, unmade)
        if owner is not None:
            held = held_bytes(message)
            if not owner.take_room(held):
                return self.look_up(gid, holder)
        return self._memory.add(message, holder, held)

    def find(self, gid: str, on_reply: OnReply) -> ActiveMessage | None:
        """Return the message of a gid, from memory or looked up.

        None when the request was refused and answered.
        """
        active = self._memory.get(gid)
        if self._turned_away(gid, active, on_reply):
            return None
        return active or self.look_up(gid)

    def refuse(self, error: TwophaseError, on_reply: OnReply) -> None:
        """Refuse a request: nothing has been done for it."""
        self._observer.refused(error.code)
        deliver(on_reply, Reply(error, State.ABSENT))

    def look_up(self, gid: str, holder: str = "", unmade: Sequence[tuple[str, str]] = ()) -> ActiveMessage:
        """Add a message that is busy until the store has answered for its gid.

        `holder`: the owner in whose share it counts until then. `unmade`: topics of queues that it makes if it is new.
        """
        active = self._memory.add(Message(gid, ()), holder)
        active.busy = True
        task = asyncio.get_running_loop().create_task(self._fill(active, unmade, holder))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)
        return active

    def _unmade(self, message: Message) -> Sequence[tuple[str, str]]:
        return () if self.queue_topics is None else self.queue_topics.unmade(message)

    async def cancel(self) -> None:
        """End the look-ups under way; their messages are still in memory, busy."""
        lookups = list(self._lookups)
        for task in lookups:
            task.cancel()
        if lookups:
            await asyncio.wait(lookups)

    def _turned_away(self, gid: str, active: ActiveMessage | None, on_reply: OnReply) -> bool:
        settings = self._settings
        if not self._is_open:
            error: TwophaseError = ShuttingDown(gid=gid) if self._draining else StoreFenced(gid=gid)
        elif (
            self._group_commit.waiting + len(self._lookups) >= settings.waiting_max
            or (self._memory.crowded and self._memory.full)  # the first alone is nearly always the answer
            or (active is not None and active.crowded_by(settings.gid_waiting_max))
        ):
            error = Overloaded(gid=gid)
        else:
            return False
        self.refuse(error, on_reply)
        return True

    async def _fill(self, active: ActiveMessage, unmade: Sequence[tuple[str, str]], holder: str) -> None:
        gid = active.message.gid
        try:
            row = await self._store.get(gid)
            refusal = await self._why_not_made(unmade, holder) if row is None and unmade else None
            self._memory.load_row(active, row)
        except Exception as cause:  # noqa: BLE001 -- whatever it is, every requester gets an answer
            active.busy = False
            self._machine.fail_and_evict(active, None, as_store_error(cause))
            return
        active.busy = False
        if refusal is not None:
            self._machine.refuse_requests(active, refusal)
        self._machine.handle_queue(active)

    async def _why_not_made(self, unmade: Sequence[tuple[str, str]], holder: str) -> InvalidRequest | None:
        """Make the topics of a new message; return the reason why one of them is not made."""
        if self._owners.store_full is not None or self.queue_topics is None:
            return None  # the message is not taken
        try:
            await self.queue_topics.make(unmade, Actor(holder))
        except InvalidRequest as refusal:
            return refusal
        return None
