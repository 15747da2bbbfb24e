"""The use of each owner at this node, and its bounds.

Counted are its waiting messages and their bytes; bounded are the addresses that it calls, and its calls under way.

The store is asked every few seconds while some quota needs it (`maintenance.counting`); between, this node adds the
messages that it takes and subtracts those that it finishes. Its bytes are those of memory (`active_set.held_bytes`),
somewhat more than the bytes of bodies that the store counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from twophase.core.errors import StoreFull

_NOTHING: Final = (0, 0)


class Counts:
    """Messages of each owner, and their bytes."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}

    @property
    def several(self) -> bool:
        """True when more than one owner has any."""
        return len(self._counts) > 1

    def waiting(self, owner: str) -> tuple[int, int]:
        """Return how many messages of an owner there are, and their bytes.

        >>> counts = Counts()
        >>> counts.add("orders", 300)
        >>> counts.waiting("orders"), counts.waiting("stock")
        ((1, 300), (0, 0))
        """
        return self._counts.get(owner, _NOTHING)

    def add(self, owner: str, size: int) -> None:
        """Count a message that is taken."""
        messages, held = self._counts.get(owner, _NOTHING)
        self._counts[owner] = messages + 1, held + size

    def grow(self, owner: str, size: int) -> None:
        """Count more bytes of a counted message: it has its topics' subscribers now."""
        if owner in self._counts:
            messages, held = self._counts[owner]
            self._counts[owner] = messages, held + size

    def remove(self, owner: str, size: int) -> None:
        """Count a message that is gone; an owner without any is forgotten."""
        messages, held = self._counts.get(owner, _NOTHING)
        if messages > 1:
            self._counts[owner] = messages - 1, max(0, held - size)
        else:
            self._counts.pop(owner, None)

    def copy(self) -> Mapping[str, tuple[int, int]]:
        """Return the counts of all owners, as of now."""
        return dict(self._counts)

    def replace(
        self, counts: Mapping[str, tuple[int, int]], before: Mapping[str, tuple[int, int]] | None = None
    ) -> None:
        """Take the counts of the store.

        `before`: the counts here when the store was asked; what was counted since, while it was read, is kept.

        >>> counts = Counts()
        >>> counts.add("stock", 300)
        >>> counts.replace({"orders": (5, 900)}, before={"orders": (2, 400)})
        >>> counts.waiting("orders"), counts.waiting("stock")
        ((3, 500), (1, 300))
        """
        now, self._counts = self._counts, dict(counts)
        if before is None:
            return
        for owner in now.keys() | before.keys():
            parts = zip(self.waiting(owner), now.get(owner, _NOTHING), before.get(owner, _NOTHING), strict=True)
            messages, held = [max(0, stored + here - earlier) for stored, here, earlier in parts]
            if messages:
                self._counts[owner] = messages, held
            else:
                self._counts.pop(owner, None)


class Owners(Counts):
    """The counts of what waits; see the module.

    `wanted`: True while some quota bounds what waits. `may_call`: True when an owner's messages may call these URLs,
    with a message's protocol; the server's tokens say so. `calls_max`: the most calls under way for an owner's
    messages, where its quota bounds them. `store_full`: the refusal of new messages, while the store is as large as it
    may be.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wanted = False
        self.store_full: StoreFull | None = None
        self.may_call: Callable[[str, Iterable[str], str], bool] = lambda _owner, _urls, _protocol: True
        self.calls_max: Callable[[str], int | None] = lambda _owner: None

    def give_back(self, owner: str, size: int) -> None:
        """Count a message that waits no more, while some quota bounds what waits."""
        if self.wanted:
            self.remove(owner, size)
