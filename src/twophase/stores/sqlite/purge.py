"""The cleaning of the oldest history rows and attempts.

A reader finds them, and the writer removes them by key.

Keeps I10 with correctness rules 15 and 17. Rows are found on the reading connection, so that a flush never waits for
the search; the writer only raises the horizon and deletes by primary key, in one commit. No index of its own is needed:
history is numbered in the order it ends and attempts in the order they are written, so the oldest stand first. What
goes, what stays and how far the horizon rises is decided in `stores.forgetting`.

A row is looked at once a pass: what stays (the newest attempts of a message that is still live, what a clock that was
ahead has dated) is stepped over, and met again by the next pass. They are few: only a message that has waited since
before the bound, parked, delayed or tried seldom, keeps attempts that old.
"""

from __future__ import annotations

import sqlite3

import msgspec

from twophase.stores.base import ATTEMPTS_SHOWN
from twophase.stores.forgetting import Bound, Fate, horizon_behind
from twophase.stores.sqlite import auditing, statements
from twophase.stores.sqlite.statements import NODE

_LOOKED_AT_MAX = 4
"""Rows that a step reads, for each row that it may remove.

So a step is bounded, however many rows it must pass over.
"""
_NEWER_MAX = ATTEMPTS_SHOWN - 1
"""The number of newer attempts behind which one of a live message is still shown."""


class Removable(msgspec.Struct, frozen=True):
    """The rows that one step may remove, and the least horizon behind them."""

    horizon_ms: int
    history: list[int]
    attempts: list[int]
    more: bool
    audit_until: int = 0
    """The number of the last row of the audit log that goes."""


class Sweep:
    """The position of the pass over history and attempts.

    It is used in the reader's thread only.
    """

    def __init__(self) -> None:
        self._seq = 0
        self._id = 0

    def find(self, connection: sqlite3.Connection, before_ms: int, now_ms: int, limit: int) -> Removable:
        """Find up to `limit` old rows of each kind, but none that an archive still lacks."""
        _, archived_until_ms, audit_through = connection.execute(statements.HORIZON).fetchone()
        if archived_until_ms is not None:
            before_ms = min(before_ms, archived_until_ms)
        bound = Bound(before_ms, now_ms)
        history, history_left = self._old_history(connection, bound, limit)
        attempts, attempts_left = self._old_attempts(connection, bound, limit)
        horizon_ms = horizon_behind(history.values())
        through = None if archived_until_ms is None else audit_through or 0
        audit_until = auditing.oldest(connection, before_ms, through, limit)
        return Removable(horizon_ms, list(history), attempts, history_left or attempts_left, audit_until)

    def _old_history(
        self, connection: sqlite3.Connection, bound: Bound, limit: int
    ) -> tuple[dict[int, tuple[str, int]], bool]:
        """(gid, finished_ms) by seq, and whether there may be more."""
        found: dict[int, tuple[str, int]] = {}
        rows = connection.execute(statements.OLDEST_HISTORY, (NODE, self._seq, limit * _LOOKED_AT_MAX))
        for seq, gid, finished_ms, queued in rows:
            fate = bound.fate(gid, finished_ms)
            if fate is Fate.ENDS_PASS:
                break
            if len(found) == limit:
                return found, True
            self._seq = seq
            if fate is Fate.GOES and not queued:
                found[seq] = gid, finished_ms
        else:
            if self._seq and self._behind(connection, statements.OLDEST_HISTORY, (NODE, self._seq, 1)):
                return found, True
        self._seq = 0
        return found, False

    def _old_attempts(self, connection: sqlite3.Connection, bound: Bound, limit: int) -> tuple[list[int], bool]:
        found: list[int] = []
        rows = connection.execute(statements.OLDEST_ATTEMPTS, (self._id, _NEWER_MAX, limit * _LOOKED_AT_MAX))
        for id_, at_ms, stays in rows:
            young = at_ms >= bound.before_ms
            if young and bound.fate_of_young(at_ms) is Fate.ENDS_PASS:
                break
            if len(found) == limit:
                return found, True
            self._id = id_
            if not young and not stays:
                found.append(id_)
        else:
            if self._id and self._behind(connection, statements.OLDEST_ATTEMPTS, (self._id, _NEWER_MAX, 1)):
                return found, True
        self._id = 0
        return found, False

    @staticmethod
    def _behind(connection: sqlite3.Connection, statement: str, position: tuple[int, ...]) -> bool:
        return connection.execute(statement, position).fetchone() is not None


def oldest_ms(connection: sqlite3.Connection) -> int | None:
    """When the oldest history row that is left was finished."""
    row = connection.execute(statements.OLDEST_HISTORY, (NODE, 0, 1)).fetchone()
    return None if row is None else row[2]
