"""Both distributions of the repository carry one version."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SPARK = ROOT / "packages" / "twophase-spark"


def _project(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def test_both_have_one_version_and_one_requires_the_other_by_it() -> None:
    twophase, spark = _project(ROOT), _project(SPARK)
    required = [one for one in spark["dependencies"] if one.startswith("twophase")]

    assert spark["version"] == twophase["version"]
    assert required == [f"twophase[sqlalchemy]=={twophase['version']}"]


def test_both_carry_one_license() -> None:
    assert (SPARK / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_both_are_for_the_same_pythons() -> None:
    assert _project(SPARK)["requires-python"] == _project(ROOT)["requires-python"]
