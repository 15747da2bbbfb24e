"""The documentation agrees with itself and with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import reference
from tests.docs.pages import ROOT, anchors, links, pages, tracked_files
from twophase import AsyncClient, Client, Message, TwophaseError

_NAMES = [str(page.relative_to(ROOT)) for page in pages()]


@pytest.mark.parametrize("name", _NAMES)
def test_links_resolve(name: str) -> None:
    page = ROOT / name
    broken = []
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_listed_in_an_index() -> None:
    indexed = {
        (index.parent / link.partition("#")[0]).resolve()
        for index in (ROOT / "docs" / "README.md", ROOT / "docs" / "adr" / "README.md")
        for link in links(index)
    }
    written = {page for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"}
    assert written - indexed == set()


@pytest.mark.parametrize("path", sorted(reference.REFERENCE.glob("*.md")), ids=lambda path: path.name)
def test_generated_tables_are_up_to_date(path: Path) -> None:
    assert path.read_text() == reference.renewed(path.read_text()), "run `make docs`"


@pytest.mark.parametrize("name", _NAMES)
def test_each_row_of_a_generated_table_is_one_line(name: str) -> None:
    blocks = re.findall(r"<!-- generated: \w+ -->\n(.*?)<!-- end -->", (ROOT / name).read_text(), re.DOTALL)
    lines = [line for block in blocks if block.startswith("|") for line in block.split("\n") if line]
    assert [line for line in lines if not (line.startswith("|") and line.endswith("|"))] == []


@pytest.mark.parametrize("public", [Client, AsyncClient, Message, TwophaseError])
def test_the_page_of_the_client_names_every_public_member(public: type) -> None:
    page = (ROOT / "docs" / "reference" / "client.md").read_text()
    members = {name for name in dir(public) if not name.startswith("_")} - set(dir(Exception))
    members |= set(public.__annotations__) - {"concerns_a_message"}
    assert sorted(name for name in members - {"concerns_a_message"} if f"`{name}" not in page) == []


def test_every_error_code_is_unique_and_documented() -> None:
    codes = [cls.code for cls in reference.error_classes()]
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert len(codes) == len(set(codes))
    assert [code for code in codes if f"`{code}`" not in page] == []


def test_codes_named_in_prose_exist() -> None:
    codes = {cls.code for cls in reference.error_classes()}
    named = {code for page in pages() for code in re.findall(r"TP-\d{4}", page.read_text())}
    assert named - codes == set()


def test_files_and_settings_named_in_prose_exist() -> None:
    """Paths of tests in the pages on promises and on decisions must exist."""
    missing = [
        (page.name, path)
        for page in pages()
        for path in re.findall(r"`(tests/[\w/.-]+)`", page.read_text())
        if not (ROOT / path).exists()
    ]
    assert missing == []


# A class of one character, so that this file does not find itself.
_FOREIGN = re.compile(r"[p]ypi\.org|[p]ythonhosted\.org|[r]egistry\.npm|[/]root/|[/]work/|[/]opt/wheels")


def test_no_registry_and_no_machine_is_named() -> None:
    """Nothing in the repository may depend on one package index or one machine."""
    found = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except (UnicodeDecodeError, FileNotFoundError):  # no text; or deleted since: others work in this folder, too
            continue
        found += [(str(path.relative_to(ROOT)), match[0]) for match in _FOREIGN.finditer(text)]
    assert found == []


def test_importing_the_client_loads_no_dependency_of_the_server() -> None:
    program = "import sys, twophase; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"uvloop", "uvicorn", "starlette", "typer", "rich", "structlog", "prometheus_client", "jinja2"}
    heavy |= {"sqlalchemy", "fastapi", "flask", "django", "pyspark", "pandas", "asyncpg", "psycopg", "pymysql"}
    assert set(done.stdout.split()) & heavy == set()
