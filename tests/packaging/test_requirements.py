"""`requirements/*.txt` lock what both distributions declare.

Every file has a hash.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT = Path(__file__).parents[2]
_LOCKED = sorted(_ROOT.glob("requirements/*.txt"))
_ONE = re.compile(
    r"^([A-Za-z0-9._-]+)==([^ ]+)(?: ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)


def _versions(name: str) -> dict[str, str]:
    text = (_ROOT / "requirements" / f"{name}.txt").read_text()
    return {canonicalize_name(found[1]): found[2] for found in _ONE.finditer(text)}


def _declared(folder: str, *extras: str) -> list[Requirement]:
    """Return what a distribution needs, with these of its extras or with all."""
    project = tomllib.loads((_ROOT / folder / "pyproject.toml").read_text())["project"]
    found = list(project["dependencies"])
    for name, needed in project["optional-dependencies"].items():
        found += needed if name in extras or not extras else []
    return [one for one in map(Requirement, found) if not one.name.startswith("twophase")]


@pytest.mark.parametrize("file", _LOCKED, ids=lambda file: file.name)
def test_every_line_is_a_version_with_its_hashes(file: Path) -> None:
    text = file.read_text()
    assert _ONE.search(text)
    rest = _ONE.sub("", text)
    assert [line for line in rest.splitlines() if not line.startswith("#")] == []


@pytest.mark.parametrize("file", _LOCKED, ids=lambda file: file.name)
def test_no_address_is_written(file: Path) -> None:
    assert "://" not in file.read_text()


def test_what_is_declared_is_locked_at_a_version_that_is_allowed() -> None:
    locked = _versions("develop") | _versions("java")
    group = tomllib.loads((_ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    declared = [*_declared("."), *_declared("packages/twophase-spark"), *map(Requirement, group)]
    assert [one.name for one in declared if canonicalize_name(one.name) not in locked] == []
    assert [str(one) for one in declared if locked[canonicalize_name(one.name)] not in one.specifier] == []


@pytest.mark.parametrize("name", ["server", "spark", "build"])
def test_an_operator_gets_the_versions_that_were_tested(name: str) -> None:
    tested = _versions("develop")
    assert {one: version for one, version in _versions(name).items() if tested.get(one, version) != version} == {}


@pytest.mark.parametrize(
    ("name", "folder", "extras"),
    [
        ("server", ".", ("server", "postgres", "grpc")),
        ("spark", "packages/twophase-spark", ("sqlite", "postgres", "mysql", "openlineage")),
    ],
)
def test_an_operators_list_has_what_is_needed(name: str, folder: str, extras: tuple[str, ...]) -> None:
    needed = {canonicalize_name(one.name) for one in _declared(folder, *extras)}
    assert needed
    assert needed - set(_versions(name)) == set()
