"""The soak of queues in short, and what its checker finds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.queues.ledger import Ledger

GROUP = "billing"
LIFE, OTHER = "server-0.1", "server-0.2"


def _given(ledger: Ledger, id_: str, life: str = LIFE, *, asked_s: float = 0.0, hold_s: float = 10.0) -> None:
    ledger.given(GROUP, id_, life, asked_s, hold_s, now_ms=1_000)


def _done(ledger: Ledger, id_: str, life: str = LIFE) -> None:
    _given(ledger, id_, life)
    ledger.acknowledging(GROUP, id_)
    ledger.acknowledged(GROUP, id_, life)


def _sent(ledger: Ledger) -> str:
    id_ = ledger.new("plain")
    ledger.promise(id_)
    return id_


def _in_order(ledger: Ledger) -> tuple[str, str]:
    first, second = (ledger.new("grouped", place=("a", number)) for number in range(2))
    return first, second


def test_what_was_in_flight_may_come_again() -> None:
    ledger = Ledger([GROUP], clock=lambda: 1.0)
    id_ = _sent(ledger)
    _given(ledger, id_)
    _given(ledger, id_, OTHER)  # the server was killed
    ledger.acknowledging(GROUP, id_)
    ledger.released(GROUP, id_)  # nobody knows whether the acknowledgement arrived
    _done(ledger, id_, OTHER)
    ledger.check_queues([id_])
    assert ledger.sentences() == []
    assert ledger.waiting == {GROUP: 0}


def test_a_late_acknowledgement_confirms_nothing() -> None:
    now_s = [0.0]
    ledger = Ledger([GROUP], clock=lambda: now_s[0])
    id_ = _sent(ledger)
    _given(ledger, id_)
    now_s[0] = 11.0
    ledger.acknowledging(GROUP, id_)
    ledger.acknowledged(GROUP, id_, LIFE)
    _given(ledger, id_)
    assert ledger.sentences() == []


def _not_in_its_queue(ledger: Ledger) -> None:
    _done(ledger, _sent(ledger))
    ledger.check_queues([])


def _never_given(ledger: Ledger) -> None:
    ledger.check_queues([_sent(ledger)])


def _rolled_back(ledger: Ledger) -> None:
    _given(ledger, ledger.new("half", commit=False))


def _never_sent(ledger: Ledger) -> None:
    _given(ledger, "7-commit")


def _not_due(ledger: Ledger) -> None:
    _given(ledger, ledger.new("delayed", due_ms=1_001))


def _rolled_back_in_queue(ledger: Ledger) -> None:
    ledger.check_queues([ledger.new("half", commit=False)])


def _twice_in_queue(ledger: Ledger) -> None:
    ledger.check_queues([_sent(ledger)] * 2)


def _after_its_acknowledgement(ledger: Ledger) -> None:
    id_ = _sent(ledger)
    _done(ledger, id_)
    _given(ledger, id_, OTHER)


def _to_two(ledger: Ledger) -> None:
    id_ = _sent(ledger)
    _given(ledger, id_)
    _given(ledger, id_)


def _before_the_one_before(ledger: Ledger) -> None:
    _, second = _in_order(ledger)
    _given(ledger, second)


def _after_a_later_one(ledger: Ledger) -> None:
    first, second = _in_order(ledger)
    ledger.acknowledging(GROUP, first)
    _given(ledger, second)
    _given(ledger, first)


@pytest.mark.parametrize(
    ("word", "broken"),
    [
        ("lost: not in its queue", _not_in_its_queue),
        ("lost: never given", _never_given),
        ("ghost", _rolled_back),
        ("ghost", _never_sent),
        ("before it was due", _not_due),
        ("ghost: in a queue", _rolled_back_in_queue),
        ("duplicated: twice", _twice_in_queue),
        ("duplicated: given again", _after_its_acknowledgement),
        ("duplicated: given while", _to_two),
        ("out of order: before", _before_the_one_before),
        ("out of order: after", _after_a_later_one),
    ],
)
def test_a_broken_promise_is_found(word: str, broken: Callable[[Ledger], None]) -> None:
    ledger = Ledger([GROUP], clock=lambda: 1.0)
    broken(ledger)
    assert any(sentence.startswith(word) or word in sentence for sentence in ledger.sentences())


def _soaked(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and its report."""
    page = folder / "report.md"
    command = [sys.executable, "-m", "tests.crash.queues.soak", "--report", str(page), "--seed", "1", "--peace", "3"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, page.read_text() if page.exists() else done.stdout + done.stderr


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_servers_keep_every_promise_on_sqlite(tmp_path: Path) -> None:
    code, said = _soaked(tmp_path, "--store", "sqlite", "--messages", "3000")
    assert code == 0, said


@pytest.mark.crash
@pytest.mark.postgres
@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_and_frozen_servers_keep_every_promise_on_postgres(tmp_path: Path) -> None:
    code, said = _soaked(tmp_path, "--store", "postgres", "--messages", "3000")
    assert code == 0, said


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("bug", "word"),
    [
        ("appended_after_acknowledgement", "lost: not in its queue"),
        ("consumed_before_flush", "duplicated: given again after its acknowledgement"),
    ],
)
def test_a_bug_in_the_server_is_found(bug: str, word: str, tmp_path: Path) -> None:
    code, said = _soaked(tmp_path, "--store", "sqlite", "--messages", "3000", "--rest", "20", "--planted", bug)
    assert code == 1, said
    assert word in said
