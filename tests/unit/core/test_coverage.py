"""These tests execute every line and every branch of `twophase.core`.

A new branch needs a test here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NOT_NEEDED = ("cacheprovider", "xdist", "schemathesis", "anyio")
"""Plugins whose import takes as long as half of the tests."""


@pytest.mark.timeout(300)
def test_every_branch_of_core_is_tested(tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_", "COVERAGE_"))},
        "COVERAGE_FILE": str(tmp_path / "coverage"),
        # This test asks only that each line is reached; the run itself asserts what it does.
        "TWOPHASE_TESTS_PROFILE": "twophase-few",
    }
    coverage = [sys.executable, "-m", "coverage"]
    tests = ["pytest", "-q", *(f"-pno:{name}" for name in NOT_NEEDED), str(HERE)]
    tests += [f"--ignore={HERE / name}.py" for name in ("test_coverage", "test_lifecycle_sequences")]

    ran = subprocess.run(
        [*coverage, "run", "--branch", "--source=twophase.core", "-m", *tests],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr

    report = subprocess.run(
        [*coverage, "report", "--fail-under=100", "--show-missing", "--skip-covered"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert report.returncode == 0, report.stdout + report.stderr
