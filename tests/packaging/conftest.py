"""Wheels of both distributions, built once, and environments to install them in."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Wheels(NamedTuple):
    """The files that would be uploaded."""

    twophase: Path
    spark: Path


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Both wheels, built from this checkout without a package index."""
    folder = tmp_path_factory.mktemp("wheels")
    _pip(
        "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT, ROOT / "packages" / "twophase-spark"
    )
    (twophase,), (spark,) = folder.glob("twophase-*.whl"), folder.glob("twophase_spark-*.whl")
    return Wheels(twophase, spark)


def installed(folder: Path, *wheels: Path) -> Path:
    """Make an environment with these wheels and all foreign packages.

    Returns its Python.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    packages = Path(found.stdout.strip())
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "twophase" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    _pip("--python", python, "install", "--no-deps", *wheels)
    return python


def _pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
