"""A receiver that refuses some messages once: 503 to the first call, an answer to the second.

What a coordinator owes such a message is its retry when the pause is over, however busy it is with others.
"""

from __future__ import annotations

import time
from typing import Final

from benchmarks.load.histogram import Histogram
from benchmarks.load.ledger import Ledger
from benchmarks.load.run import Run
from benchmarks.load.sink import PARSED, Sink
from benchmarks.load.window import OnProgress, silent
from benchmarks.load.workload import FIRST_NUMBER, NUMBER_AT, NUMBER_DIGITS, Workload
from twophase.http_client.address import Address

EVERY: Final = 20
"""One message of so many is refused once: 5 %."""
_REFUSED: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"


class RetriedLedger(Ledger):
    """A message that was refused counts its branch's latency to the first call, and from there its retry's.

    It is owed until the second call: one that never comes is lost.
    """

    def __init__(self, branches: int = 1, *, opened: bool = False) -> None:
        super().__init__(branches, opened=opened)
        self.retries = Histogram()
        """Seconds from the first call to the second, in the warm-up, too."""
        self._refused_s: dict[int, float] = {}
        self._aside = Histogram()

    def refuses(self, number: int) -> bool:
        """Whether this call, of this message, is to be refused."""
        now_s = time.perf_counter()
        if number % EVERY or number in self._refused_s or number not in self._waiting:
            return False
        self._refused_s[number] = now_s
        if number >= self.measured_from:
            self.branch.add(now_s - self._waiting[number])
        return True

    def arrive(self, number: int, branch: int) -> None:
        """A branch was called, and not refused."""
        refused_s = self._refused_s.get(number)
        if refused_s is None or number not in self._waiting:
            super().arrive(number, branch)
            return
        latencies, self.branch = self.branch, self._aside
        super().arrive(number, branch)
        self.branch = latencies
        self.retries.add(time.perf_counter() - refused_s)


class RefusingSink(Sink):
    """See the module."""

    def __init__(self, ledger: RetriedLedger) -> None:
        super().__init__(ledger, PARSED)
        self._ledger = ledger

    def answer(self, path: bytes, body: bytes) -> bytes:
        """Account for a request; its response."""
        digits = body[NUMBER_AT : NUMBER_AT + NUMBER_DIGITS]
        if digits.isdigit() and self._ledger.refuses(int(digits) - FIRST_NUMBER):
            return _REFUSED
        return super().answer(path, body)


class RetriedRun(Run):
    """A run of one branch a message whose receiver refuses one message of `EVERY` once."""

    def __init__(self, address: Address, workload: Workload, on_progress: OnProgress = silent) -> None:
        self.retried = RetriedLedger(opened=workload.rate > 0)
        super().__init__(address, workload, on_progress, self.retried)
        self.sink = RefusingSink(self.retried)
