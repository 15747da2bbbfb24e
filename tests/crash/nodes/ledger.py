"""The ledger: the truth against which a run is checked.

It has the producers' decisions, the answers to them, and the coordinator's calls. It stands in memory, in the one
process of a run that is never killed, and knows nothing of twophase. A producer's local transaction is a fate here: it
begins unless a check-back came first, and is then committed or rolled back.
"""

from __future__ import annotations

import enum
from collections import Counter


class Fate(enum.Enum):
    """The fate of a local transaction."""

    NOT_BEGUN = "not begun"
    BEGUN = "begun"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"


_VERDICTS = {Fate.COMMITTED: "msg", Fate.ROLLED_BACK: "rollback"}


class Record:
    """One message."""

    __slots__ = ("branches", "calls", "fate", "plain", "prepared", "settled")

    def __init__(self, branches: int, *, plain: bool) -> None:
        self.branches = branches
        self.plain = plain
        """It has no local transaction: it is decided from the beginning."""
        self.fate = Fate.COMMITTED if plain else Fate.NOT_BEGUN
        self.prepared = False
        """Its prepare was acknowledged."""
        self.settled = False
        """Its submit or abort was acknowledged."""
        self.calls = [0] * branches
        """Number of calls of each branch that were answered as done."""

    @property
    def verdict(self) -> str | None:
        """Return the state of the producer's barrier row; None when there is no row."""
        return None if self.plain else _VERDICTS.get(self.fate)

    @property
    def done(self) -> list[str]:
        """Return the branches that took effect."""
        return [f"{branch:02}" for branch, calls in enumerate(self.calls, 1) if calls > 0]

    @property
    def acknowledged(self) -> bool:
        return self.prepared or self.settled


class Ledger:
    """All messages of a run, by gid, used in one event loop."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.wrong: list[str] = []
        """Promises broken during the run, as sentences."""
        self.counts: Counter[str] = Counter()

    def open(self, gid: str, branches: int, *, plain: bool) -> Record:
        """Add a new message."""
        record = self.records[gid] = Record(branches, plain=plain)
        return record

    def begin(self, gid: str) -> bool:
        """Begin the local transaction; return False when a check-back has barred it."""
        record = self.records[gid]
        if record.fate is not Fate.NOT_BEGUN:
            return False
        record.fate = Fate.BEGUN
        return True

    def end(self, gid: str, fate: Fate) -> None:
        """End the local transaction."""
        record = self.records[gid]
        assert record.fate is Fate.BEGUN, "it began, and ends once"
        record.fate = fate

    def check(self, gid: str) -> int:
        """Answer a check-back by a status; a transaction that has not begun is barred."""
        self.counts["check-backs"] += 1
        record = self.records[gid]
        if record.fate is Fate.BEGUN:
            return 425
        if record.fate is Fate.NOT_BEGUN:
            record.fate = Fate.ROLLED_BACK
        return 200 if record.fate is Fate.COMMITTED else 409

    def called(self, gid: str, branch: int, *, refuses_first: int | None) -> int:
        """Answer a branch call by a status.

        Arguments:
            branch: from 0.
            refuses_first: the status of the first answer, when that is not yet the end.
        """
        self.counts["branch calls"] += 1
        record = self.records[gid]
        if record.fate is not Fate.COMMITTED:
            self.wrong.append(f"{gid} was called, and is {record.fate.value} (ghost)")
        if refuses_first is not None and not record.calls[branch]:
            record.calls[branch] = -1
            return refuses_first
        record.calls[branch] = max(0, record.calls[branch]) + 1
        if record.calls[branch] > 1:
            self.counts["branch calls again"] += 1
        return 200
