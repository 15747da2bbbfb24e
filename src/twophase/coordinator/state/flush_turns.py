"""The choice of the changes for one flush, in turns of their owners."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

from twophase.core.limits import BODY_BYTES_MAX

FLUSH_BYTES_MAX: Final = BODY_BYTES_MAX.value
"""Bytes of the messages that one flush changes; a longer one goes alone.

Every requester waits for the flush under way, and for its own. With more, one client's large messages would delay the
small ones of all others, and a statement might exceed the store's timeout.
"""


def in_turns(owners: Sequence[str], sizes: Sequence[int], items_max: int, bytes_max: int, after: str) -> list[int]:
    """Return the indexes of the changes for the next flush, in the order of turns.

    Owners take turns, by name, with one change each, and their changes go in their order. One that does not fit waits,
    and so do the later ones of its owner. The first always goes. The outcomes of a flush are reported over many turns
    of the event loop, in this order, so no report comes behind a thousand of another owner.

    Arguments:
        owners: the owner of each change.
        sizes: the bytes of each.
        items_max: the most changes.
        bytes_max: the most bytes.
        after: the owner that had the first turn of the flush before; the next one has it now.

    >>> in_turns(["a", "a", "a", "b"], [9, 9, 9, 1], 3, 20, "a")
    [3, 0, 1]
    >>> in_turns(["a", "b", "a"], [9, 15, 1], 3, 20, "a")
    [1]
    """
    waiting: dict[str, deque[int]] = {}
    for index, owner in enumerate(owners):
        waiting.setdefault(owner, deque()).append(index)
    names = sorted(waiting)
    turns = deque(names)
    turns.rotate(-bisect_right(names, after))
    taken: list[int] = []
    left = bytes_max
    while turns and len(taken) < items_max:
        owner = turns.popleft()
        own = waiting[owner]
        size = sizes[own[0]]
        if size > left and taken:
            continue
        left -= size
        taken.append(own.popleft())
        if own:
            turns.append(owner)
    return taken
