"""A scene with SQLite, or with everything on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.database import Database
from tests.spark.sink.scene import Scene, staged


def sqlite_places(folder: Path) -> tuple[str, str]:
    """Return store and ledger."""
    return f"sqlite:///{folder / 'store.db'}", f"sqlite:///{folder / 'ledger.db'}"


@pytest.fixture
def sqlite_scene(tmp_path: Path) -> Iterator[Scene]:
    with staged(tmp_path, *sqlite_places(tmp_path)) as scene:
        yield scene


@pytest.fixture
def postgres_scene(tmp_path: Path, postgres_database: Database) -> Iterator[Scene]:
    reference = tmp_path / "ledger-url"
    reference.write_text(postgres_database.dsn)
    with staged(tmp_path, postgres_database.dsn, f"file:{reference}") as scene:
        yield scene


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def scene(request: pytest.FixtureRequest) -> Scene:
    """Each engine."""
    found: Scene = request.getfixturevalue(f"{request.param}_scene")
    return found
