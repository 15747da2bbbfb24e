"""Named instructions at which a test kills a process (see `core.hooks`).

`TWOPHASE_FAILPOINT=name[:nth]` arms one; it is read once, when this module is imported, and an unknown name is
refused at once, so that no crash test passes because of a misspelt failpoint. Every package has call sites, and only an
import-time constant costs them nothing.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from typing import Final

VARIABLE: Final = "TWOPHASE_FAILPOINT"

NAMES: Final[frozenset[str]] = frozenset(
    {
        # producer
        "producer.after_prepare",
        "producer.after_barrier_row",
        "producer.before_commit",
        "producer.after_commit",
        "producer.before_submit",
        "producer.after_submit",
        # coordinator
        "coordinator.request_parsed",
        "coordinator.before_flush",
        "coordinator.after_flush",
        "coordinator.before_acknowledgement",
        "coordinator.after_acknowledgement",
        "coordinator.before_branch_call",
        "coordinator.after_branch_call",
        "coordinator.before_finish",
        "coordinator.after_finish",
        # branch service
        "branch.before_effect",
        "branch.after_effect",
        "branch.before_reply",
        # check-back route
        "check_back.before_insert",
        "check_back.after_insert",
        "check_back.before_reply",
        # Spark's sink: a task, then the driver
        "spark.after_written_down",
        "spark.after_prepare",
        "spark.before_decision",
        "spark.after_decision",
        "spark.amid_submit",
        "spark.before_published",
        "spark.after_published",
    }
)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def parse(setting: str) -> tuple[str, int]:
    """Return the name and the passage (from 1) in a value of `TWOPHASE_FAILPOINT`.

    Raises:
        ValueError: no such failpoint, or the passage is no positive number.

    >>> parse("producer.after_commit:3")
    ('producer.after_commit', 3)
    """
    name, colon, passage = setting.partition(":")
    if name not in NAMES:
        raise ValueError(f"{VARIABLE}: no failpoint {name!r}; there are {', '.join(sorted(NAMES))}")
    if not colon:
        return name, 1
    if not passage.isdecimal() or int(passage) < 1:
        raise ValueError(f"{VARIABLE}: {passage!r} is not a number of a passage; count from 1")
    return name, int(passage)


def armed(setting: str, die: Callable[[], None] = _die) -> Callable[[str], None]:
    """Return the `reach` function for a setting.

    It calls `die` at the given passage of the named failpoint.
    """
    chosen, nth = parse(setting)
    passages = itertools.count(1)

    def reach(name: str) -> None:
        assert name in NAMES, f"failpoint {name!r} is not in the table"
        if name == chosen and next(passages) == nth:
            die()

    return reach


def _disarmed(name: str) -> None:
    """Without a setting nothing ever dies."""


_setting = os.environ.get(VARIABLE, "")
ARMED: Final[bool] = bool(_setting)
reach: Final[Callable[[str], None]] = armed(_setting) if _setting else _disarmed
