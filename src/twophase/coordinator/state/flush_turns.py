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
ALONE_BYTES: Final = 256 * 1024
"""A change of a longer message shares its flush with no other owner's.

So a short request waits for one such flush at most, and not for a second one that is its own.
"""


def in_turns(owners: Sequence[str], sizes: Sequence[int], items_max: int, bytes_max: int, after: str) -> list[int]:
    """Return the indexes of the changes for the next flush, in the order of turns.

    Owners take turns, by name, with one change each, and their changes go in their order. One that does not fit waits,
    and so do the later ones of its owner. The first always goes. Among several owners, one of a long message goes
    alone, or waits. The outcomes of a flush are reported over many turns of the event loop, in this order, so no report
    comes behind a thousand of another owner.

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
    >>> long = ALONE_BYTES + 1
    >>> [in_turns(["a", "b", "b"], [long, 9, 9], 3, FLUSH_BYTES_MAX, after) for after in "ab"]
    [[1, 2], [0]]
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
        is_long = size > ALONE_BYTES and len(names) > 1
        if taken and (is_long or size > left):
            continue
        left -= size
        taken.append(own.popleft())
        if is_long:
            break
        if own:
            turns.append(owner)
    return taken
