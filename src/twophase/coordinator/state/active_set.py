"""The active set: the messages in memory, bounded in number and bytes.

Memory is a cache. A message leaves it when it is final, when there are too many, or when its stored state is uncertain;
the store keeps it, and `recovery` brings it back when it is due or requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from twophase.coordinator.owners import Counts
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.coordinator.state.times import Times
from twophase.core.errors import StoreCorrupt
from twophase.core.hooks import Clock
from twophase.core.lifecycle import State
from twophase.core.message import Message, decode
from twophase.core.wheel import Timer, Wheel
from twophase.stores.batch import Forgotten
from twophase.stores.rows import HistoryRow, LiveRow

_MESSAGE_BYTES = 640
"""Approximate cost of a message in memory beside its parts."""
_PART_BYTES = 160
"""Approximate cost of a branch or a header beside its texts."""
_ADDRESS_BYTES = 64
"""Approximate cost of a subscriber's address beside its text."""
_SLOT_MS = 32
_NEVER_MS = 2**62


class ActiveSet:
    """Messages in memory by gid, with their due times by the store's clock.

    Arguments:
        clock: of all due times.
        on_due: called with each message that is due.
        times: the rules of due times.
        settings: its `active_max` and `active_bytes_max`; beyond, messages that need not be in memory leave it.
    """

    def __init__(
        self,
        clock: Clock,
        on_due: Callable[[ActiveMessage], None],
        times: Times,
        settings: CoordinatorSettings,
    ) -> None:
        self._on_due = on_due
        self.due_times = Wheel(clock.now_ms, self._call, _call_later, width=_SLOT_MS, unit_s=0.001)
        self._far_ms = _NEVER_MS
        """A due time later than this goes into `_far`, where its reason is checked."""
        self._far: dict[ActiveMessage, None] = {}
        """Messages in memory that were scheduled far away since the last look."""
        self.times = times
        self._messages_max = settings.active_max
        self._bytes_max = settings.active_bytes_max
        self._small_bytes = settings.active_bytes_max // (2 * settings.in_flight_max)
        self._messages: dict[str, ActiveMessage] = {}
        self.get: Callable[[str], ActiveMessage | None] = self._messages.get
        """Returns the message of a gid, or None."""
        self._shares = Counts()
        self.bytes = 0
        self.crowded = False
        """True when messages that need not be in memory should leave it."""
        self.left: dict[str, bool] | None = None
        """Gids that left memory while a page is read, True for those that this node owned.

        The page may be outdated for them.
        """

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, gid: str) -> bool:
        return gid in self._messages

    def messages(self) -> list[ActiveMessage]:
        """Return all messages as of now."""
        return list(self._messages.values())

    @property
    def of_several_owners(self) -> bool:
        """True when more than one owner has messages in memory."""
        return self._shares.several

    @property
    def roomy(self) -> bool:
        """True when messages that are not due yet may come in, too."""
        return len(self._messages) < self._messages_max and self.bytes < self._bytes_max

    @property
    def overcrowded(self) -> bool:
        """True when not even due messages may come in, and none waits here for its turn.

        That is a tenth beyond the bound, because leaving takes a flush.
        """
        messages, bytes_ = self._messages_max, self._bytes_max
        return len(self._messages) > messages + messages // 10 or self.bytes > bytes_ + bytes_ // 10

    def pressure(self, active: ActiveMessage) -> int:
        """Return 0, 1 while memory is overcrowded, or 2, when a message must make room.

        2 is for a large one while memory is half beyond the bound. Messages with calls under way cannot leave, so its
        call begins only where the destination has answered before. Small ones with all calls together have the
        other half of the bound at most, and requests are taken up to twice the bound.
        """
        if not self.overcrowded:
            return 0
        return 2 if self.bytes * 2 > self._bytes_max * 3 and active.bytes > self._small_bytes else 1

    @property
    def full(self) -> bool:
        """True when new requests must wait: twice the bound, all of it under way."""
        return len(self._messages) > 2 * self._messages_max or self.bytes > 2 * self._bytes_max

    def full_for(self, owner: str) -> bool:
        """Return True when new requests of an owner must wait, so that others find room.

        It is called while memory is crowded. True when the owner has more than half of the bound, and all owners
        together have a quarter more than the bound, which is more than paging takes in.
        """
        messages, held = self._shares.waiting(owner)
        return (len(self._messages) * 4 > self._messages_max * 5 and messages * 2 > self._messages_max) or (
            self.bytes * 4 > self._bytes_max * 5 and held * 2 > self._bytes_max
        )

    def add(self, message: Message, holder: str = "", held: int = 0) -> ActiveMessage:
        """Add a message, in the state ABSENT, to the share of an owner.

        `held`: its `held_bytes`, where they are known already.
        """
        assert message.gid not in self._messages, "one active message a gid"
        active = ActiveMessage(message)
        self._messages[message.gid] = active
        held = active.bytes = held or held_bytes(message)
        self.bytes += held
        if holder:
            active.holder = holder
            self._shares.add(holder, held)
        # As `_count`, without a call.
        if len(self._messages) > self._messages_max or self.bytes > self._bytes_max:
            self.crowded = True
        return active

    def weigh(self, active: ActiveMessage, holder: str | None = None) -> None:
        """Count a message anew: its content has been replaced, or its owner is known now."""
        self.bytes -= active.bytes
        if active.holder:
            self._shares.remove(active.holder, active.bytes)
        active.bytes = held_bytes(active.message)
        self.bytes += active.bytes
        if holder is not None:
            active.holder = holder
        if active.holder:
            self._shares.add(active.holder, active.bytes)
        self._count()

    def load_row(self, active: ActiveMessage, row: LiveRow | HistoryRow | Forgotten | None) -> None:
        """Give a message in memory the content of its stored row; None: no such message.

        It is scheduled if this node owns it.

        Raises:
            StoreCorrupt: the row's body cannot be read.
        """
        self.unschedule(active)
        active.early = False
        if row is None or isinstance(row, Forgotten):
            active.state = State.ABSENT if row is None else State.FORGOTTEN
            active.version = 0
            return
        try:
            message = decode(row.body)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise StoreCorrupt(f"the stored body of message {row.gid!r} cannot be read.", gid=row.gid) from error
        active.become(message)
        active.state = row.state
        active.created_ms = row.created_ms
        active.owner = row.owner
        active.decided_by = row.decided_by
        active.attempts = row.attempts
        active.done = row.done
        self.weigh(active, row.owner)
        if isinstance(row, LiveRow):
            active.version = row.version
            active.parked = row.parked
            active.owned = row.owned
            active.stored_due_ms = row.due_ms
            if row.owned and not row.parked:
                self.schedule(active, self.latest_ms(active, row.due_ms))

    def schedule(self, active: ActiveMessage, due_ms: int) -> None:
        """Call `on_due(active)` once at `due_ms`, instead of at any time scheduled before."""
        if active.slot is not None:
            active.slot.pop(active, None)
        active.due_ms = due_ms
        if due_ms > self._far_ms:
            self._far[active] = None
        active.slot = self.due_times.add(active, due_ms)

    def unschedule(self, active: ActiveMessage) -> None:
        """Cancel a message's due time, if it has one."""
        if active.slot is not None:
            active.slot.pop(active, None)
            active.slot = None

    def _call(self, active: ActiveMessage) -> None:
        active.slot = None
        self._on_due(active)

    def latest_ms(self, active: ActiveMessage, due_ms: int) -> int:
        """Return `due_ms`, or less where nothing explains a time so far away.

        See `Times.latest_ms`.
        """
        return self.times.latest_ms(active.state, active.message, active.created_ms, due_ms)

    def look_at_far(self, now_ms: int) -> None:
        """Schedule again messages whose far due time nothing explains.

        They are those scheduled since the last look. A clock that was ahead for less than the time between two looks
        leaves no other trace.
        """
        far, self._far = self._far, {}
        self._far_ms = self.times.far_ms(now_ms)
        self._hasten(far)

    def clock_fell_back(self) -> None:
        """Schedule again every message that waits for a time that nothing explains."""
        self._hasten(self.messages())

    def _hasten(self, messages: Iterable[ActiveMessage]) -> None:
        for active in messages:
            if active.slot is not None:
                due_ms = self.latest_ms(active, active.due_ms)
                if due_ms < active.due_ms:
                    self.schedule(active, due_ms)

    def remove(self, active: ActiveMessage) -> None:
        """Remove a message; answers to its calls under way are ignored from now on."""
        if active.detached:
            return
        active.detached = True
        if active.slot is not None:
            self.unschedule(active)
        if self._far:
            self._far.pop(active, None)
        known = self._messages.pop(active.message.gid, None)
        assert known is active, "the map holds the message that leaves"
        if self.left is not None:
            self.left[active.message.gid] = active.owned
        self.bytes -= active.bytes
        if active.holder:
            self._shares.remove(active.holder, active.bytes)
        if self.crowded:
            self._count()

    def _count(self) -> None:
        self.crowded = len(self._messages) > self._messages_max or self.bytes > self._bytes_max


def held_bytes(message: Message) -> int:
    """Return about how many bytes of memory a message takes.

    >>> from twophase.core.message import Branch
    >>> held_bytes(Message("g", (Branch("http://b/in", b"{}"),))), held_bytes(Message("g", (), "http://a/check"))
    (813, 654)
    """
    options = message.options
    held = _MESSAGE_BYTES + len(message.check_url) + len(message.prepared_check_url)
    for branch in message.branches:
        held += _PART_BYTES + len(branch.payload) + len(branch.url)
        if branch.subscribers:
            held += sum([_ADDRESS_BYTES + len(url) for url in branch.subscribers])
    if options.headers or options.trace:
        held += sum([_PART_BYTES + len(name) + len(value) for name, value in options.headers + options.trace])
    return held


def _call_later(pause_s: float, turn: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(pause_s, turn)
