"""The use of one owner against its quota: requests a second, and waiting messages.

Counts are of this node and in memory; what waits is read from the store every few seconds besides
(`coordinator.owners`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from twophase.core.errors import QuotaExceeded

if TYPE_CHECKING:
    from twophase.server.identity.tokens import Quota


_SECOND_S: Final = 1.000001
"""A second, with room for rounding."""
_ROUNDING_S: Final = 0.000001


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
        self._request_s = 1 / quota.requests_per_s if quota.requests_per_s else 0.0
        """The part of a second that a request takes; 0: any number is let in."""
        self._paid_s = now_s()
        """The time at which all requests so far are paid for.

        It is at most a second ahead, but for a large request.
        """
        self._messages_max = quota.waiting_messages or sys.maxsize
        self._bytes_max = quota.bytes_stored or sys.maxsize
        self._bounds_waiting = quota.bounds_waiting

    def count(self, requests: int, counted: int = 0) -> None:
        """Count requests, all of them or none.

        A request of more messages than a second has is let in when none of the second is used up, and the seconds
        after it pay. `counted`: of the same request, how many were counted before.

        Raises:
            QuotaExceeded: a second's requests are used up.
        """
        if not self._request_s:
            return
        now_s = self._now_s()
        paid_s = self._paid_s
        if paid_s < now_s:  # noqa: PLR1730 -- as `max`, without its call
            paid_s = now_s
        until_s = paid_s + requests * self._request_s
        if until_s > now_s + _SECOND_S and paid_s > now_s + counted * self._request_s + _ROUNDING_S:
            raise QuotaExceeded(f"{self._owner!r} may send {self._quota.requests_per_s} requests a second.")
        self._paid_s = until_s

    def take_room(self, size: int) -> bool:
        """Count a new message of this size, in bytes; False where too much waits already."""
        if not self._bounds_waiting:
            return True
        messages, held = self._owners.waiting(self._owner)
        if messages >= self._messages_max or held + size > self._bytes_max:
            return False
        self._owners.add(self._owner, size)
        return True

    def why_no_room(self, size: int) -> str:
        """Return the reason for which a new message of this size is refused."""
        messages, held = self._owners.waiting(self._owner)
        if messages >= self._messages_max:
            return f"{messages} messages of {self._owner!r} wait, as many as it may have."
        return f"{held} bytes of {self._owner!r} wait, and {size} more would pass {self._bytes_max}."
