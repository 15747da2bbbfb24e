"""A message is called lost only when it had its whole time to arrive."""

from __future__ import annotations

import asyncio
from collections import deque

from benchmarks.load.ledger import Ledger
from benchmarks.load.window import drained

_WITHIN_S = 0.5


async def test_what_was_acknowledged_last_has_its_whole_time_to_arrive_though_a_request_is_never_answered() -> None:
    ledger = Ledger()
    number = ledger.begin(0.0)
    ledger.submitting(number, 0.0)
    ledger.acknowledge(number)
    loop = asyncio.get_running_loop()
    loop.call_later(1.3 * _WITHIN_S, ledger.arrive, number, 0)

    await drained(ledger, lambda: 1, _WITHIN_S)

    assert (ledger.findings().lost, ledger.findings().unanswered) == (0, 1)


async def test_what_has_not_arrived_by_then_is_lost() -> None:
    ledger = Ledger()
    number = ledger.begin(0.0)
    ledger.submitting(number, 0.0)
    ledger.acknowledge(number)

    await drained(ledger, lambda: 0, 0.02)

    assert ledger.findings().lost == 1


async def test_what_is_due_has_the_same_time_to_begin_and_what_is_left_is_taken_away() -> None:
    ledger = Ledger(opened=True)
    due = deque([0.0, 0.1, 0.2])
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, due.popleft)

    await drained(ledger, lambda: 0, 0.05, due)

    assert (ledger.findings().not_begun, ledger.findings().unanswered, list(due)) == (2, 0, [])
