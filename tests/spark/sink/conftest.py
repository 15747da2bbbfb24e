"""A harness with SQLite, or with everything on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.database import Database
from tests.spark.sink.harness import Harness, running_harness
from tests.support.secret_files import secret_in


def sqlite_places(folder: Path) -> tuple[str, str]:
    """Return store and ledger."""
    return f"sqlite:///{folder / 'store.db'}", f"sqlite:///{folder / 'ledger.db'}"


@pytest.fixture
def sqlite_scene(tmp_path: Path) -> Iterator[Harness]:
    with running_harness(tmp_path, *sqlite_places(tmp_path)) as harness:
        yield harness


@pytest.fixture
def postgres_scene(tmp_path: Path, postgres_database: Database) -> Iterator[Harness]:
    ledger = secret_in(tmp_path / "ledger-url", postgres_database.dsn)
    with running_harness(tmp_path, postgres_database.dsn, ledger) as harness:
        yield harness


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def harness(request: pytest.FixtureRequest) -> Harness:
    """Each engine."""
    found: Harness = request.getfixturevalue(f"{request.param}_scene")
    return found
