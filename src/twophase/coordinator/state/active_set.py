"""The working set: the messages held in memory, bounded in number and bytes.

Memory is a cache. A message leaves it when it is final, when there are too many, or when its stored state is not
known for certain; the store keeps it, and `recovery` brings it back when it is due or asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from twophase.coordinator.state.active_message import Entry
from twophase.coordinator.state.timers import Timers
from twophase.coordinator.state.times import Times
from twophase.core.errors import StoreCorrupt
from twophase.core.lifecycle import State
from twophase.core.message import Message, decode
from twophase.stores.base import Forgotten, HistoryRow, LiveRow

_ENTRY_BYTES = 256
"""What an entry costs beside its message's addresses and payloads, roughly."""


class Active:
    """Entries by gid."""

    def __init__(self, timers: Timers, times: Times, entries_max: int, bytes_max: int) -> None:
        self._timers = timers
        self._times = times
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._entries: dict[str, Entry] = {}
        self.get: Callable[[str], Entry | None] = self._entries.get
        """The entry of a gid, if memory holds it."""
        self.bytes = 0
        self.left: dict[str, bool] | None = None
        """While a page is read: gids that left memory meanwhile, and whether as this node's own. What the page says of
        them may be outdated."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, gid: str) -> bool:
        return gid in self._entries

    def entries(self) -> list[Entry]:
        """All of them, as of now."""
        return list(self._entries.values())

    @property
    def roomy(self) -> bool:
        """Whether what is not due yet may come in, too."""
        return len(self._entries) < self._entries_max and self.bytes < self._bytes_max

    @property
    def crowded(self) -> bool:
        """Whether whatever needs not be in memory should leave it."""
        return len(self._entries) > self._entries_max or self.bytes > self._bytes_max

    @property
    def overcrowded(self) -> bool:
        """Whether not even what is due may come in: a tenth beyond the bound, as what leaves takes a flush to do so."""
        entries, bytes_ = self._entries_max, self._bytes_max
        return len(self._entries) > entries + entries // 10 or self.bytes > bytes_ + bytes_ // 10

    @property
    def full(self) -> bool:
        """Whether new requests must wait: twice the bound, all of it under way."""
        return len(self._entries) > 2 * self._entries_max or self.bytes > 2 * self._bytes_max

    def add(self, message: Message) -> Entry:
        """A new entry, in the state ABSENT."""
        assert message.gid not in self._entries, "one entry a gid"
        entry = Entry(message)
        self._entries[message.gid] = entry
        self.weigh(entry)
        return entry

    def weigh(self, entry: Entry) -> None:
        """Count the bytes of a new entry, or of one whose message has been replaced."""
        branches = entry.message.branches
        self.bytes -= entry.bytes
        entry.bytes = _ENTRY_BYTES + sum([len(branch.payload) + len(branch.url) for branch in branches])
        self.bytes += entry.bytes

    def mirror(self, entry: Entry, row: LiveRow | HistoryRow | Forgotten | None) -> None:
        """Make an entry say what its stored row says, and be due when that is, if it is ours; None: no such message.

        Raises:
            StoreCorrupt: the row's body cannot be read.
        """
        self._timers.cancel(entry)
        entry.early = False
        if row is None or isinstance(row, Forgotten):
            entry.state = State.ABSENT if row is None else State.FORGOTTEN
            entry.version = 0
            return
        try:
            message = decode(row.body)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise StoreCorrupt(f"the stored body of message {row.gid!r} cannot be read.", gid=row.gid) from error
        entry.become(message)
        entry.state = row.state
        entry.created_ms = row.created_ms
        entry.decided_by = row.decided_by
        entry.attempts = row.attempts
        entry.done = row.done
        self.weigh(entry)
        if isinstance(row, LiveRow):
            entry.version = row.version
            entry.parked = row.parked
            entry.mine = row.mine
            entry.stored_due_ms = row.due_ms
            if row.mine and not row.parked:
                self._timers.schedule(entry, self.latest_ms(entry, row.due_ms))

    def latest_ms(self, entry: Entry, due_ms: int) -> int:
        """`due_ms`, or less where nothing explains a time so far away; see `Times.latest_ms`."""
        return self._times.latest_ms(entry.state, entry.message, entry.created_ms, due_ms)

    def look_at_far(self, now_ms: int) -> None:
        """Schedule anew what was scheduled since the last look for a time that nothing explains.

        A clock that was ahead for less than the time between two looks leaves no other trace.
        """
        far, self._timers.far = self._timers.far, {}
        self._timers.far_ms = self._times.far_ms(now_ms)
        self._hasten(far)

    def clock_fell_back(self) -> None:
        """Schedule anew whatever waits for a time that nothing explains."""
        self._hasten(self.entries())

    def _hasten(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.bucket >= 0:
                due_ms = self.latest_ms(entry, entry.due_ms)
                if due_ms < entry.due_ms:
                    self._timers.schedule(entry, due_ms)

    def remove(self, entry: Entry) -> None:
        """Forget an entry; answers to its calls under way are ignored from now on."""
        if entry.detached:
            return
        entry.detached = True
        if entry.bucket >= 0:
            self._timers.cancel(entry)
        known = self._entries.pop(entry.message.gid, None)
        assert known is entry, "the map holds what it is asked to forget"
        if self.left is not None:
            self.left[entry.message.gid] = entry.mine
        self.bytes -= entry.bytes
