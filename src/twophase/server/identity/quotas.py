"""The use of one owner against its quota: requests a second, and waiting messages.

Counts are of this node and in memory; what waits is read from the store every few seconds besides
(`coordinator.owners`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from twophase.coordinator.state.active_set import held_bytes
from twophase.core.errors import QuotaExceeded

if TYPE_CHECKING:
    from twophase.core.message import Message
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
        self._left = float(quota.requests_per_s or 0)
        self._at_s = now_s()

    def count(self, requests: int, counted: int = 0) -> None:
        """Count requests, all of them or none.

        A request of more messages than a second has is let in when none of the second is used up, and the seconds
        after it pay. `counted`: of the same request, how many were counted before.

        Raises:
            QuotaExceeded: a second's requests are used up.
        """
        rate = self._quota.requests_per_s
        if rate is None:
            return
        now_s = self._now_s()
        self._left = min(float(rate), self._left + (now_s - self._at_s) * rate)
        self._at_s = now_s
        if self._left + counted < min(requests + counted, rate):
            raise QuotaExceeded(f"{self._owner!r} may send {rate} requests a second.")
        self._left -= requests

    def why_no_room(self, message: Message) -> str:
        """Return why a new message is beyond the quota; empty for one that is not."""
        quota = self._quota
        messages, waiting_bytes = self._owners.waiting(self._owner)
        if quota.waiting_messages is not None and messages >= quota.waiting_messages:
            return f"{messages} messages of {self._owner!r} wait, as many as it may have."
        if quota.bytes_stored is not None:
            size = held_bytes(message)
            if waiting_bytes + size > quota.bytes_stored:
                return (
                    f"{waiting_bytes} bytes of {self._owner!r} wait, and {size} more would pass {quota.bytes_stored}."
                )
        return ""

    def require_room(self, message: Message) -> None:
        """Refuse a new message where too much waits already; count it otherwise.

        Raises:
            QuotaExceeded: as many messages, or bytes of them, wait as the quota allows.
        """
        if self._quota.waiting_messages is None and self._quota.bytes_stored is None:
            return
        why = self.why_no_room(message)
        if why:
            raise QuotaExceeded(why)
        self._owners.add(self._owner, held_bytes(message))
