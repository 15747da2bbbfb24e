"""Short ways to write batches, and a clock that a test sets."""

from __future__ import annotations

from twophase.core.audit_log import AuditEntry
from twophase.core.lifecycle import State
from twophase.stores.base import Store
from twophase.stores.batch import Batch, Finish, FlushResult, Insert, Item
from twophase.stores.rows import Attempt, AttemptKind, DecidedBy, HistoryRow, LiveRow

LONE_SURROGATE = "\ud800"
"""Text that is no Unicode text, so that no database takes it."""

MADE = AuditEntry("", "", "define", "queue")
"""The act behind a definition that a test makes."""


class SetClock:
    """A clock that shows the test's time."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms


def prepare(gid: str, *, due_in_ms: int = 35_000, body: bytes = b"body") -> Insert:
    """Return a new prepared message."""
    return Insert(gid, State.PREPARED, due_in_ms, body)


def plain(gid: str, *, due_in_ms: int = 0, body: bytes = b"body") -> Insert:
    """Return a new message that is submitted at once."""
    return Insert(gid, State.SUBMITTED, due_in_ms, body)


def abort(gid: str, version: int = 1) -> Finish:
    """Return the end of a prepared message."""
    return Finish(gid, version, State.FAILED, reason="aborted", decided_by=DecidedBy.ABORT)


def failed_call(gid: str, at_ms: int = 0, error: str = "refused") -> Attempt:
    """Return a failed branch call."""
    return Attempt(gid, AttemptKind.BRANCH, "01", "http://b/in", at_ms, 500, 12, "failure", error)


async def flush(store: Store, *items: Item) -> FlushResult:
    """Flush these items."""
    return await store.flush(Batch(list(items), []))


async def live(store: Store, gid: str) -> LiveRow:
    """Return the live row of a gid."""
    row = await store.get(gid)
    assert isinstance(row, LiveRow)
    return row


async def final(store: Store, gid: str) -> HistoryRow:
    """Return the history row of a gid."""
    row = await store.get(gid)
    assert isinstance(row, HistoryRow)
    return row
