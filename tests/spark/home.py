"""A home of Spark whose Python workers import compiled modules.

PySpark's own home gives them an archive of its sources, and each worker compiles what it imports from it: 0.3 seconds
of a processor's time, hundreds of times in a test run. This home has the same programs and classes and no archive, so
that they import the installed PySpark.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyspark

_FOLDER = Path(__file__).parents[2] / ".servers" / "spark-home"
_PARTS = ("bin", "jars")
"""The parts of a home that a driver needs."""


def use() -> None:
    """Let every Spark started from here on have this home, unless another one is set."""
    os.environ.setdefault("SPARK_HOME", str(made()))


def made() -> Path:
    """Return the home; make it first where it is not of this PySpark."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    for name in _PARTS:
        there = Path(pyspark.__file__).parent / name
        link = _FOLDER / name
        if not link.is_symlink() or link.readlink() != there:
            new = _FOLDER / f"{name}-{os.getpid()}"
            new.symlink_to(there)
            new.replace(link)  # at once: several processes may make it
    return _FOLDER
