"""The wheels' contents, and their commands in an environment of their own."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, Wheels, installed

pytestmark = pytest.mark.long


def _files(wheel: Path) -> set[str]:
    """Everything in a wheel but what describes it."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def _written(folder: Path) -> set[str]:
    """Everything below a folder of sources, as a wheel names it."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in found}


def _description(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            name.partition(".dist-info/")[2]: archive.read(name).decode()
            for name in archive.namelist()
            if ".dist-info/" in name
        }


def _run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, *arguments], capture_output=True, text=True, check=False, cwd=python.parent)


def test_each_wheel_holds_its_package_whole_and_nothing_else(wheels: Wheels) -> None:
    assert _files(wheels.twophase) == _written(ROOT / "src")
    assert _files(wheels.spark) == _written(ROOT / "packages" / "twophase-spark" / "src")


def test_each_wheel_has_one_package_which_has_types_and_a_license(wheels: Wheels) -> None:
    for wheel, package in ((wheels.twophase, "twophase"), (wheels.spark, "twophase_spark")):
        assert {name.partition("/")[0] for name in _files(wheel)} == {package}
        assert f"{package}/py.typed" in _files(wheel)
        assert _description(wheel)["licenses/LICENSE"] == (ROOT / "LICENSE").read_text()


def test_no_wheel_has_tests(wheels: Wheels) -> None:
    names = _files(wheels.twophase) | _files(wheels.spark)
    assert [name for name in names if {"tests", "conftest.py"} & set(Path(name).parts)] == []


def test_both_together_are_imported_from_the_wheels_and_have_the_command(wheels: Wheels, tmp_path: Path) -> None:
    python = installed(tmp_path / "both", wheels.twophase, wheels.spark)

    helped = _run(python, "-m", "twophase", "spark", "audit", "--help")
    imports = "import twophase, twophase_spark.reports.page, twophase_spark.sink.database"
    found = _run(python, "-c", f"{imports}; print(twophase.__file__, twophase_spark.__file__, sep='\\n')")

    assert (helped.returncode, helped.stderr) == (0, "")
    assert "twophase spark audit [OPTIONS]" in helped.stdout
    assert [Path(line).is_relative_to(tmp_path) for line in found.stdout.splitlines()] == [True, True]


def test_twophase_alone_names_the_package_that_brings_spark(wheels: Wheels, tmp_path: Path) -> None:
    python = installed(tmp_path / "alone", wheels.twophase)

    listed = _run(python, "-m", "twophase", "--help")
    asked = _run(python, "-m", "twophase", "spark", "audit", "--help")

    assert "Audit, archive, query and publish with Spark." in listed.stdout
    assert (asked.returncode, asked.stdout) == (2, "")
    assert asked.stderr == (
        "twophase spark: the package twophase-spark is not installed. Run: pip install twophase-spark\n"
    )
