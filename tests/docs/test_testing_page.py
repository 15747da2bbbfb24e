"""The page on testing one's own service, exactly as a reader copies it: its tests pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, examples

_EXAMPLES = examples(ROOT / "docs" / "how-to" / "test-your-service.md")


def test_tests_of_the_page_pass(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_EXAMPLES["shop"])
    (tmp_path / "test_shop.py").write_text(_EXAMPLES["tests"])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        "test_shop.py",
    ]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{_EXAMPLES['tests'].count('def test_')} passed" in done.stdout
