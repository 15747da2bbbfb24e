"""The end of a run: its closing line is the last one.

No part is left untested without a report.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.servers.missing import REQUIRE_VARIABLE

ROOT = Path(__file__).parents[2]
_TESTS = """
import pytest
from tests.servers.missing import not_tested

def test_that_passes():
    pass

def test_that_fails():
    assert False

@pytest.mark.parametrize("number", range(3))
def test_that_lacks_something(number):
    not_tested("A thing", "it is not there")
"""
_NOWHERE = """
from tests.servers.missing import not_to_be_had

def test_that_lacks_what_no_machine_has():
    not_to_be_had("A dream", "nobody publishes it")
"""


def _run(folder: Path, tests: str = _TESTS, **environment: str) -> list[str]:
    (folder / "test_some.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "tests.servers.summary", str(folder)]
    inherited = {name: value for name, value in os.environ.items() if name != REQUIRE_VARIABLE}
    done = subprocess.run(
        command, cwd=ROOT, env=inherited | environment, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.splitlines()


def test_the_last_line_holds_the_counts(tmp_path: Path) -> None:
    assert _run(tmp_path)[-1] == "1 passed, 1 failed, 3 skipped"


def test_what_was_not_tested_stands_in_a_section_with_its_reason(tmp_path: Path) -> None:
    lines = _run(tmp_path)
    assert any("NOT TESTED ON THIS MACHINE" in line for line in lines)
    assert "3 tests not run. A thing: it is not there" in lines


def test_when_everything_is_required_nothing_is_skipped(tmp_path: Path) -> None:
    assert _run(tmp_path, **{REQUIRE_VARIABLE: "all"})[-1] == "1 passed, 4 failed, 0 skipped"


def test_what_is_to_be_had_nowhere_is_reported_and_fails_nothing(tmp_path: Path) -> None:
    lines = _run(tmp_path, _NOWHERE, **{REQUIRE_VARIABLE: "all"})
    assert "1 tests not run. A dream: nobody publishes it" in lines
    assert lines[-1] == "0 passed, 0 failed, 1 skipped"
