"""A begin that waits at its row until the begin deadline has passed.

The clock counts as it is afterwards (rule 12).
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.integration.barrier.test_check_back import await_waiters
from tests.support.business_databases import Bank, begin, new_gid
from twophase.barrier.open import open_transaction
from twophase.core.errors import BeginDeadlinePassed
from twophase.core.limits import BEGIN_DEADLINE_MS

LEFT_MS = 4_000


def _begins(bank: Bank, gid: str, last_ms: Future[int]) -> None:
    """Begin with everything ready, and with a begin deadline soon after."""
    with bank.plain() as connection:
        last_ms.set_result(time.time_ns() // 1_000_000 + LEFT_MS)
        transaction = open_transaction(connection)
        try:
            begin(transaction, gid, prepared_at_ms=last_ms.result() - BEGIN_DEADLINE_MS.value)
        finally:
            transaction.rollback()
            transaction.close()


def _until(time_ms: int) -> None:
    pause = threading.Event()
    while time.time_ns() // 1_000_000 <= time_ms:
        pause.wait(0.02)


def test_a_begin_that_waits_for_its_row_until_the_deadline_has_passed_is_refused(bank: Bank) -> None:
    """The begin is in time by the clock of a transaction or of a statement.

    But its row would be younger than cleaning assumes.
    """
    gid = new_gid()
    with bank.plain() as holding, ThreadPoolExecutor(1) as pool:
        held = open_transaction(holding)
        begin(held, gid)
        last_ms: Future[int] = Future()
        begun = pool.submit(_begins, bank, gid, last_ms)
        await_waiters(bank, 1)
        _until(last_ms.result(30))
        held.rollback()
        held.close()
        with pytest.raises(BeginDeadlinePassed):
            begun.result(timeout=60)
    assert bank.reasons(gid) == []
