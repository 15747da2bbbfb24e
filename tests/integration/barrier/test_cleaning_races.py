"""The cleaner beside every question and begin, on real databases (I10).

They race for as long as the cleaning takes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.barrier.test_cleaning import NOW_MS, OLD_MS, TIMES, clean_bank
from tests.support.business_databases import Bank, begin, verify
from twophase.barrier.asking import check_back
from twophase.barrier.fault import Fault, fault_of
from twophase.barrier.open import open_transaction
from twophase.core.errors import BeginDeadlinePassed, CheckBackCameFirst
from twophase.core.verdict import Verdict

COUNT = {"sqlite": 30, "postgresql": 80, "mysql": 40}
"""Number of messages of each kind.

SQLite has one writer at a time, and here there are three.
"""


def _put_all(bank: Bank, committed: list[str], barred: list[str]) -> None:
    columns = "trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at, create_time"
    written = TIMES[bank.kind].format(OLD_MS)
    rows = [
        f"('msg', '{gid}', '00', 'msg', '01', '{reason}', 't', {OLD_MS}, {written})"
        for pair in zip(committed, barred, strict=True)
        for gid, reason in zip(pair, ("msg", "rollback"), strict=True)
    ]
    bank.query(f"insert into barrier ({columns}) values {', '.join(rows)}")


def _messages(bank: Bank) -> set[str]:
    """Return the gids whose rows exist.

    One query asks for all, as a connection for each message takes longer than the cleaning.
    """
    return {gid for (gid,) in bank.query("select gid from barrier where op = 'msg'")}


def _begin_late(engine: Any, gid: str) -> None:
    transaction = open_transaction(engine, lock_timeout_ms=1_500)
    try:
        begin(transaction, gid, prepared_at_ms=OLD_MS)
        verify(transaction, gid)
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.close()


def test_delayed_check_backs_and_woken_producers_beside_the_cleaner(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No committed transaction is ever called rolled back, and no barred one begins."""
    monkeypatch.setattr("twophase.barrier.cleaning._PAUSE", 1)
    monkeypatch.setattr("twophase.barrier.cleaning.DELETED_AT_ONCE", 10)
    monkeypatch.setattr("twophase.barrier.cleaning.LOCK_TIMEOUT_MS", 300)
    committed, barred = ([f"{kind}{number:03}" for number in range(COUNT[bank.kind])] for kind in ("done", "barred"))
    _put_all(bank, committed, barred)
    said: Counter[tuple[str, Verdict]] = Counter()
    begun: list[str] = []
    finished = threading.Event()

    def until_cleaned() -> Iterator[None]:
        while not finished.is_set():
            yield
        yield  # once more over what was removed

    def ask() -> None:
        with bank.engine() as engine:
            for _ in until_cleaned():
                for kind, gid in (("committed", committed), ("barred", barred)):
                    for one in gid[::7]:
                        said[kind, check_back(engine, one, prepared_at_ms=OLD_MS, lock_timeout=0.3).verdict] += 1

    def wake() -> None:
        with bank.engine() as engine:
            for _ in until_cleaned():
                for gid in barred[::5]:
                    try:
                        _begin_late(engine, gid)
                        begun.append(gid)
                    except (BeginDeadlinePassed, CheckBackCameFirst):
                        pass
                    except Exception as error:  # noqa: BLE001 -- a lost lock is no verdict; the test gets other errors
                        if fault_of(error) is not Fault.BUSY:
                            begun.append(repr(error))

    threads = [threading.Thread(target=target) for target in (ask, wake)]
    for thread in threads:
        thread.start()
    try:
        # Counted by the rows that are left, not by the reports: a step that loses its lock after some batches reports
        # nothing.
        while _messages(bank):
            try:
                clean_bank(bank, undecided_ms=NOW_MS)
            except Exception as error:
                if fault_of(error) is not Fault.BUSY:
                    raise
    finally:
        finished.set()
        for thread in threads:
            thread.join()

    assert begun == []
    assert said["committed", Verdict.ROLLED_BACK] == said["barred", Verdict.COMMITTED] == 0
    assert said["committed", Verdict.UNKNOWN] + said["barred", Verdict.UNKNOWN] > 0, said
    assert _messages(bank) & set(committed) == set()
