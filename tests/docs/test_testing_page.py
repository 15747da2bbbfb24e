"""The page on testing a service, exactly as a reader copies it: its tests pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, examples

_EXAMPLES = examples(ROOT / "docs" / "how-to" / "test-your-service.md")


def _run(folder: Path, name: str, example: str) -> None:
    (folder / name).write_text(_EXAMPLES[example])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), name]

    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    count = _EXAMPLES[example].count("def test_") + _EXAMPLES[example].count('"run", [1, 2]')
    assert f"{count} passed" in done.stdout


def test_tests_of_the_page_pass(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_EXAMPLES["shop"])

    _run(tmp_path, "test_shop.py", "tests")


def test_tests_that_roll_back_pass(tmp_path: Path) -> None:
    _run(tmp_path, "test_rollback.py", "rollback")
