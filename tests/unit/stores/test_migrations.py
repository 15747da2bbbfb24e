"""The numbered files of a folder are its migrations."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.stores.migrations import Migration, released


def test_numbered_files_are_found_and_others_are_not(tmp_path: Path) -> None:
    for name in ("0003_b.sql", "0002_a.sql", "README.md", "2_wrong.sql"):
        (tmp_path / name).write_text(f"-- {name}")

    assert released(tmp_path) == (Migration(2, "-- 0002_a.sql"), Migration(3, "-- 0003_b.sql"))


def test_a_number_left_out_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "0003_b.sql").touch()

    with pytest.raises(AssertionError, match="left out"):
        released(tmp_path)
