"""The tests of one fault, run by pytest in the copy, and what came of them."""

from __future__ import annotations

import enum
import re
import subprocess
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from tests.faults.table import Fault
from tests.faults.tree import Tree

_NOTICED: Final = re.compile(r"^(?:FAILED|ERROR) ((?:src|tests)/.+?)(?: - (.*))?$", re.MULTILINE)
_REASON_MAX: Final = 160
_OPTIONS: Final = ("-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "--color=no")


class Outcome(enum.StrEnum):
    """The fates of a fault."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    BROKEN = "broken"
    """The tests could not even be collected, or pytest itself failed."""


class Result(msgspec.Struct, frozen=True):
    """The outcome of one fault; `by` is the test that failed first."""

    name: str
    rule: int | str
    room: str
    outcome: Outcome
    seconds: float
    by: str = ""
    reason: str = ""


class Ended(msgspec.Struct, frozen=True):
    """The end of a run of pytest, without a `status` where its time was over."""

    status: int | None
    output: str
    seconds: float


def run(tree: Tree, tests: Sequence[str], seconds_max: float, *options: str) -> Ended:
    """Run tests in the copy; one that takes too long is ended with its processes."""
    command = [str(tree.python), "-m", "pytest", *_OPTIONS, *options, *tests]
    began_s = time.monotonic()
    process = tree.start(command)
    status: int | None
    try:
        output, _ = process.communicate(timeout=seconds_max)
        status = process.returncode
    except subprocess.TimeoutExpired:
        tree.abandon()
        output, _ = process.communicate()
        status = None
    except BaseException:
        tree.abandon()
        raise
    return Ended(status, output, time.monotonic() - began_s)


def try_fault(tree: Tree, fault: Fault, seconds_max: float) -> Result:
    """Plant one fault and run its tests."""
    with tree.planted(fault):
        ended = run(tree, fault.tests, seconds_max, f"--timeout={seconds_max / 2:g}")  # so a test that hangs has a name
    outcome, by, reason = judge(ended)
    return Result(fault.name, fault.rule, fault.room, outcome, round(ended.seconds, 1), by, reason)


def judge(ended: Ended) -> tuple[Outcome, str, str]:
    """The outcome, the test that failed first, and its error.

    >>> judge(Ended(1, "F\\nFAILED tests/test_a.py::test_b - assert 1 == 2\\n", 0.1))
    (<Outcome.CAUGHT: 'caught'>, 'tests/test_a.py::test_b', 'assert 1 == 2')
    >>> judge(Ended(0, "1 passed", 0.1))[0], judge(Ended(5, "no tests ran", 0.1))[0], judge(Ended(None, "", 9.0))[0]
    (<Outcome.SURVIVED: 'survived'>, <Outcome.BROKEN: 'broken'>, <Outcome.TIMED_OUT: 'timed out'>)
    """
    if ended.status is None:
        return Outcome.TIMED_OUT, "", ""
    if ended.status == 0:
        return Outcome.SURVIVED, "", ""
    noticed = _NOTICED.search(ended.output)
    by, reason = (noticed[1], noticed[2] or "") if noticed else ("", last_line(ended.output))
    return Outcome.CAUGHT if ended.status == 1 else Outcome.BROKEN, by, reason[:_REASON_MAX]


def last_line(output: str) -> str:
    """The last line that says something."""
    return next((line for line in reversed(output.splitlines()) if line.strip()), "")
