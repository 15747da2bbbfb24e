"""The common part of the Python banks: a branch, and the lines for a test.

The branch refuses or waits as its payload says.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter

import msgspec

from tests.clients.orders import Payload

MEETS_WITHIN_S = 2.0


class Refused(Exception):
    """A refusal of this call."""


class Behaviour:
    """A count of the calls of each message, for several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._refused: Counter[str] = Counter()
        self._present: Counter[str] = Counter()

    def follow(self, gid: str, branch_id: str, payload: Payload) -> None:
        """Refuse, wait for the others, or continue.

        Raises:
            Refused: as the payload wants it.
            TimeoutError: the other calls did not come.
        """
        with self._changed:
            if self._refused[gid + branch_id] < payload.refusals:
                self._refused[gid + branch_id] += 1
                raise Refused
            if not payload.meet:
                return
            self._present[gid] += 1
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._present[gid] >= payload.meet, MEETS_WITHIN_S):
                self._present[gid] -= 1
                raise TimeoutError(f"{payload.meet} calls of {gid} were to be here at once")


def say(line: msgspec.Struct) -> None:
    """Print one line that the test reads."""
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


def end_with_the_test() -> None:
    """Return when the process that started this one has ended.

    Standard input is a pipe from there.
    """
    sys.stdin.read()
