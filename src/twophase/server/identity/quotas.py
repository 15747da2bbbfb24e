"""The use of one owner against its quota: requests a second, and waiting messages.

Counts are of this node and in memory; what waits is read from the store every few seconds besides
(`coordinator.owners`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from twophase.core.errors import QuotaExceeded

if TYPE_CHECKING:
    from twophase.server.identity.tokens import Quota


class Owners(Protocol):
    """Counts of each owner's waiting messages; see `coordinator.owners`."""

    wanted: bool
    may_call: Callable[[str, Iterable[str], str], bool]
    calls_max: Callable[[str], int | None]

    def waiting(self, owner: str, /) -> tuple[int, int]: ...

    def add(self, owner: str, size: int, /) -> None: ...


class Meter:
    """Counts one owner's use.

    Arguments:
        owner: its name.
        quota: its bounds.
        owners: see `Owners`.
        now_s: a clock that never goes back.
    """

    def __init__(self, owner: str, quota: Quota, owners: Owners, now_s: Callable[[], float] = time.monotonic) -> None:
        self._owner = owner
        self._quota = quota
        self._owners = owners
        self._now_s = now_s
        self._rate = float(quota.requests_per_s or 0)
        """Requests a second; 0: any number."""
        self._left = self._rate
        self._at_s = now_s()
        self._messages_max = quota.waiting_messages or sys.maxsize
        self._bytes_max = quota.bytes_stored or sys.maxsize
        self._bounds_waiting = quota.waiting_messages is not None or quota.bytes_stored is not None

    def count(self, requests: int, counted: int = 0) -> None:
        """Count requests, all of them or none.

        A request of more messages than a second has is let in when none of the second is used up, and the seconds
        after it pay. `counted`: of the same request, how many were counted before.

        Raises:
            QuotaExceeded: a second's requests are used up.
        """
        rate = self._rate
        if not rate:
            return
        now_s = self._now_s()
        left = self._left + (now_s - self._at_s) * rate
        if left > rate:  # noqa: PLR1730 -- as `min`, without its call
            left = rate
        self._at_s = now_s
        if left < requests and left + counted < min(requests + counted, rate):
            self._left = left
            raise QuotaExceeded(f"{self._owner!r} may send {self._quota.requests_per_s} requests a second.")
        self._left = left - requests

    def has_room(self, size: int) -> bool:
        """Return True for a new message of this size, in bytes, that is within the quota."""
        messages, held = self._owners.waiting(self._owner)
        return messages < self._messages_max and held + size <= self._bytes_max

    def require_room(self, size: int) -> None:
        """Refuse a new message where too much waits already; count it otherwise.

        Arguments:
            size: the bytes that it takes in memory.

        Raises:
            QuotaExceeded: as many messages, or bytes of them, wait as the quota allows.
        """
        if not self._bounds_waiting:
            return
        if not self.has_room(size):
            raise QuotaExceeded(self._why_no_room(size))
        self._owners.add(self._owner, size)

    def _why_no_room(self, size: int) -> str:
        messages, held = self._owners.waiting(self._owner)
        if messages >= self._messages_max:
            return f"{messages} messages of {self._owner!r} wait, as many as it may have."
        return f"{held} bytes of {self._owner!r} wait, and {size} more would pass {self._bytes_max}."
