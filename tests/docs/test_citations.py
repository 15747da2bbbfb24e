"""Citations of dtm's wire: each names a section that the page has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT, pages

PAGE: Final = ROOT / "docs" / "reference" / "dtm-wire.md"
CHECKLIST: Final = ROOT / "tests" / "wire" / "test_checklist.py"
FOLDERS: Final = ("src", "packages", "tests", "benchmarks", "demo", "examples", "scripts")
SUFFIXES: Final = frozenset({".py", ".sql", ".proto", ".go", ".toml"})
_SECTION: Final = re.compile(r'^<a id="dtm-wire-([\d.]+)"></a>\n#{2,3} ([\d.]+) \S', re.MULTILINE)
_NUMBERED: Final = re.compile(r"^#+ \d", re.MULTILINE)
_NAME: Final = re.compile(r"dtm-wire(?!\.md|-\d)")
_NUMBER: Final = re.compile(r"§(\d+(?:\.\d+)*)")
# One number or several, over the ends of lines in comments, too: "§1.2 to §1.4", "§1.3, §1.4".
_NUMBERS: Final = re.compile(rf"\s(?:[#/\s]*{_NUMBER.pattern}(?:,|\s(?:[#/\s]*)(?:to|and)\b)?\s?)+")
_ROW: Final = re.compile(r"^\| (\d+) \|", re.MULTILINE)


def cited(text: str) -> list[str]:
    """Return the sections that a text cites; `""` for the name without a section."""
    found: list[str] = []
    for name in _NAME.finditer(text):
        numbers = _NUMBERS.match(text, name.end())
        found += _NUMBER.findall(numbers[0]) if numbers else [""]
    return found


def sections(text: str) -> set[str]:
    """Return the numbers of a page's sections."""
    return {anchor for anchor, _ in _SECTION.findall(text)}


def files() -> Iterator[Path]:
    """Yield each file that may cite a section, this one left out."""
    found = {file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.suffix in SUFFIXES}
    yield from sorted((found | set(pages())) - {Path(__file__)})


def test_every_section_that_is_cited_is_on_the_page() -> None:
    known = sections(PAGE.read_text())
    every = [(str(file.relative_to(ROOT)), number) for file in files() for number in cited(file.read_text())]

    assert every
    assert [one for one in every if one[1] not in known] == []


def test_anchors_are_the_numbers_of_the_headings() -> None:
    text = PAGE.read_text()
    found = _SECTION.findall(text)

    assert [(anchor, number) for anchor, number in found if anchor != number] == []
    assert len(sections(text)) == len(found) == len(_NUMBERED.findall(text))


def test_rows_of_the_checklist_are_consecutive_and_those_of_its_tests() -> None:
    rows = [int(row) for row in _ROW.findall(PAGE.read_text())]
    tested = {int(row) for row in re.findall(r"^def test_(\d+)_", CHECKLIST.read_text(), re.MULTILINE)}

    assert rows == list(range(1, len(rows) + 1))
    assert tested - set(rows) == set()


def test_each_number_of_a_citation_is_read() -> None:
    assert cited("Source: dtm-wire §1.3, §1.4, §10. RFC 9112 §5") == ["1.3", "1.4", "10"]
    assert cited("# (dtm-wire §1.2 to §1.4)") == ["1.2", "1.4"]
    assert cited("# dtm-wire §5.5\n# and §7 rows") == ["5.5", "7"]
    assert cited("of dtm-wire\n// §2.") == ["2"]


def test_a_citation_without_a_section_is_found() -> None:
    assert cited("as dtm-wire has it; §1") == [""]


def test_the_path_and_the_anchors_of_the_page_are_no_citations() -> None:
    assert cited("[1.2](dtm-wire.md#dtm-wire-1.2)") == []
