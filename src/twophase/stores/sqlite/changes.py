"""A batch as few statements, sorted by kind and applied in bulk.

Refused items are found in bulk, too. Keeps correctness rules 18 and 22 inside one transaction that the caller opens and
commits. A statement whose count
of changed rows is short has met a row that is not as expected; which one is asked only then (`sift`), in a new
transaction, because it is rare. A statement the database rejects for its data is halved until the item is found;
SQLite undoes a failed statement by itself, so its neighbours are not touched.
"""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Sequence
from typing import Final

from twophase.core.gid import born_ms, lowest_gid
from twophase.core.lifecycle import FINAL, STORED, State
from twophase.stores.batch import (
    Complete,
    Decide,
    DecideEarly,
    Finish,
    Insert,
    Item,
    Park,
    Redirect,
    Rejected,
    Reschedule,
)
from twophase.stores.rows import Attempt
from twophase.stores.sqlite import statements
from twophase.stores.sqlite.statements import ROWS_MAX, Row, RowsStatement

Change = tuple[int, Row]
"""An item's index in the batch, and its values.

The gid is first, the expected version next where there is one.
"""

_LIVE = STORED - FINAL
_PREPARED: Final = int(State.PREPARED)
# Functions of C, because a comprehension is a call of Python: this runs once a flush.
_gid_of: Final = operator.attrgetter("gid")
_row_of: Final = operator.itemgetter(1)

DATA_ERRORS = (UnicodeEncodeError, OverflowError, sqlite3.DataError, sqlite3.IntegrityError)


class CountShort(Exception):
    """A statement changed fewer rows than it was given.

    Nothing of this transaction may be committed.
    """


class Changes:
    """The items of a batch by kind."""

    __slots__ = ("births", "completes", "decides", "early", "finishes", "inserts", "parks", "redirects", "reschedules")

    def __init__(self) -> None:
        self.finishes: list[Change] = []
        self.decides: list[Change] = []
        self.early: list[Change] = []
        self.reschedules: list[Change] = []
        self.parks: list[Change] = []
        self.redirects: list[Change] = []
        self.inserts: list[Change] = []
        self.completes: list[Change] = []
        self.births: list[Change] = []
        """The births of new messages that were begun elsewhere."""

    def without(self, indexes: set[int]) -> Changes:
        """Return the others."""
        rest = Changes()
        for kind in self.__slots__:
            setattr(rest, kind, [change for change in getattr(self, kind) if change[0] not in indexes])
        return rest


def sort_by_kind(items: Sequence[Item]) -> Changes:
    """Sort a batch.

    The caller gives one item a gid, and no state that a kind cannot lead to; both are asserted here.

    Enums become plain numbers and texts: the driver asks each of its adapters about anything else, 0.5 to 1 µs a value.
    """
    assert len(set(map(_gid_of, items))) == len(items), "at most one change of a gid in a batch"
    changes = Changes()
    for index, item in enumerate(items):
        match item:
            case Insert():
                assert item.state in _LIVE, "a new message is not final"
                changes.inserts.append(
                    (index, (item.gid, int(item.state), item.due_in_ms, item.body, item.owner or None))
                )
                if item.created_ms is not None:
                    changes.births.append((index, (item.gid, item.created_ms)))
            case Decide():
                row: Row = (item.gid, item.version, item.due_in_ms, str(item.decided_by), item.body)
                changes.decides.append((index, row))
            case Finish():
                assert item.state in FINAL, "a finished message is final"
                row = (
                    item.gid,
                    item.version,
                    int(item.state),
                    item.reason,
                    str(item.decided_by),
                    item.attempts,
                    item.done,
                )
                changes.finishes.append((index, row))
            case Reschedule():
                changes.reschedules.append((index, (item.gid, item.version, item.due_ms, item.attempts, item.done)))
            case Park():
                row = (item.gid, item.version, int(item.parked), item.due_ms, item.attempts, item.done)
                changes.parks.append((index, row))
            case Redirect():
                changes.redirects.append((index, (item.gid, item.version, item.due_ms, item.done, item.body)))
            case DecideEarly():
                row = (item.gid, item.version, item.due_in_ms, str(item.decided_by), item.attempts, item.done)
                changes.early.append((index, row))
            case Complete():
                changes.completes.append((index, (item.gid, item.done, item.body, item.owner or None)))
    return changes


