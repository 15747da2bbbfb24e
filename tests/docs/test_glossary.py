"""The glossary: one meaning for each term, and every term in use."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, links

PAGE = ROOT / "docs" / "glossary.md"
_TERM = re.compile(r"^\*\*([^*]+)\*\*: (.+?)\n(?=\n)", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"^\| `([^`]+)` \| (.+) \|$", re.MULTILINE)

TERMS = _TERM.findall(PAGE.read_text(encoding="utf-8"))
"""Each term with its meaning, in the order of the page."""
WORDS = _WORD.findall(PAGE.read_text(encoding="utf-8"))
"""Each word that is not used, with what to use instead, in the order of the page."""


def text_of_source_and_pages() -> str:
    """Read source and pages but the glossary, with identifiers divided into words."""
    files = [file for folder in ("src", "packages") for file in sorted((ROOT / folder).rglob("*.py"))]
    files += [page for page in sorted((ROOT / "docs").rglob("*.md")) if page != PAGE]
    text = " ".join(file.read_text(encoding="utf-8") for file in files)
    names = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", text)
    return re.sub(r"[\s_-]+", " ", names).lower()


def contains(text: str, word: str) -> bool:
    """Find a word or its plural."""
    return re.search(rf"\b{re.escape(word)}(s|es|ed)?\b", text.lower()) is not None


def test_the_terms_are_sorted_and_each_has_one_meaning() -> None:
    terms = [term for term, _ in TERMS]

    assert terms == sorted(terms)
    assert [term for term, count in Counter(terms).items() if count > 1] == []


def test_every_bold_beginning_is_a_term() -> None:
    assert len(TERMS) == len(re.findall(r"^\*\*", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_a_meaning_is_one_or_two_sentences() -> None:
    sentences = {term: len(re.findall(r"[.?!](?=\s|$)", meaning)) for term, meaning in TERMS}

    assert {term: count for term, count in sentences.items() if count not in {1, 2}} == {}


def test_every_term_is_used_in_source_or_pages() -> None:
    text = text_of_source_and_pages()

    assert [term for term, _ in TERMS if not contains(text, term.replace("-", " "))] == []


def test_the_words_not_used_are_sorted_and_none_is_a_term() -> None:
    words = [word for word, _ in WORDS]

    assert words == sorted(set(words))
    assert {word for word, _ in WORDS} & {term for term, _ in TERMS} == set()


def test_no_meaning_needs_a_word_that_is_not_used() -> None:
    found = [(term, word) for term, meaning in TERMS for word, _ in WORDS if contains(meaning, word)]

    assert found == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/README.md"])
def test_the_glossary_is_linked(page: str) -> None:
    path = ROOT / page

    assert PAGE in [Path(path.parent / link).resolve() for link in links(path) if "://" not in link]
