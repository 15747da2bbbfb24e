"""`twophase spark bundle`: both twophase packages as one zip for `--py-files`.

Source and sink need it. Python finds modules inside a zip, but no compiled ones: the packages that this one depends on
(PyArrow, msgspec, the databases' drivers) must be in the executors' Python already. The same packages give the same
bytes.
"""

from __future__ import annotations

import importlib.metadata
import os
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec

from twophase.core.errors import ConfigurationError

NEEDED = ("msgspec", "pandas", "pyarrow", "pyspark")
"""Packages that every executor needs."""
DRIVERS = ("adbc-driver-postgresql", "adbc-driver-sqlite", "psycopg", "pymysql")
"""Packages for executors that read such a database.

PostgreSQL needs one of the first and the third.
"""
_PACKAGES = ("twophase", "twophase_spark")
_LEFT_OUT = frozenset({"__pycache__", "cli", "server", "testing"})
_NO_TIME = (1980, 1, 1, 0, 0, 0)


class Bundle(msgspec.Struct, frozen=True):
    """The zip, and the versions that executors should have too."""

    path: Path
    files: int
    size_bytes: int
    versions: dict[str, str]


def bundle(path: Path) -> Bundle:
    """Write the zip, whole or not at all.

    Raises:
        ConfigurationError: there is no such folder, or it cannot be written.
    """
    written = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    try:
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
            for package in _PACKAGES:
                for name, content in _contents(files(package), package):
                    archive.writestr(zipfile.ZipInfo(name, _NO_TIME), content, zipfile.ZIP_DEFLATED)
                    count += 1
        written.rename(path)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from None
    return Bundle(path, count, path.stat().st_size, versions())


def versions() -> dict[str, str]:
    """Return the installed versions of the packages that executors need."""
    found = {}
    for name in (*NEEDED, *DRIVERS):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _contents(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.name in _LEFT_OUT:
            continue
        if entry.is_dir():
            yield from _contents(entry, f"{name}/{entry.name}")
        else:
            yield f"{name}/{entry.name}", entry.read_bytes()
