"""The stores of both engines, as in the tests of the source, and the shared Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.lake.archiving import Archive
from tests.spark.source.conftest import postgres_store, sqlite_store, store

__all__ = ["postgres_store", "sqlite_store", "store"]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "lake")
