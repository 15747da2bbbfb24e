"""A receiver that refuses some messages once.

It answers 503 to the first call and accepts the second. A coordinator owes such a message its retry at the end of the
pause, however busy it is with other messages.
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
"""One message in 20 is refused once: 5 %."""
_REFUSED: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"


class RetriedLedger(Ledger):
    """A ledger that knows refused messages.

    The branch's latency of a refused message counts to the first call, and its retry's latency from there. The message
    is owed until the second call; without a second call it is lost.
    """

    def __init__(self, branches: int = 1, *, opened: bool = False) -> None:
        super().__init__(branches, opened=opened)
        self.retries = Histogram()
        """Seconds from the first call to the second, in the warm-up, too."""
        self._refused_s: dict[int, float] = {}
        self._aside = Histogram()

    def refuses(self, number: int) -> bool:
        """Return whether this call of this message is refused."""
        now_s = time.perf_counter()
        if number % EVERY or number in self._refused_s or number not in self._waiting:
            return False
        self._refused_s[number] = now_s
        if number >= self.measured_from:
            self.branch.add(now_s - self._waiting[number])
        return True

    def arrive(self, number: int, branch: int) -> None:
        """Account for a branch call that is not refused."""
        refused_s = self._refused_s.get(number)
        if refused_s is None or number not in self._waiting:
            super().arrive(number, branch)
            return
        latencies, self.branch = self.branch, self._aside
        super().arrive(number, branch)
        self.branch = latencies
        self.retries.add(time.perf_counter() - refused_s)


class RefusingSink(Sink):
    """The sink that refuses; see the module."""

    def __init__(self, ledger: RetriedLedger) -> None:
        super().__init__(ledger, PARSED)
        self._ledger = ledger

    def answer(self, path: bytes, body: bytes) -> bytes:
        """Account for a request; return its response."""
        digits = body[NUMBER_AT : NUMBER_AT + NUMBER_DIGITS]
        if digits.isdigit() and self._ledger.refuses(int(digits) - FIRST_NUMBER):
            return _REFUSED
        return super().answer(path, body)


class RetriedRun(Run):
    """A run of one branch a message; its receiver refuses one in `EVERY` once."""

    def __init__(self, address: Address, workload: Workload, on_progress: OnProgress = silent) -> None:
        self.retried = RetriedLedger(opened=workload.rate > 0)
        super().__init__(address, workload, on_progress, self.retried)
        self.sink = RefusingSink(self.retried)
