"""The time slots of deferred messages: one after the other, within a bound.

They are messages that left memory because it was full. Invariants: a slot is between `_FIRST_MS` and `_LAST_MS` away;
two slots are `_GAP_MS` apart, unless the last possible one has been reached, which all further ones share (I9 rather
than the pace).
"""

from __future__ import annotations

from typing import Final

SLOT_MS_MAX: Final = 600_000
"""The farthest slot from now."""
_FIRST_MS: Final = 5_000
_LAST_MS: Final = SLOT_MS_MAX
_GAP_MS: Final = 0.4
"""Gap between two slots.

2 500 messages a second return, and leave again, at a fifth of a processor, while their receiver hangs; as many are
delivered when it answers. Were they read again faster than that, other due messages would wait for them.
"""


class DeferralSlots:
    """Gives each deferred message the next free slot.

    >>> slots = DeferralSlots()
    >>> [slots.pause_ms(1_000) for _ in range(5)]
    [5000, 5000, 5000, 5001, 5001]
    """

    def __init__(self) -> None:
        self._taken_ms = 0.0

    def pause_ms(self, now_ms: int) -> int:
        """Take the next slot; return its distance from now in the clock's milliseconds."""
        first_ms, last_ms = now_ms + _FIRST_MS, now_ms + _LAST_MS
        self._taken_ms = min(max(self._taken_ms + _GAP_MS, first_ms), last_ms)
        assert first_ms <= self._taken_ms <= last_ms
        return int(self._taken_ms) - now_ms
