"""A message that is taken over keeps its birth.

No row that it may still need is cleaned.
"""

from __future__ import annotations

import sqlite3
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from twophase.barrier import install
from twophase.barrier.branch import once
from twophase.barrier.cleaning import DAY_MS, KEEP_MS, clean
from twophase.testing import InProcessCoordinator

AGE_MS = KEEP_MS + 5 * DAY_MS
CALL = {"gid": "taken", "branch_id": "01", "op": "action", "trans_type": "msg"}


def ask(coordinator: InProcessCoordinator, path: str, body: Any = None) -> Any:
    data = None if body is None else msgspec.json.encode(body)
    with urllib.request.urlopen(f"{coordinator.url}/api/twophase/{path}", data, timeout=20) as answer:
        return msgspec.json.decode(answer.read())


def take(coordinator: InProcessCoordinator, state: str, birth_ms: int, **fields: Any) -> None:
    message = {"gid": "taken", "state": state, "created_ms": birth_ms, **fields}
    message.setdefault("branches", [{"url": "http://127.0.0.1:1/in"}])
    reply = ask(coordinator, "import", {"messages": [message], "never_taken": True})
    assert [one["outcome"] for one in reply["results"]] == ["copied"], reply


def old_bank(path: Path, birth_ms: int) -> sqlite3.Connection:
    """Make a database whose rows are as old as the message.

    They are the rows of the producer's transaction and of the branch's effect.
    """
    bank = sqlite3.connect(path)
    install(bank)
    columns = "trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at, create_time"
    written = f"strftime('%Y-%m-%d %H:%M:%f', {birth_ms / 1000}, 'unixepoch')"
    for row in (f"'00', 'msg', '01', 'msg', 't', {birth_ms}", "'01', 'action', '01', 'action', 't', null"):
        bank.execute(f"insert into barrier ({columns}) values ('msg', 'taken', {row}, {written})")
    bank.commit()
    return bank


def clean_at_defaults(bank: sqlite3.Connection, coordinator: InProcessCoordinator) -> int:
    agreed = ask(coordinator, "horizon?check=&barrier=")
    unfinished_ms, undecided_ms = agreed["oldest_unfinished_ms"], agreed["oldest_undecided_ms"]
    cleaned = clean(bank, undecided_ms=undecided_ms, unfinished_ms=unfinished_ms)
    return cleaned.producer_rows + cleaned.branch_rows


@pytest.mark.parametrize("known", [True, False], ids=["birth known", "birth unknown"])
def test_a_branch_that_took_effect_before_the_message_was_taken_over_takes_effect_once(
    coordinator: InProcessCoordinator, tmp_path: Path, known: bool
) -> None:
    birth_ms = time.time_ns() // 1_000_000 - AGE_MS
    bank = old_bank(tmp_path / "bank.db", birth_ms)
    take(coordinator, "submitted", birth_ms if known else 0)

    clean_at_defaults(bank, coordinator)

    effects: list[Any] = []
    once(bank, CALL, effects.append)
    assert effects == []


@pytest.mark.parametrize("known", [True, False], ids=["birth known", "birth unknown"])
def test_a_transaction_that_committed_before_the_message_was_taken_over_is_not_forgotten(
    coordinator: InProcessCoordinator, tmp_path: Path, known: bool
) -> None:
    birth_ms = time.time_ns() // 1_000_000 - AGE_MS
    bank = old_bank(tmp_path / "bank.db", birth_ms)
    take(
        coordinator,
        "prepared",
        birth_ms if known else 0,
        timeout_to_fail_ms=60_000,
        query_prepared="http://127.0.0.1:1/check",
    )

    clean_at_defaults(bank, coordinator)

    assert bank.execute("select reason from barrier where branch_id = '00'").fetchall() == [("msg",)]


@pytest.mark.parametrize("ahead_ms", [0, DAY_MS], ids=["right", "a day ahead"])
def test_a_birth_is_earlier_than_its_rows_by_every_clock(coordinator: InProcessCoordinator, ahead_ms: int) -> None:
    """The clocks of the producer, of the other coordinator and of this one may differ."""
    now_ms = time.time_ns() // 1_000_000
    take(coordinator, "submitted", now_ms + ahead_ms)
    created_ms = ask(coordinator, "messages/taken")["message"]["created_ms"]
    assert created_ms <= time.time_ns() // 1_000_000 - 5 * 60_000


def test_what_is_not_that_old_is_cleaned_all_the_same(coordinator: InProcessCoordinator, tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    bank = old_bank(tmp_path / "bank.db", now_ms - AGE_MS)
    take(coordinator, "submitted", now_ms - DAY_MS)
    assert clean_at_defaults(bank, coordinator) == 2


def test_a_delay_that_was_left_is_kept_whatever_the_birth(coordinator: InProcessCoordinator) -> None:
    now_ms = time.time_ns() // 1_000_000
    take(coordinator, "submitted", now_ms - AGE_MS, delay_ms=3_600_000)
    found = ask(coordinator, "messages/taken")["message"]
    assert found["state"] == "submitted"
    assert found["due_ms"] >= now_ms + 3_590_000
    assert found["earliest_ms"] >= now_ms + 3_590_000
