"""The working set: the messages held in memory, bounded in number and bytes.

Memory is a cache. A message leaves it when it is final, when there are too many, or when its stored state is not
known for certain; the store keeps it, and `recovery` brings it back when it is due or asked for.
"""

from __future__ import annotations

from twophase.coordinator.entry import Entry
from twophase.coordinator.timers import Timers
from twophase.core.message import Message


class Active:
    """Entries by gid."""

    def __init__(self, timers: Timers, entries_max: int, bytes_max: int) -> None:
        self._timers = timers
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._entries: dict[str, Entry] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, gid: str) -> bool:
        return gid in self._entries

    def get(self, gid: str) -> Entry | None:
        """The entry of a gid, if memory holds it."""
        return self._entries.get(gid)

    def entries(self) -> list[Entry]:
        """All of them, as of now."""
        return list(self._entries.values())

    @property
    def crowded(self) -> bool:
        """Whether whatever needs not be in memory should leave it."""
        return len(self._entries) > self._entries_max or self.bytes > self._bytes_max

    @property
    def full(self) -> bool:
        """Whether new requests must wait: twice the bound, all of it under way."""
        return len(self._entries) > 2 * self._entries_max or self.bytes > 2 * self._bytes_max

    def add(self, message: Message) -> Entry:
        """A new entry, in the state ABSENT."""
        assert message.gid not in self._entries, "one entry a gid"
        entry = Entry(message)
        entry.bytes = 256 + sum(len(branch.payload) + len(branch.url) for branch in message.branches)
        self._entries[message.gid] = entry
        self.bytes += entry.bytes
        return entry

    def remove(self, entry: Entry) -> None:
        """Forget an entry; answers to its calls under way are ignored from now on."""
        if entry.detached:
            return
        entry.detached = True
        self._timers.cancel(entry)
        known = self._entries.pop(entry.message.gid, None)
        assert known is entry, "the map holds what it is asked to forget"
        self.bytes -= entry.bytes
