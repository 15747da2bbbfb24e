"""The business database of the model: one barrier key and its transactions. Pure.

The transactions write the key and hold locks. The model has what the three databases of dtm-wire §5.4 have in
common: an insert of the key waits for, or fails on, a row that another open transaction wrote; a row is seen by others
once its transaction has committed; the database may end any transaction that has not committed; a COMMIT under way ends
either way, whatever its client learns.
"""

from __future__ import annotations

import enum
import functools
from typing import NamedTuple

from .rules import Rules


class Transaction(enum.IntEnum):
    """The database's view of one attempt's local transaction."""

    NONE = 0
    OPEN = 1
    """Its barrier row is written, not committed, and locked."""
    POISONED = 2
    """A statement failed and the application swallowed it.

    COMMIT will roll back without an error (PostgreSQL).
    """
    REBORN = 3
    """A deadlock rolled everything back.

    The application continued in a new transaction (MySQL 1213).
    """
    COMMITTING = 4
    """COMMIT was sent; it ends either way."""
    COMMITTING_BARE = 5
    """COMMIT was sent for business rows without a barrier row."""
    COMMITTED = 6
    COMMITTED_BARE = 7
    GONE = 8
    """Rolled back; COMMIT, if it was sent, raised."""
    SILENTLY_GONE = 9
    """Rolled back, though COMMIT returned without an error."""
    COMMITTED_PART = 10
    """Its block ended it: the row is committed, the rest is not.

    The rest includes branches that were added later.
    """


LOCKING = frozenset({Transaction.OPEN, Transaction.POISONED, Transaction.COMMITTING})
COMMITTED = frozenset({Transaction.COMMITTED, Transaction.COMMITTED_BARE, Transaction.COMMITTED_PART})
UNENDED = frozenset({Transaction.OPEN, Transaction.POISONED, Transaction.REBORN})
IN_COMMIT = {
    Transaction.COMMITTING: Transaction.COMMITTED,
    Transaction.COMMITTING_BARE: Transaction.COMMITTED_BARE,
}


class Row(enum.IntEnum):
    """The committed barrier row of the gid."""

    NONE = 0
    MSG = 1
    ROLLBACK = 2


class Verdict(enum.IntEnum):
    """The result of an insert-then-read of the barrier."""

    COMMITTED = 0
    ROLLED_BACK = 1
    UNDECIDED = 2
    """In progress, unknown, or no answer: to the coordinator they are one event."""


class Barrier(NamedTuple):
    """The business database.

    It has the row, the attempt that wrote it (from 1; its branches stand in it), whether it would survive a power cut,
    the state of every attempt's transaction, and how far time and the cleaner have come:

    `late`: the begin deadline has passed, counted from prepare. `cleaned`: the cleaner has deleted a row of this gid.
    `horizon`: it stands above the time this message was prepared. `bare`: the row was committed without the branches
    that were added inside its transaction.
    """

    row: Row
    owner: int
    durable: bool
    transactions: tuple[Transaction, ...]
    late: bool = False
    cleaned: bool = False
    horizon: bool = False
    bare: bool = False


def empty(attempts: int) -> Barrier:
    """Return a database in which nothing was written yet."""
    return Barrier(Row.NONE, 0, True, (Transaction.NONE,) * attempts)


@functools.cache
def is_committed(barrier: Barrier) -> bool:
    """Return True when any attempt's business rows are committed."""
    return any(transaction in COMMITTED for transaction in barrier.transactions)


@functools.cache
def is_locked(barrier: Barrier) -> bool:
    """Return True when an insert of the key would have to wait."""
    return any(transaction in LOCKING for transaction in barrier.transactions)


@functools.cache
def become(barrier: Barrier, attempt: int, transaction: Transaction) -> Barrier:
    """Change the state of the transaction of `attempt` (from 1); the row stays."""
    before = barrier.transactions
    return barrier._replace(transactions=(*before[: attempt - 1], transaction, *before[attempt:]))


def commit(barrier: Barrier, attempt: int, rules: Rules) -> Barrier:
    """Perform the COMMIT of `attempt`.

    Its row is visible to all, and durable at once by the rules.
    """
    before = barrier.transactions[attempt - 1]
    after = become(barrier, attempt, IN_COMMIT[before])
    if before is Transaction.COMMITTING_BARE:
        return after
    return after._replace(row=Row.MSG, owner=attempt, durable=rules.barrier_commits_durably)


def ask(barrier: Barrier, rules: Rules) -> tuple[Barrier, Verdict]:
    """Insert, then read: the check-back's question.

    It is the SDK's own question after an exception, too (rules 1 and 7).
    """
    if not rules.check_back_asks_written_table:
        return barrier, Verdict.ROLLED_BACK
    if is_locked(barrier):
        return barrier, Verdict.UNDECIDED if rules.held_lock_is_in_progress else Verdict.ROLLED_BACK
    if barrier.row is Row.MSG and barrier.bare and rules.row_without_branches_is_no_verdict:
        return barrier, Verdict.UNDECIDED
    if barrier.row is Row.MSG:
        return barrier, Verdict.COMMITTED
    if barrier.row is Row.NONE and barrier.horizon and rules.check_back_heeds_horizon:
        return barrier, Verdict.UNDECIDED
    if barrier.row is Row.NONE and rules.check_back_writes:
        barrier = barrier._replace(row=Row.ROLLBACK, durable=rules.barrier_commits_durably)
    return barrier, Verdict.ROLLED_BACK


def lose_power(barrier: Barrier) -> Barrier:
    """Let the database server die and start again.

    What has not committed is gone, and so is what was not durable.
    """
    kept = tuple(
        Transaction.GONE if one in UNENDED or one in IN_COMMIT or (one in COMMITTED and not barrier.durable) else one
        for one in barrier.transactions
    )
    if barrier.durable:
        return barrier._replace(transactions=kept)
    return barrier._replace(row=Row.NONE, owner=0, durable=True, transactions=kept, bare=False)


def clean(barrier: Barrier, rules: Rules) -> Barrier:
    """Let the cleaner delete the row, if there is one.

    It raises the horizon in the same transaction (rule 13).
    """
    return barrier._replace(
        row=Row.NONE,
        owner=0,
        bare=False,
        cleaned=barrier.cleaned or barrier.row is not Row.NONE,
        horizon=barrier.horizon or rules.horizon_rises_with_deletes,
    )
