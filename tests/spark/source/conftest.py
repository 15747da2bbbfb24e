"""The stores of both engines, one test after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.database import Database
from tests.spark.source.stores import BORN_MS, PostgresUnderTest, SqliteUnderTest, StoreUnderTest


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut tables of a few hundred rows as those of millions are cut."""
    for module in ("partitions.ranges", "partitions.planning", "stream"):
        monkeypatch.setattr(f"twophase_spark.source.{module}.ROWS_PER_PART_MIN", 20)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all that the stores hold lie in the past, so that `asOf` may name its times."""
    monkeypatch.setattr("twophase_spark.source.options.read_options.now_ms", lambda: BORN_MS + 3_600_000)


@pytest.fixture
def sqlite_store(tmp_path: Path) -> SqliteUnderTest:
    return SqliteUnderTest(tmp_path)


@pytest.fixture
def postgres_store(tmp_path: Path, postgres_database: Database) -> PostgresUnderTest:
    return PostgresUnderTest(tmp_path, postgres_database.dsn)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest) -> StoreUnderTest:
    """Each engine."""
    found: StoreUnderTest = request.getfixturevalue(f"{request.param}_store")
    return found
