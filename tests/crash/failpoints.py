"""The failpoints of each process, and the test body for every business database."""

from __future__ import annotations

from pathlib import Path

from tests.crash.harness import Harness

CASES: tuple[tuple[str, str, int], ...] = (
    ("producer.after_prepare", "bank-a", 3),
    ("producer.after_barrier_row", "bank-a", 3),
    ("producer.before_commit", "bank-a", 3),
    ("producer.after_commit", "bank-a", 3),
    ("producer.before_submit", "bank-a", 3),
    ("producer.after_submit", "bank-a", 3),
    ("coordinator.request_parsed", "coordinator", 5),
    ("coordinator.before_flush", "coordinator", 5),
    ("coordinator.after_flush", "coordinator", 5),
    ("coordinator.before_acknowledgement", "coordinator", 5),
    ("coordinator.after_acknowledgement", "coordinator", 5),
    ("coordinator.before_branch_call", "coordinator", 3),
    ("coordinator.after_branch_call", "coordinator", 3),
    ("coordinator.before_finish", "coordinator", 3),
    ("coordinator.after_finish", "coordinator", 3),
    ("branch.before_effect", "bank-b", 3),
    ("branch.after_effect", "bank-b", 3),
    ("branch.before_reply", "bank-b", 3),
    ("check_back.before_insert", "bank-a", 2),
    ("check_back.after_insert", "bank-a", 2),
    ("check_back.before_reply", "bank-a", 2),
)


def survives(harness: Harness, failpoint: str, process: str, passage: int) -> None:
    """Kill `process` at `failpoint`, start it again, and check every promise at rest."""
    service = next(one for one in harness.services if one.name == process)
    harness.start()
    service.kill()
    service.start(failpoint=f"{failpoint}:{passage}")
    for number in range(3):
        harness.orphan(number)
    harness.transfers(8, customers=3)
    assert service.wait_killed(20), f"{process} never reached {failpoint}:\n{service.log_end()}"

    service.start()
    harness.transfers(3, customers=3)
    harness.wait_rest()

    assert harness.check().violations == []


def databases(folder: Path) -> tuple[str, str]:
    """Return the URLs of two SQLite databases in a folder."""
    return f"sqlite:///{folder / 'bank-a.db'}", f"sqlite:///{folder / 'bank-b.db'}"
