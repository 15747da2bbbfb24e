"""The log of failing calls at a server's terminal.

Each target has its own lines, and no line shows the answer's text.
"""

from __future__ import annotations

import pytest
import structlog

from twophase.server.log_observer import LogObserver
from twophase.server.logs import RateLimit
from twophase.stores.rows import Attempt, AttemptKind

IN = "http://bank-b/in"


def attempt(kind: AttemptKind, result: str, status: int, error: str) -> Attempt:
    return Attempt("g", kind, "01", IN, 1, status, 2, result, error)


def test_a_branch_that_fails_is_a_warning_that_names_target_gid_and_status() -> None:
    with structlog.testing.capture_logs() as lines:
        LogObserver().not_done(attempt(AttemptKind.BRANCH, "error", 404, "the answer's text"))
    [line] = lines
    assert line["log_level"] == "warning"
    assert (line["target"], line["gid"], line["status"]) == (IN, "g", 404)
    assert "the answer's text" not in str(line)


def test_a_call_without_answer_says_why() -> None:
    with structlog.testing.capture_logs() as lines:
        LogObserver().not_done(attempt(AttemptKind.CHECK_BACK, "unknown", 0, "connect: refused"))
    assert lines[0]["error"] == "connect: refused"
    assert lines[0]["event"].startswith("check-back without a verdict")


@pytest.mark.parametrize(("kind", "result"), [(AttemptKind.BRANCH, "ongoing"), (AttemptKind.CHECK_BACK, "in_progress")])
def test_an_answer_that_asks_to_wait_is_no_warning(kind: AttemptKind, result: str) -> None:
    with structlog.testing.capture_logs() as lines:
        LogObserver().not_done(attempt(kind, result, 425, ""))
    assert lines[0]["log_level"] == "info"


def test_a_target_that_fails_much_does_not_silence_another() -> None:
    limit = RateLimit(lines_max=2, now_s=lambda: 0.0)
    for _ in range(2):
        limit(None, "warning", {"event": "branch not done", "target": IN})
    with pytest.raises(structlog.DropEvent):
        limit(None, "warning", {"event": "branch not done", "target": IN})
    other = {"event": "branch not done", "target": "http://bank-c/in"}
    assert limit(None, "warning", other) is other