class Applying:
    """The work of one transaction.

    Arguments:
        connection: in a transaction that has passed the fence.
        node, epoch: who writes.
        at_ms: the store's clock for everything in this transaction.
        seq: the last history number in use.
        horizon_ms: gids born before it may have been forgotten.
    """

    def __init__(
        self, connection: sqlite3.Connection, node: int, epoch: int, at_ms: int, seq: int, horizon_ms: int
    ) -> None:
        self._connection = connection
        self._node = node
        self._constants: Row = (node, epoch, at_ms)
        self.at_ms = at_ms
        self.seq = seq
        self.horizon_ms = horizon_ms
        self.lost: set[int] = set()
        self.forgotten: set[int] = set()
        self.rejected: dict[int, Rejected] = {}
        self.numbers: dict[int, tuple[int, ...]] = {}

    def without_forgotten(self, changes: Changes) -> Changes:
        """Put aside new messages whose gid was born before the horizon (15).

        They go into `lost` and `forgotten`.
        """
        lowest = lowest_gid(self.horizon_ms)
        new = changes.inserts + changes.completes if changes.completes else changes.inserts
        forgotten = {index for index, row in new if row[0] < lowest and born_ms(row[0]) is not None}  # type: ignore[operator,arg-type] # a gid is text
        if not forgotten:
            return changes
        self.forgotten = forgotten
        self.lost |= forgotten
        return changes.without(forgotten)

    def sift(self, changes: Changes) -> Changes:
        """Put aside, in `lost`, what would not meet the row it expects; return the rest."""
        expecting: list[Change] = [
            (index, (index, row[0], row[1], _PREPARED)) for index, row in changes.decides + changes.early
        ]
        for kind in (changes.finishes, changes.reschedules, changes.parks, changes.redirects):
            expecting += [(index, (index, row[0], row[1], 0)) for index, row in kind]
        self._ask(statements.UNMATCHED, expecting)
        new = changes.inserts + changes.completes
        self._ask(statements.TAKEN, [(index, (index, row[0])) for index, row in new])
        return changes.without(self.lost)

    def apply(self, changes: Changes) -> None:
        """Write.

        Raises:
            CountShort: some item does not meet the row it expects.
            sqlite3.Error: the database fails as a whole.
        """
        for statement, part in (
            (statements.FINISH, changes.finishes),
            (statements.DECIDE, changes.decides),
            (statements.DECIDE_EARLY, changes.early),
            (statements.RESCHEDULE, changes.reschedules),
            (statements.PARK, changes.parks),
            (statements.REDIRECT, changes.redirects),
            (statements.INSERT, changes.inserts),
            (statements.COMPLETE, changes.completes),
        ):
            if part:
                self._put(statement, part)
        if changes.births:
            self._put(statements.BORN, [change for change in changes.births if change[0] not in self.rejected])

    def record(self, attempts: Sequence[Attempt]) -> None:
        """Append attempts.

        Text that no database takes is written escaped: evidence is not dropped for its spelling.
        """
        rejected_items, self.rejected = self.rejected, {}
        self._put(statements.ATTEMPT, [(index, _attempt_row(attempt)) for index, attempt in enumerate(attempts)])
        rejected_attempts, self.rejected = self.rejected, rejected_items
        for index in rejected_attempts:
            statements.ATTEMPT.run(self._connection, (), [_escaped(_attempt_row(attempts[index]))])

    def _ask(self, statement: RowsStatement, asked: list[Change]) -> None:
        for start in range(0, len(asked), ROWS_MAX):
            self._ask_some(statement, asked[start : start + ROWS_MAX])

    def _ask_some(self, statement: RowsStatement, part: list[Change]) -> None:
        try:
            found = statement.run(self._connection, (), [row for _, row in part]).fetchall()
        except DATA_ERRORS:
            if len(part) > 1:
                middle = len(part) // 2
                self._ask_some(statement, part[:middle])
                self._ask_some(statement, part[middle:])
            # One item whose data cannot even be asked about: `apply` rejects it.
        else:
            self.lost.update(index for (index,) in found)

    def _put(self, statement: RowsStatement, changes: list[Change]) -> None:
        """Apply changes of one kind.

        A rejected list is halved until the item is found.
        """
        if len(changes) > ROWS_MAX:
            for start in range(0, len(changes), ROWS_MAX):
                self._put(statement, changes[start : start + ROWS_MAX])
            return
        if not changes:
            return
        rows = list(map(_row_of, changes))
        try:
            if statement is statements.FINISH or statement is statements.COMPLETE:
                changed = self._end(statement, rows)
            else:
                changed = statement.run(self._connection, self._constants, rows).rowcount
        except DATA_ERRORS as error:
            if len(changes) == 1:
                self.rejected[changes[0][0]] = Rejected(f"{type(error).__name__}: {error}")
                return
            middle = len(changes) // 2
            self._put(statement, changes[:middle])
            self._put(statement, changes[middle:])
        else:
            if changed != len(changes):
                raise CountShort(f"{statement.name}: {changed} of {len(changes)}")

    def _end(self, statement: RowsStatement, rows: Sequence[Row]) -> int:
        numbered = [(number, *row) for number, row in enumerate(rows, 1)]
        changed = statement.run(self._connection, (self._node, self.seq, self.at_ms), numbered).rowcount
        self.seq += changed
        return changed


def _attempt_row(attempt: Attempt) -> Row:
    return (
        attempt.gid,
        attempt.kind,
        attempt.branch_id,
        attempt.target,
        attempt.at_ms,
        attempt.status,
        attempt.latency_ms,
        attempt.result,
        attempt.error,
    )


def _escaped(row: Row) -> Row:
    return tuple(value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value for value in row)
