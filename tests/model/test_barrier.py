"""The model's business database behaves as the real ones.

dtm-wire §5.4 has the measurements.
"""

from __future__ import annotations

import pytest

from . import barrier
from .barrier import Row, Transaction, Verdict
from .rules import Rules

RULES = Rules()


def _with(transaction: Transaction) -> barrier.Barrier:
    return barrier.become(barrier.empty(1), 1, transaction)


def test_asking_an_untouched_barrier_writes_the_rollback_row() -> None:
    after, verdict = barrier.ask(barrier.empty(1), RULES)

    assert (after.row, verdict) == (Row.ROLLBACK, Verdict.ROLLED_BACK)


@pytest.mark.parametrize("transaction", [Transaction.OPEN, Transaction.POISONED, Transaction.COMMITTING])
def test_a_transaction_that_holds_the_row_is_in_progress(transaction: Transaction) -> None:
    before = _with(transaction)

    assert barrier.ask(before, RULES) == (before, Verdict.UNDECIDED)


def test_asking_after_the_commit_says_committed_and_by_whom() -> None:
    committed = barrier.commit(_with(Transaction.COMMITTING), 1, RULES)

    after, verdict = barrier.ask(committed, RULES)

    assert (after.owner, verdict) == (1, Verdict.COMMITTED)
    assert barrier.is_committed(after)


def test_asking_after_a_rollback_says_rolled_back() -> None:
    assert barrier.ask(_with(Transaction.GONE), RULES)[1] is Verdict.ROLLED_BACK


def test_business_rows_without_a_barrier_row_are_committed_and_called_rolled_back() -> None:
    bare = barrier.commit(_with(Transaction.COMMITTING_BARE), 1, RULES)

    assert barrier.is_committed(bare)
    assert barrier.ask(bare, RULES)[1] is Verdict.ROLLED_BACK


def test_a_power_cut_keeps_what_was_durable_and_ends_what_was_open() -> None:
    committed = barrier.commit(_with(Transaction.COMMITTING), 1, RULES)

    assert committed == barrier.lose_power(committed)
    assert barrier.lose_power(_with(Transaction.OPEN)).transactions == (Transaction.GONE,)


def test_a_power_cut_takes_a_commit_that_was_not_durable() -> None:
    committed = barrier.commit(_with(Transaction.COMMITTING), 1, Rules(barrier_commits_durably=False))

    after = barrier.lose_power(committed)

    assert after.row is Row.NONE
    assert not barrier.is_committed(after)
