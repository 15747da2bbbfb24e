"""The check of the audit log's chain, page by page, and its answers over HTTP.

Promise: a row that was changed, removed or put in between is named, and so is an end that was cut off. Only a hash
that was kept elsewhere (`since`) shows that a chain was written anew as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from twophase.core.audit_log import AuditHead, AuditRow, recomputed

AUDIT_PATH: Final = "/api/twophase/log"
CHAIN_ROWS_MAX: Final = 1_000


class ShownAuditLog(msgspec.Struct, frozen=True):
    """A page of the audit log, the newest first; `position` 0 is the end."""

    rows: list[AuditRow]
    position: int


class ShownChain(msgspec.Struct, frozen=True):
    """Rows of the audit log in their order, and both ends of the chain afterwards."""

    rows: list[AuditRow]
    head: AuditHead


class Broken(msgspec.Struct, frozen=True):
    """The first row at which the chain is broken, and the reason."""

    seq: int
    why: str


class ChainCheck:
    """Walks along a chain.

    Arguments:
        since: (seq, hash) that was kept elsewhere; None for none.

    >>> check = ChainCheck()
    >>> check.page([], AuditHead()), check.ended, check.rows
    (None, True, 0)
    """

    def __init__(self, since: tuple[int, str] | None = None) -> None:
        self._since = since
        self._hash = ""
        self._met = since is None
        self._empty = 0
        self.seq = -1
        """The last row that was checked; -1 before the first page."""
        self.rows = 0
        self.ended = False

    @property
    def head(self) -> tuple[int, str]:
        """The last row that was checked, and its hash."""
        return self.seq, self._hash

    def page(self, rows: Sequence[AuditRow], head: AuditHead) -> Broken | None:
        """Check the rows behind `seq`; `head` was read after them."""
        if head.anchor_seq > self.seq:  # the beginning, or cleaning has removed rows meanwhile
            self.seq, self._hash, self._empty = head.anchor_seq, head.anchor_hash, 0
            self._meet()
        rest = [row for row in rows if row.seq > self.seq]
        for row in rest:
            broken = self._row(row)
            if broken is not None:
                return broken
        if rest:
            self._empty = 0
            return None
        return self._end(head)

    def _row(self, row: AuditRow) -> Broken | None:
        expected = self.seq + 1
        if row.seq != expected:
            return Broken(expected, f"the rows from {expected} to {row.seq - 1} are missing")
        if row.previous != self._hash:
            return Broken(row.seq, "it does not follow the row before: one of the two was changed")
        if recomputed(row) != row.hash:
            return Broken(row.seq, "it was changed: its columns give another hash")
        self.seq, self._hash = row.seq, row.hash
        self.rows += 1
        return None if self._meet() else Broken(row.seq, "its hash is another one than the hash that was kept")

    def _meet(self) -> bool:
        if self._since is None or self._since[0] != self.seq:
            return True
        self._met = self._since[1] == self._hash
        return self._met

    def _end(self, head: AuditHead) -> Broken | None:
        if head.seq > self.seq:
            self._empty += 1
            if self._empty == 1:
                return None  # a row may have come between the two readings
            return Broken(self.seq + 1, f"the rows from {self.seq + 1} to {head.seq} are missing at the end")
        if (head.seq, head.hash) != self.head:
            return Broken(self.seq, "the log's head names another last row")
        if not self._met:
            assert self._since is not None, "there is a hash to meet"
            if self._since[0] > self.seq:
                return Broken(self.seq + 1, f"the row {self._since[0]}, whose hash was kept, is missing")
            return Broken(self._since[0], "cleaning has removed it, or its hash is another one than was kept")
        self.ended = True
        return None
