"""Rules and decisions: the page's numbers, and the code and tests that it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.docs.pages import ROOT
from tests.faults.table import load

PAGE: Final = ROOT / "docs" / "explanation" / "rules.md"
SOURCE: Final = ROOT / "src" / "twophase"
_SECTION: Final = re.compile(
    r'^<a id="(rule|decision)-(\d+)"></a>\n### (\w+) (\d+): \S[^\n]*\n(.*?)(?=^<a id=|^## |\Z)',
    re.DOTALL | re.MULTILINE,
)
_NAMED: Final = re.compile(r"`([\w./:]+)`")


class Section(msgspec.Struct, frozen=True):
    """One rule or decision: the code and the tests that its text names."""

    kind: str
    number: int
    title: str
    code: tuple[str, ...]
    tests: tuple[str, ...]


def _read(text: str) -> list[Section]:
    sections = []
    for kind, number, title_kind, title_number, body in _SECTION.findall(text):
        _, _, named = body.partition("*Code:*")
        code, _, tests = named.partition("*Tests:*")
        paths = tuple(_NAMED.findall(code)), tuple(_NAMED.findall(tests))
        sections.append(Section(kind, int(number), f"{title_kind.lower()}-{title_number}", *paths))
    return sections


SECTIONS: Final = _read(PAGE.read_text())


def _missing(section: Section) -> list[str]:
    """Return what the section names and the repository does not have."""
    missing = [path for path in section.code if not (SOURCE / path).exists()]
    for named in section.tests:
        path, _, test = named.partition("::")
        file = ROOT / path
        if not file.exists() or (test and not re.search(rf"def {test}\(", file.read_text())):
            missing.append(named)
    return missing


@pytest.mark.parametrize("kind", ["rule", "decision"])
def test_numbers_are_consecutive_and_those_of_the_headings(kind: str) -> None:
    of_kind = [section for section in SECTIONS if section.kind == kind]

    assert [section.number for section in of_kind] == list(range(1, len(of_kind) + 1))
    assert [section.title for section in of_kind] == [f"{kind}-{section.number}" for section in of_kind]
    assert len(of_kind) == len(re.findall(rf"^### {kind} ", PAGE.read_text(), re.MULTILINE | re.IGNORECASE))


def test_every_rule_names_its_code_and_its_tests() -> None:
    rules = [section for section in SECTIONS if section.kind == "rule"]

    assert [rule.number for rule in rules if not (rule.code and rule.tests)] == []


def test_code_and_tests_that_the_page_names_exist() -> None:
    assert [(section.title, missing) for section in SECTIONS if (missing := _missing(section))] == []


def test_a_test_that_was_renamed_is_missing() -> None:
    section = Section("rule", 1, "rule-1", ("core/gone.py",), ("tests/docs/test_rules_page.py::test_gone",))

    assert _missing(section) == [*section.code, *section.tests]


def test_every_planted_fault_is_in_code_that_its_rule_names() -> None:
    """A fault breaks a line that keeps a rule; the rule names its file or folder."""
    code = {section.number: section.code for section in SECTIONS if section.kind == "rule"}
    unnamed = [
        (fault.rule, fault.file)
        for fault in load()
        if isinstance(fault.rule, int) and not _names(code[fault.rule], Path(fault.file).relative_to("src/twophase"))
    ]

    assert unnamed == []


def _names(code: tuple[str, ...], file: Path) -> bool:
    return any(file == Path(path) or Path(path) in file.parents for path in code)
