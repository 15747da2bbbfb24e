"""A receiver that refuses one message in twenty once.

The tests show from when its retries are measured, and what counts as lost.
"""

from __future__ import annotations

import pytest

from benchmarks.load.workload import FIRST_NUMBER
from benchmarks.scenarios import retried
from benchmarks.scenarios.retried import EVERY, RefusingSink, RetriedLedger


class _Clock:
    now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    watch = _Clock()
    monkeypatch.setattr(retried, "time", watch)
    monkeypatch.setattr("benchmarks.load.ledger.time", watch)
    return watch


def _submitted(ledger: RetriedLedger, messages: int) -> None:
    for number in range(messages):
        assert ledger.begin(0.0) == number
        ledger.submitting(number, 0.0)
        ledger.acknowledge(number)


def _call(sink: RefusingSink, number: int) -> int:
    answer = sink.answer(f"/{sink.token}/01".encode(), b'{"message":%d}' % (FIRST_NUMBER + number))
    return int(answer.split()[1])


def test_one_message_in_twenty_is_refused_once_and_its_retry_counts_from_there(clock: _Clock) -> None:
    ledger = RetriedLedger(opened=True)
    sink = RefusingSink(ledger)
    _submitted(ledger, 2 * EVERY)

    clock.now_s = 0.010
    assert [number for number in range(2 * EVERY) if _call(sink, number) == 503] == [0, EVERY]
    assert (ledger.delivered, ledger.owed) == (2 * EVERY - 2, 2)

    clock.now_s = 0.910
    assert [_call(sink, number) for number in (0, EVERY)] == [200, 200]

    found = ledger.findings()
    assert (found.delivered, found.lost, found.duplicates, found.early) == (2 * EVERY, 0, 0, 0)
    assert ledger.retries.count == 2
    assert ledger.retries.percentile_ms(99) == pytest.approx(900, rel=0.01)
    assert ledger.branch.count == 2 * EVERY
    assert ledger.branch.percentile_ms(100) == pytest.approx(10, rel=0.01)


def test_a_retry_that_never_comes_is_a_lost_message_and_a_third_call_a_duplicate() -> None:
    ledger = RetriedLedger()
    sink = RefusingSink(ledger)
    _submitted(ledger, EVERY + 1)

    assert [_call(sink, 0) for _ in range(3)] == [503, 200, 200]
    assert _call(sink, EVERY) == 503

    found = ledger.findings()
    assert (found.lost, found.duplicates) == (EVERY, 1)


def test_a_call_before_the_submit_is_too_early_and_not_refused() -> None:
    ledger = RetriedLedger()
    sink = RefusingSink(ledger)
    ledger.begin(0.0)

    assert _call(sink, 0) == 200
    assert ledger.findings().early == 1
