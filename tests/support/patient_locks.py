"""Check-backs and branches that wait long for a database on a busy machine.

Their usual bound, a second and a half for a statement, holds in production, where an answer in time is worth more than
a verdict. A test that wants a verdict has the time; one about the bound names it.
"""

from __future__ import annotations

import pytest

from twophase.barrier import branch
from twophase.barrier.asking import acheck_back, check_back

_LOCK_S = 30.0


def wait_for_locks(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Make `seconds` the default bound."""
    for function in (check_back, acheck_back):
        assert function.__kwdefaults__ is not None
        monkeypatch.setitem(function.__kwdefaults__, "lock_timeout", seconds)
    monkeypatch.setattr(branch, "LOCK_TIMEOUT_MS", int(seconds * 1000))


@pytest.fixture(autouse=True)
def patient_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the patient bound the default."""
    wait_for_locks(monkeypatch, _LOCK_S)
