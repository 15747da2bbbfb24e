"""Tests that the pages on promises and on threats name, one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.docs.pages import ROOT

PAGES: Final = ("promises", "threat-model")
_NAMED: Final = re.compile(r"`([\w./-]*)(?:::(\w+))?`")


def _named(text: str) -> Iterator[tuple[str, str]]:
    """Yield the file and the name of each test.

    `::name` alone is of the file before it in its line.
    """
    for line in text.splitlines():
        file = ""
        for path, name in _NAMED.findall(line):
            if path.startswith("tests/"):
                file = path
            if name:
                yield path or file, name


def _missing(text: str) -> list[str]:
    return [f"{file}::{name}" for file, name in _named(text) if not _has(file, name)]


def _has(file: str, name: str) -> bool:
    path = ROOT / file
    return path.is_file() and re.search(rf"def {name}\(", path.read_text()) is not None


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_is_named_exists(page: str) -> None:
    text = (ROOT / "docs" / "explanation" / f"{page}.md").read_text()
    assert list(_named(text))
    assert _missing(text) == []


@pytest.mark.parametrize(("table", "least"), [("Threats", 38), ("Weaknesses that were repaired", 26)])
def test_every_threat_and_weakness_names_a_test(table: str, least: int) -> None:
    text = (ROOT / "docs" / "explanation" / "threat-model.md").read_text()
    section = text.partition(f"\n## {table}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= least
    assert [row for row in rows if not list(_named(row))] == []


def test_a_test_that_was_renamed_is_missing() -> None:
    here = "tests/docs/test_named_tests.py"
    assert _missing(f"`{here}::test_gone`, `::test_a_test_that_was_renamed_is_missing`") == [f"{here}::test_gone"]
    assert _missing("`tests/gone.py::test_gone`") == ["tests/gone.py::test_gone"]
