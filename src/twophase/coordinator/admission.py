"""Whether a request is taken, and which message it is about: one in memory, a new one, or one looked up in the store.

A request beyond the bounds on what waits is refused before anything is done for it. A gid has one entry in memory at
most, because every requested one is found or made here.
"""

from __future__ import annotations

import asyncio

from twophase.coordinator.observer import Observer
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Entry, OnReply, ReplyOf, tell
from twophase.coordinator.state.active_set import Active
from twophase.coordinator.state.machine import Decisions
from twophase.coordinator.store_faults import as_store_error
from twophase.coordinator.topics import Topics
from twophase.core.errors import Overloaded, ShuttingDown, StoreFenced, TwophaseError
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.core.topic import TOPIC_PREFIX
from twophase.stores.base import Store


class Admission:
    """The way in.

    Arguments:
        store: asked for what is not in memory.
        active: what is in memory.
        decisions: told what was found; says how much waits for the store.
        topics: says which message names a topic that cannot be expanded.
        settings: the bounds.
        observer: hears the code of each refusal.
    """

    def __init__(
        self,
        store: Store,
        active: Active,
        decisions: Decisions,
        topics: Topics,
        settings: CoordinatorSettings,
        observer: Observer,
    ) -> None:
        self._store = store
        self._active = active
        self._decisions = decisions
        self._committer = decisions.committer
        self._topics = topics
        self._settings = settings
        self._observer = observer
        self._lookups: set[asyncio.Task[None]] = set()
        self._is_open = False
        self._draining = False

    def open(self) -> None:
        """Take requests from now on."""
        self._is_open = True

    def close(self) -> None:
        """Take none until `open`."""
        self._is_open = False

    def drain(self) -> None:
        """Take none any more: the coordinator ends."""
        self._draining = True
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether requests are taken."""
        return self._is_open

    @property
    def draining(self) -> bool:
        """Whether they never will be again."""
        return self._draining

    @property
    def looking_up(self) -> int:
        """How many look-ups are under way."""
        return len(self._lookups)

    def admit(self, message: Message, on_reply: OnReply) -> Entry | None:
        """The entry a request with a message is about; None when it was refused, which its requester has been told."""
        gid = message.gid
        entry = self._active.get(gid)
        if self._turned_away(gid, entry, on_reply):
            return None
        if entry is not None:
            return entry
        for branch in message.branches:
            if TOPIC_PREFIX in branch.url and not self._topics.can_expand(message):
                # No new message can be that, but one that the store knows was expanded when it was inserted.
                return self.look_up(gid)
        return self._active.add(message)

    def find(self, gid: str, on_reply: OnReply) -> Entry | None:
        """The entry of a gid, known or looked up; None when the request was refused, which its requester was told."""
        entry = self._active.get(gid)
        if self._turned_away(gid, entry, on_reply):
            return None
        return entry or self.look_up(gid)

    def refuse(self, error: TwophaseError, on_reply: OnReply) -> None:
        """Tell a requester that nothing has been done for him."""
        self._observer.refused(error.code)
        tell(on_reply, ReplyOf(error, State.ABSENT))

    def look_up(self, gid: str) -> Entry:
        """An entry that is busy until the store has said what it knows of the gid."""
        entry = self._active.add(Message(gid, ()))
        entry.busy = True
        task = asyncio.get_running_loop().create_task(self._fill(entry))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)
        return entry

    async def cancel(self) -> None:
        """End the look-ups under way; what they were for is still in memory, busy."""
        lookups = list(self._lookups)
        for task in lookups:
            task.cancel()
        if lookups:
            await asyncio.wait(lookups)

    def _turned_away(self, gid: str, entry: Entry | None, on_reply: OnReply) -> bool:
        settings = self._settings
        if not self._is_open:
            error: TwophaseError = ShuttingDown(gid=gid) if self._draining else StoreFenced(gid=gid)
        elif (
            self._committer.waiting + len(self._lookups) >= settings.waiting_max
            or self._active.full
            or (entry is not None and entry.crowded_by(settings.gid_waiting_max))
        ):
            error = Overloaded(gid=gid)
        else:
            return False
        self.refuse(error, on_reply)
        return True

    async def _fill(self, entry: Entry) -> None:
        gid = entry.message.gid
        try:
            row = await self._store.get(gid)
            self._active.mirror(entry, row)
        except Exception as cause:  # noqa: BLE001 -- whatever it is, every requester gets an answer
            entry.busy = False
            self._decisions.give_up(entry, None, as_store_error(cause))
            return
        entry.busy = False
        self._decisions.drain_queue(entry)
