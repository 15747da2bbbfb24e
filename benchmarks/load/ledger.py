"""The account of every message of a run.

It records what was sent, what was acknowledged, and what arrived at the branch. Promise: nothing is assumed. A message
counts as delivered when its last branch was called, as lost when it was acknowledged and some branch was not called
within the time to drain, as duplicate for each further call, as called too early when no submit had been sent. It takes
one byte a message and branch, so that a run of millions fits.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

import msgspec

from benchmarks.load.histogram import Histogram

_SUBMITTED: Final = 1
_ACKNOWLEDGED: Final = 2
_GROWTH: Final = bytes(1 << 16)


class Findings(msgspec.Struct, frozen=True):
    """The outcome of the messages of a run."""

    begun: int
    acknowledged: int
    delivered: int
    lost: int
    duplicates: int
    early: int
    foreign: int
    """Calls to an address of this run, about no message of it."""
    strays: int
    """Calls to other addresses.

    They are of messages of an earlier run, or of another program that knew the port.
    """
    unanswered: int
    not_begun: int
    """Due in an open loop, but no connection was free in time."""
    errors: dict[str, int]

    @property
    def kept(self) -> bool:
        """Return whether every promise held.

        Nothing was lost, and nothing was called before its submit.
        """
        return not self.lost and not self.early


class Ledger:
    """The account; see the module.

    Latencies are counted here, too, because both ends of a message meet here.
    """

    def __init__(self, branches: int = 1, *, opened: bool = False) -> None:
        self.branches = branches
        self.begun = 0
        self.prepared = 0
        """Counted only where prepare alone is measured."""
        self.delivered = 0
        self.acknowledged = 0
        self.duplicates = 0
        self.early = 0
        self.foreign = 0
        self.strays = 0
        self.unanswered = 0
        self.not_begun = 0
        self.measured_from = 0
        """Messages before this one were due in the warm-up: their latencies do not count."""
        self.errors: Counter[str] = Counter()
        self.prepare = Histogram()
        self.submit = Histogram()
        self.branch = Histogram()
        self.whole = Histogram()
        self.transfer = Histogram()
        self.late = Histogram()
        self._waiting: dict[int, float] = {}
        self._intended: dict[int, float] | None = {} if opened else None
        self._left: dict[int, int] = {}
        self._states = bytearray()
        self._arrived = bytearray()

    @property
    def waiting(self) -> list[int]:
        """Return the numbers of the messages that were submitted and not delivered.

        Their submit has left, and their last branch was not called yet.
        """
        return list(self._waiting)

    def begin(self, intended_s: float) -> int:
        """Begin a message; return its number."""
        number = self.begun
        self.begun = number + 1
        if number >= len(self._states):
            self._states += _GROWTH
            self._arrived += _GROWTH * self.branches
        if self._intended is not None:
            self._intended[number] = intended_s
        return number

    def prepare_acknowledged(self, number: int) -> None:  # noqa: ARG002 -- for ledgers that follow it further
        """Record an acknowledged prepare that nothing follows."""
        self.prepared += 1

    def submitting(self, number: int, now_s: float) -> None:
        """Record that the submit leaves: from now on its branches may be called."""
        self._states[number] |= _SUBMITTED
        self._waiting[number] = now_s
        if self.branches > 1:
            self._left[number] = self.branches

    def acknowledge(self, number: int) -> None:
        """Record an acknowledged submit: from now on its branches must be called."""
        self._states[number] |= _ACKNOWLEDGED
        self.acknowledged += 1

    def arrive(self, number: int, branch: int) -> None:
        """Record the call of a branch; branches count from 0."""
        branches = self.branches
        if not 0 <= number < self.begun or not 0 <= branch < branches:
            self.foreign += 1
            return
        slot = number * branches + branch
        if self._arrived[slot]:
            self.duplicates += 1
            return
        if not self._states[number] & _SUBMITTED:
            self.early += 1
            return
        self._arrived[slot] = 1
        if branches > 1:
            self._left[number] -= 1
            if self._left[number]:
                return
            del self._left[number]
        now_s = time.perf_counter()
        self.delivered += 1
        waited_s = now_s - self._waiting.pop(number)
        if number >= self.measured_from:
            self.branch.add(waited_s)
            if self._intended is not None:
                self.whole.add(now_s - self._intended.pop(number))

    def fail(self, what: str) -> None:
        """Record that a request was refused, or that its connection broke."""
        self.errors[what] += 1

    @property
    def succeeded(self) -> int:
        """Return the number of messages that the server accepted as intended."""
        return self.acknowledged + self.prepared

    @property
    def owed(self) -> int:
        """Return the number of acknowledged messages that have not arrived."""
        states = self._states
        return sum(1 for number in self._waiting if states[number] & _ACKNOWLEDGED)

    def warmed_up(self, waiting: int = 0) -> None:
        """End the warm-up.

        Only the latencies of messages that are due from now on count.

        Arguments:
            waiting: messages that are due already and not begun; they begin before all others.
        """
        self.measured_from = self.begun + waiting
        for histogram in (self.prepare, self.submit, self.branch, self.whole, self.transfer, self.late):
            histogram.clear()

    def latencies(self) -> dict[str, Histogram]:
        """Return the latencies until now, by name, without the empty ones."""
        named = {
            "prepare": self.prepare,
            "submit": self.submit,
            "submit → branch": self.branch,
            "whole message": self.whole,
            "transfer": self.transfer,
            "generator late": self.late,
        }
        return {name: histogram.copy() for name, histogram in named.items() if histogram.count}

    def findings(self) -> Findings:
        """Return the current account; it is final when the run has drained."""
        return Findings(
            self.begun,
            self.acknowledged,
            self.delivered,
            self.owed,
            self.duplicates,
            self.early,
            self.foreign,
            self.strays,
            self.unanswered,
            self.not_begun,
            dict(self.errors),
        )
