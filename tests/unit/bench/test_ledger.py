"""Every message is accounted for.

It is delivered, lost, duplicate, called too early, or not one of this run's.
"""

from __future__ import annotations

import time

from benchmarks.load.ledger import Ledger


def _submitted(ledger: Ledger, *, acknowledged: bool = True) -> int:
    now_s = time.perf_counter()
    number = ledger.begin(now_s)
    ledger.submitting(number, now_s)
    if acknowledged:
        ledger.acknowledge(number)
    return number


def test_what_was_acknowledged_and_called_is_delivered() -> None:
    ledger = Ledger()
    ledger.arrive(_submitted(ledger), 0)

    found = ledger.findings()
    assert (found.acknowledged, found.delivered, found.lost, found.duplicates) == (1, 1, 0, 0)
    assert found.kept
    assert ledger.branch.count == 1


def test_what_was_acknowledged_and_not_called_is_lost() -> None:
    ledger = Ledger()
    _submitted(ledger)

    assert ledger.findings().lost == 1
    assert not ledger.findings().kept


def test_what_was_not_acknowledged_is_not_lost_when_it_is_not_called() -> None:
    ledger = Ledger()
    _submitted(ledger, acknowledged=False)

    assert ledger.findings().lost == 0


def test_each_further_call_is_a_duplicate_and_delivers_nothing() -> None:
    ledger = Ledger()
    number = _submitted(ledger)
    for _ in range(3):
        ledger.arrive(number, 0)

    assert (ledger.delivered, ledger.duplicates) == (1, 2)


def test_a_call_before_the_submit_is_too_early_and_a_broken_promise() -> None:
    ledger = Ledger()
    ledger.arrive(ledger.begin(0.0), 0)

    found = ledger.findings()
    assert (found.early, found.delivered) == (1, 0)
    assert not found.kept


def test_calls_of_other_messages_and_branches_are_foreign() -> None:
    ledger = Ledger(branches=2)
    number = _submitted(ledger)
    for message, branch in ((number + 1, 0), (-1, 0), (number, 2), (number, -1)):
        ledger.arrive(message, branch)

    assert (ledger.foreign, ledger.delivered) == (4, 0)


def test_a_message_is_delivered_with_its_last_branch_whatever_their_order() -> None:
    ledger = Ledger(branches=3)
    number = _submitted(ledger)
    ledger.arrive(number, 2)
    ledger.arrive(number, 0)
    ledger.arrive(number, 0)
    assert (ledger.delivered, ledger.owed, ledger.duplicates) == (0, 1, 1)

    ledger.arrive(number, 1)
    assert (ledger.delivered, ledger.owed) == (1, 0)


def test_one_lost_among_many_is_found() -> None:
    ledger = Ledger()
    numbers = [_submitted(ledger) for _ in range(200_000)]
    for number in numbers:
        if number != 131_072:
            ledger.arrive(number, 0)

    assert (ledger.delivered, ledger.findings().lost) == (199_999, 1)


def test_only_messages_that_are_due_after_the_warm_up_are_measured() -> None:
    ledger = Ledger(opened=True)
    before = [_submitted(ledger), _submitted(ledger)]
    ledger.arrive(before[0], 0)
    ledger.warmed_up(waiting=1)
    waited, after = _submitted(ledger), _submitted(ledger)
    for number in (before[1], waited, after):
        ledger.arrive(number, 0)

    assert ledger.measured_from == after
    assert {name: one.count for name, one in ledger.latencies().items()} == {"submit → branch": 1, "whole message": 1}
    assert ledger.delivered == 4
