"""The time for which no other node can have ended this node's epoch.

The store judges by its clock, and counts from the moment at which it saw the node last. This node counts from before it
asked, by a clock that never jumps, so it is the first to stop. What it has in memory may be out of date once the time
is over: it was frozen, or cut off, and another node may have gone on. So it gives nothing out before the store has
answered again.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Lease:
    """This node's lease on its slot.

    Arguments:
        lease_ms: of the store; 0 for one that is not shared, which takes no slot away.
        clock: seconds that only grow.

    >>> now_s = [100.0]
    >>> lease = Lease(10_000, lambda: now_s[0])
    >>> lease.holds
    False
    >>> lease.renewed(asked_s=100.0)
    >>> now_s[0] = 109.9
    >>> lease.holds
    True
    >>> now_s[0] = 110.0
    >>> lease.holds
    False
    """

    def __init__(self, lease_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease_s = lease_ms / 1000
        self.now_s = clock
        self._until_s: float | None = None

    @property
    def holds(self) -> bool:
        """True while no other node can have taken what this one has."""
        return not self._lease_s or (self._until_s is not None and self.now_s() < self._until_s)

    def renewed(self, asked_s: float) -> None:
        """Note that the store has renewed it, at some time after `asked_s`."""
        until_s = asked_s + self._lease_s
        self._until_s = until_s if self._until_s is None else max(self._until_s, until_s)
