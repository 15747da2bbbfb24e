"""Failpoints: nothing when unset, death at exactly the named passage.

A misspelt name fails a test instead of letting it pass.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from types import ModuleType

import pytest

from twophase.core import failpoint

NAME = "producer.after_commit"


def _loaded_with(setting: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load a second copy of the module, as in a process started with that setting."""
    monkeypatch.setenv(failpoint.VARIABLE, setting)
    assert failpoint.__file__ is not None
    spec = importlib.util.spec_from_file_location("failpoint_copy", failpoint.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_unset_it_is_off_and_reaching_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    off = _loaded_with("", monkeypatch)

    assert off.ARMED is False
    off.reach(NAME)


def test_set_it_is_armed_and_dies_by_sigkill(monkeypatch: pytest.MonkeyPatch) -> None:
    kills: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: kills.append((pid, number)))
    on = _loaded_with(NAME, monkeypatch)

    assert on.ARMED is True
    on.reach(NAME)
    assert kills == [(os.getpid(), signal.SIGKILL)]


@pytest.mark.parametrize(
    ("setting", "deaths"),
    [(NAME, [1]), (f"{NAME}:1", [1]), (f"{NAME}:3", [3]), (f"{NAME}:03", [3]), ("branch.before_reply", [])],
)
def test_it_dies_at_the_named_passage_and_at_no_other(setting: str, deaths: list[int]) -> None:
    died: list[int] = []
    passage = 0
    reach = failpoint.armed(setting, lambda: died.append(passage))

    for passage in range(1, 6):  # noqa: B007 -- the lambda above reads it
        reach(NAME)
        reach("producer.before_commit")

    assert died == deaths


@pytest.mark.parametrize("setting", ["", "nowhere", ":1", NAME.upper(), f" {NAME}"])
def test_an_unknown_name_is_refused_with_the_names_there_are(setting: str) -> None:
    with pytest.raises(ValueError, match=r"branch\.after_effect"):
        failpoint.parse(setting)


@pytest.mark.parametrize("passage", ["", "0", "00", "-1", "x", "1.5", "1:2"])
def test_a_passage_that_never_comes_is_refused(passage: str) -> None:
    with pytest.raises(ValueError, match="count from 1"):
        failpoint.parse(f"{NAME}:{passage}")


def test_a_call_site_with_a_misspelt_name_fails() -> None:
    with pytest.raises(AssertionError, match="not in the table"):
        failpoint.armed(NAME)("producer.after_comit")


def test_a_real_process_dies_by_sigkill() -> None:
    code = f"from twophase.core import failpoint; failpoint.reach({NAME!r}); print('alive')"
    environment = {**os.environ, failpoint.VARIABLE: NAME}

    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False, timeout=60)

    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b"")
