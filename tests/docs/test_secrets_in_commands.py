"""No page and no help text shows a secret among the arguments of a command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages
from twophase.core.credentials import holds_password

_CONTINUED = re.compile(r"\\+\n\s*")
_COMMENT = re.compile(r"\s#\s.*")
_COMMAND = re.compile(r"\btwophase (?:server|migrate|barrier|doctor|import|spark)\b(.*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[ =](\S+)")
_SOURCES = [*(ROOT / "src").rglob("*.py"), *ROOT.glob("packages/*/src/**/*.py")]


def _secrets(text: str) -> Iterator[str]:
    """Yield the arguments that hold a secret; standard input is no argument."""
    for line in _CONTINUED.sub(" ", text).splitlines():
        command = _COMMENT.sub("", line.partition("<<<")[0])
        arguments = [one for rest in _COMMAND.findall(command) for one in rest.split()] + _OPTION.findall(command)
        yield from (one for one in arguments if holds_password(one) or one.startswith("alert_webhook=http"))


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("twophase server --store postgresql://me:tiger@db/pay", True),
        ("With `--store postgresql://me:tiger@db/pay` it", True),
        ("twophase spark audit \\\n    --producer bank=mysql://me:tiger@db/pay#barrier", True),
        ("twophase barrier install postgresql://me:tiger@db/pay", True),
        ("twophase server --set alert_webhook=https://hooks.test/services/tiger", True),
        ("twophase server --store file:store-url     # postgresql://me:tiger@db/pay", False),
        ("install -m 600 /dev/stdin store-url <<< 'postgresql://me:tiger@db/pay'", False),
        ("engine = create_engine('postgresql://me@db/pay')", False),
    ],
)
def test_a_secret_is_found_among_the_arguments(text: str, is_found: bool) -> None:
    assert bool(list(_secrets(text))) == is_found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_shows_a_secret_among_the_arguments(page: Path) -> None:
    assert list(_secrets(page.read_text())) == []


def test_no_help_text_shows_a_secret_among_the_arguments() -> None:
    found = {str(file.relative_to(ROOT)): list(_secrets(file.read_text())) for file in _SOURCES}
    assert {file: some for file, some in found.items() if some} == {}
