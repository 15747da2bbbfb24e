"""A database's URL as an operator types it."""

from __future__ import annotations

import pytest

from twophase.cli.database_url import read_url
from twophase.core.errors import ConfigurationError


@pytest.mark.parametrize("name", ["postgresql+psycopg3", "mysql+oursql", "sqlite+sqlite3", "postgresql+"])
def test_a_driver_that_sqlalchemy_does_not_know_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="SQLAlchemy knows no ") as refused:
        read_url(f"{name}://eve:hunter2@db/bank")
    assert name in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("name", ["postgresql", "postgresql+psycopg", "postgresql+asyncpg", "mysql", "mariadb+pymysql"])
def test_a_driver_that_sqlalchemy_knows_passes(name: str) -> None:
    assert read_url(f"{name}://eve:hunter2@db/bank").database == "bank"
