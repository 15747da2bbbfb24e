"""The table of CONTRIBUTING names the files of plausible changes, and it is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src/twophase"
FILES_MAX = 4
HISTORY_FILES_MAX = 5
"""The files of a column in one engine: its own SQL writes, reads and migrates it."""


def _rows() -> list[tuple[str, list[str], str]]:
    _, _, section = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("\n## Where a change goes\n")
    table, _, _ = section.partition("\n## ")
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return [(change, re.findall(r"`([^`]+)`", files), example.strip("`")) for change, files, example in lines[1:]]


ROWS = _rows()


def test_ten_changes_have_a_row() -> None:
    assert len(ROWS) >= 10


@pytest.mark.parametrize(("change", "files", "example"), ROWS, ids=[row[0] for row in ROWS])
def test_files_of_a_change_hold_its_example(change: str, files: list[str], example: str) -> None:
    edited = [name for name in files if (SOURCE / name).is_file()]
    others = [name for name in files if name not in edited]
    assert all((SOURCE / name).is_dir() or (SOURCE / "barrier/dialects" / name).is_dir() for name in others), others
    missing = [name for name in edited if not re.search(rf"\b{example}\b", (SOURCE / name).read_text())]
    assert missing == []
    assert 1 <= len(edited) <= (HISTORY_FILES_MAX if change.startswith("the same, on") else FILES_MAX)


def test_every_file_of_a_small_example_is_named() -> None:
    """Examples whose name is used for nothing else are in no other file."""
    for change, files, example in ROWS:
        if example in {"JsonRpcDestination", "PymysqlTransaction", "check_backs", "ServerStatus"}:
            found = {
                path.relative_to(SOURCE).as_posix()
                for path in SOURCE.rglob("*.py")
                if re.search(rf"\b{example}\b", path.read_text())
            }
            assert found == set(files), change
