"""The classic cases, one scene each.

Kill the right process at the right moment, then watch the message's fate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from demo.stage import Stage, StageError, Told


@dataclass(frozen=True)
class Scene:
    """One row of the table."""

    case: str
    killed: str
    check_back: str
    outcome: str
    resolved_s: float
    as_expected: bool


@dataclass
class _Customer:
    """A transfer under way in a thread of its own."""

    told: Told | None = None
    thread: threading.Thread = field(default_factory=threading.Thread)


def scenes(stage: Stage) -> Iterator[tuple[str, Callable[[], Scene]]]:
    """Yield every case: its name, and the function that plays it."""
    for case, play in (
        ("success", _success),
        ("crash after commit, before submit", _crash_after_commit),
        ("crash before commit", _crash_before_commit),
        ("check-back while the transaction is in progress", _in_progress),
        ("check-back before the transaction started", _before_start),
        ("receiver down", _receiver_down),
        ("coordinator down", _coordinator_down),
    ):
        yield case, lambda case=case, play=play: play(stage, case)  # type: ignore[misc]


def _success(stage: Stage, case: str) -> Scene:
    started_ms = _now_ms()
    told = stage.transfer("story-success")
    return _ending(stage, case, "nobody", told.gid, started_ms, "succeeded")


def _crash_after_commit(stage: Stage, case: str) -> Scene:
    gid, died_ms = _die_at(stage, "producer.after_commit", "story-after-commit")
    return _ending(stage, case, "bank A", gid, died_ms, "succeeded")


def _crash_before_commit(stage: Stage, case: str) -> Scene:
    gid, died_ms = _die_at(stage, "producer.before_commit", "story-before-commit")
    return _ending(stage, case, "bank A", gid, died_ms, "failed")


def _in_progress(stage: Stage, case: str) -> Scene:
    started_ms = _now_ms()
    told = stage.transfer("story-in-progress", hold_s=4.0)
    scene = _ending(stage, case, "nobody", told.gid, started_ms, "succeeded")
    asked = "in_progress" in stage.answers(told.gid)
    return _with(scene, as_expected=scene.as_expected and asked)


def _before_start(stage: Stage, case: str) -> Scene:
    started_ms = _now_ms()
    told = stage.transfer("story-late", hold_before_begin_s=4.0)
    scene = _ending(stage, case, "nobody", told.gid, started_ms, "failed")
    outcome = f"{scene.outcome}; the late transaction was refused"
    return _with(scene, outcome=outcome, as_expected=scene.as_expected and "TP-5002" in told.why)


def _receiver_down(stage: Stage, case: str) -> Scene:
    stage.bank_b.kill()
    started_ms = _now_ms()
    told = stage.transfer("story-receiver-down")
    stage.wait(
        "a failed call of bank B",
        lambda: bool(stage.rows(stage.coordinator_db, "select 1 from attempt where gid = ?", told.gid)),
    )
    stage.bank_b.start()
    return _ending(stage, case, "bank B", told.gid, started_ms, "succeeded")


def _coordinator_down(stage: Stage, case: str) -> Scene:
    before = stage.unfinished()
    customer = _in_background(stage, "story-coordinator-down", hold_s=3.0)
    stage.wait("the message to be prepared", lambda: bool(stage.unfinished() - before))
    stage.wait("bank A's transaction to be open", stage.is_in_transaction)
    stage.coordinator.kill()
    started_ms = _now_ms()
    customer.thread.join()
    stage.coordinator.start()
    if customer.told is None:
        raise StageError("bank A gave no answer while the coordinator was down")
    return _ending(stage, case, "coordinator", customer.told.gid, started_ms, "succeeded")


def _die_at(stage: Stage, failpoint: str, transfer_id: str) -> tuple[str, int]:
    """Let bank A die at a failpoint, and start it again.

    Returns the gid of the orphan and the time when its producer died.
    """
    stage.bank_a.kill()
    stage.bank_a.start(failpoint=failpoint)
    before = stage.unfinished()
    stage.transfer(transfer_id)
    if not stage.bank_a.wait_killed(10):
        raise StageError(f"bank A did not die at {failpoint}:\n{stage.bank_a.log_end()}")
    died_ms = _now_ms()
    orphans = stage.unfinished() - before
    stage.bank_a.start()
    if len(orphans) != 1:
        raise StageError(f"expected one orphaned message, found {len(orphans)}")
    return orphans.pop(), died_ms


def _in_background(stage: Stage, transfer_id: str, **hold_s: float) -> _Customer:
    customer = _Customer()

    def wish() -> None:
        customer.told = stage.transfer(transfer_id, **hold_s)

    customer.thread = threading.Thread(target=wish)
    customer.thread.start()
    return customer


def _ending(stage: Stage, case: str, killed: str, gid: str, since_ms: int, expected: str) -> Scene:
    if not gid:
        raise StageError(f"{case}: bank A did not say which message it made")
    stage.wait(f"{case}: the message to become final", lambda: stage.final(gid) is not None)
    final = stage.final(gid)
    assert final is not None
    state, decided_by, finished_ms = final
    answers = stage.answers(gid)
    if decided_by == "check-back":
        answers.append("committed" if state == "succeeded" else "rolled_back")
    effects = stage.rows(stage.bank_b_db, "select count(*) from ledger where gid = ?", gid)[0][0]
    outcome = "delivered once" if effects == 1 else f"delivered {effects} times" if effects else "not delivered"
    as_expected = state == expected and effects == (1 if expected == "succeeded" else 0)
    return Scene(case, killed, _spoken(answers), outcome, max(0, finished_ms - since_ms) / 1000, as_expected)


def _spoken(answers: list[str]) -> str:
    """Return repeated answers counted, in order: `in progress ×3, committed`."""
    if not answers:
        return "not asked"
    runs: list[tuple[str, int]] = []
    for answer in answers:
        word = answer.replace("_", " ")
        if runs and runs[-1][0] == word:
            runs[-1] = (word, runs[-1][1] + 1)
        else:
            runs.append((word, 1))
    return ", ".join(word if count == 1 else f"{word} ×{count}" for word, count in runs)


def _with(scene: Scene, *, outcome: str | None = None, as_expected: bool) -> Scene:
    return Scene(scene.case, scene.killed, scene.check_back, outcome or scene.outcome, scene.resolved_s, as_expected)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
