"""The counts of unclear English: what is found, and that no count grows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from scripts import prose
from scripts.prose import Finding

FILE = prose.ROOT / "src" / "twophase" / "core" / "example.py"
PAGE = prose.ROOT / "docs" / "example.md"


def found(source: str) -> list[Finding]:
    """Find what counts in a module."""
    return prose.findings_in_python(FILE, dedent(source))[1]


def kinds(source: str) -> list[tuple[int, str]]:
    """Find lines and kinds in a module."""
    return [(one.line, one.kind) for one in found(source)]


@pytest.mark.parametrize("word", ["What", "Whether", "How", "Who", "Of", "As"])
def test_a_headless_beginning_is_found(word: str) -> None:
    assert kinds(f'"""{word} it does."""') == [(1, "headless"), (1, "marked")]


@pytest.mark.parametrize("marker", prose.MARKERS, ids=lambda marker: marker.name)
def test_every_marker_finds_its_own_name(marker: prose.Marker) -> None:
    assert [one.name for one in found(f'"""Notify {marker.name} here."""')] == [marker.name]


def test_a_plain_docstring_has_no_findings() -> None:
    assert found('"""Return the oldest message that is not finished."""') == []


def test_texts_under_attributes_of_classes_and_modules_are_read() -> None:
    source = '''
        """Limits."""
        LIMIT = 1
        """Whether it is."""
        class Row:
            """A row."""
            due_ms: int
            """What was said."""
        '''

    assert kinds(source) == [(4, "headless"), (4, "marked"), (8, "headless"), (8, "marked"), (8, "marked")]


def test_a_string_that_is_no_docstring_is_not_read() -> None:
    assert found('"""A module."""\nprint("nobody")\n"nobody, after a call"') == []


def test_code_within_a_docstring_is_not_read() -> None:
    assert found('"""Return `said`.\n\n>>> nobody = 1\n"""') == []


def test_a_first_line_above_eighty_characters_is_found() -> None:
    allowed, above = f'"""{"x" * 80}\n\nMore."""', f'"""{"x" * 81}\n\nMore."""'

    assert (kinds(allowed), kinds(above)) == ([], [(1, "long")])


def test_lines_of_a_page_are_found_but_not_its_code() -> None:
    page = "# What it does\n\n```\nnobody\n```\n\nAs nobody\nis `told`, a text.\n"

    assert [(one.line, one.name) for one in prose.findings_in_page(PAGE, page)] == [(7, "nobody")]


def test_a_docstring_counts_once_however_many_markers_it_has() -> None:
    findings = [("twophase.core", one) for one in found('"""What nobody said."""')]

    assert prose.Report(findings, Counter()).counts() == {"twophase.core": {"headless": 1, "marked": 1}}


@pytest.mark.parametrize(
    ("file", "package"),
    [
        ("src/twophase/stores/sqlite/writer.py", "twophase.stores"),
        ("src/twophase/__init__.py", "twophase"),
        ("packages/one/src/one_more/audit/rows.py", "one_more.audit"),
        ("tests/unit/core/test_gid.py", "tests.unit"),
        ("docs/how-to/topics.md", "docs/how-to"),
        ("README.md", "pages"),
    ],
)
def test_a_file_belongs_to_a_package_of_two_levels(file: str, package: str) -> None:
    assert prose.package_of(prose.ROOT / file) == package


@pytest.fixture
def ratchet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a ratchet of two packages into a temporary folder."""
    file = tmp_path / "prose.toml"
    file.write_text(prose.ratchet_text({"a": {"marked": 3, "long": 2}, "b": {"marked": 1}}))
    monkeypatch.setattr(prose, "RATCHET", file)
    return file


def test_an_update_lowers_the_ratchet(ratchet: Path) -> None:
    assert prose.update({"a": {"marked": 2}}, moved=False) == []
    assert prose.ratchet() == {"a": {"marked": 2}}


def test_an_update_raises_no_count(ratchet: Path) -> None:
    before = ratchet.read_text()

    assert prose.update({"a": {"marked": 1}, "b": {"marked": 2}}, moved=False) == ["b: 2 marked, 1 are allowed"]
    assert ratchet.read_text() == before


def test_an_update_after_a_move_lets_a_package_grow_but_no_sum(ratchet: Path) -> None:
    assert prose.update({"c": {"marked": 5}}, moved=True) == ["all packages: 5 marked, 4 are allowed"]
    assert prose.update({"c": {"marked": 4}}, moved=True) == []
    assert prose.ratchet() == {"c": {"marked": 4}}


def test_no_count_of_the_repository_grows() -> None:
    larger = prose.larger(prose.everything().counts(), prose.ratchet())

    assert larger == [], "`scripts/prose PATH` lists each; after a move of files: `scripts/prose --update --moved`"
