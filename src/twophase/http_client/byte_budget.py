"""The bytes of unfinished requests and answers that a process keeps at once.

Each of them has a bound of its own; this is the bound of all together, over every port and every call. A request that
arrives whole is never counted, and neither are the first bytes of another (`FREE_BYTES`): so the usual requests and
answers of others pass, while long ones use up the budget. Calls out have a part of it only, so that the hosts that are
called cannot keep the room of requests.

Invariant: the bytes in use are the sum of what the accounts keep beyond `FREE_BYTES`, and never more than the budget.
No holder (a peer's address, a called host) keeps more than its share.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

MEBIBYTE: Final = 1024 * 1024
BYTES_MAX: Final = 256 * MEBIBYTE
"""The budget by default."""
SHARE_PERCENT: Final = 25
"""The part of the budget that one holder may keep, by default."""
SHARE_LEAST: Final = 8 * MEBIBYTE
FREE_BYTES: Final = 16 * 1024
"""The first bytes of each account, which do not count."""
CALLS_PERCENT: Final = 50
"""The part of the budget that all calls out together may keep."""
NO_ROOM: Final = "too many bytes of unfinished requests are under way."
NO_ROOM_FOR_ANSWERS: Final = "too many bytes of unfinished answers are under way"


class ByteBudget:
    """Bytes for all accounts together.

    Arguments:
        bytes_max: the budget, in bytes.
        whole: the budget that this one is a part of.

    >>> budget = ByteBudget(100 * MEBIBYTE)
    >>> account = budget.account("192.0.2.1", share_percent=50)
    >>> account.keep(40 * MEBIBYTE), account.keep(60 * MEBIBYTE), budget.used == 40 * MEBIBYTE - FREE_BYTES
    (True, False, True)
    >>> account.release()
    >>> budget.used
    0
    """

    __slots__ = ("_of", "_whole", "bytes_max", "used")

    def __init__(self, bytes_max: int = BYTES_MAX, whole: ByteBudget | None = None) -> None:
        assert bytes_max > 0
        self._whole = whole
        self.bytes_max = bytes_max
        self.used = 0
        self._of: Counter[str] = Counter()

    def of_calls(self) -> ByteBudget:
        """Return the part of the budget that calls out may keep.

        >>> ByteBudget(100).of_calls().bytes_max
        50
        """
        return ByteBudget(self.bytes_max * CALLS_PERCENT // 100, self)

    def account(self, holder: str, share_percent: int = SHARE_PERCENT) -> Account:
        """Open an account, which keeps nothing yet.

        Arguments:
            holder: all its accounts together keep at most a share.
            share_percent: that share of the budget; 8 MiB are allowed to each, so that the longest request passes.
        """
        return Account(self, holder, max(SHARE_LEAST, self.bytes_max * share_percent // 100))

    def take(self, holder: str, size: int, share_max: int) -> bool:
        """Count `size` bytes more of a holder, or fewer.

        Returns False, and changes nothing, when they pass a bound.
        """
        of_holder = self._of[holder] + size
        if size > 0 and (self.used + size > self.bytes_max or of_holder > share_max):
            return False
        if self._whole is not None and not self._whole.take("", size, self._whole.bytes_max):
            return False
        self.used += size
        assert self.used >= 0
        assert of_holder >= 0
        if of_holder:
            self._of[holder] = of_holder
        else:
            del self._of[holder]
        return True


class Account:
    """The bytes of one connection or one request."""

    __slots__ = ("_budget", "_holder", "_share_max", "kept")

    def __init__(self, budget: ByteBudget, holder: str, share_max: int) -> None:
        self._budget = budget
        self._holder = holder
        self._share_max = share_max
        self.kept = 0

    def keep(self, size: int) -> bool:
        """Keep `size` bytes in all.

        Returns False, and keeps what it had, when the budget or the holder's share does not suffice.
        """
        if size == self.kept:
            return True
        counted = max(0, size - FREE_BYTES) - max(0, self.kept - FREE_BYTES)
        if counted and not self._budget.take(self._holder, counted, self._share_max):
            return False
        self.kept = size
        return True

    def release(self) -> None:
        """Give everything back. Safe to repeat."""
        self.keep(0)
