"""The producer's insert gives no row back.

What stands in the table decides, and it is read.
"""

from __future__ import annotations

import pytest

from twophase.barrier.dialect import POSTGRESQL
from twophase.barrier.producer import begin_producer
from twophase.barrier.transaction import Row
from twophase.core.errors import BarrierRowRefused, CheckBackCameFirst, Fate

_NOTHING: list[Row] = []
_WRITTEN: list[Row] = [(5, "bank")]
_STANDS: list[Row] = [("g1", "rollback")]


def _played(answers: list[list[Row]]) -> None:
    """Answer the statements in turn: the insert, the read, and both once more."""
    rule = begin_producer(POSTGRESQL, "barrier", "g1", "token", None, identity="bank", allow_unsafe=True)
    statement = next(rule)
    try:
        for number, rows in enumerate(answers):
            assert ("insert into" in statement.sql) is (number % 2 == 0)
            statement = rule.send(rows)
    except StopIteration:
        assert number == len(answers) - 1
        return
    raise AssertionError("more statements than answers")


def test_a_row_that_stands_is_a_check_backs() -> None:
    with pytest.raises(CheckBackCameFirst, match="The coordinator asked") as raised:
        _played([_NOTHING, _STANDS])
    assert raised.value.fate is Fate.ROLLED_BACK


@pytest.mark.parametrize("reason", ["msg", "odd"])
def test_a_row_of_another_transaction_is_no_check_backs(reason: str) -> None:
    with pytest.raises(CheckBackCameFirst, match="Another transaction") as raised:
        _played([_NOTHING, [("g1", reason)]])
    assert raised.value.fate is Fate.UNDECIDED
    assert "Do not repeat the operation" in raised.value.remedy


def test_a_row_that_a_cleaner_removed_meanwhile_stands_in_no_ones_way() -> None:
    _played([_NOTHING, _NOTHING, _WRITTEN])


def test_a_row_that_is_dropped_twice_is_refused() -> None:
    with pytest.raises(BarrierRowRefused):
        _played([_NOTHING, _NOTHING, _NOTHING, _NOTHING])


def test_a_row_that_comes_after_the_cleaner_is_a_check_backs() -> None:
    with pytest.raises(CheckBackCameFirst):
        _played([_NOTHING, _NOTHING, _NOTHING, _STANDS])
