"""The recognition of a driver's connection in autocommit.

SQLAlchemy 2.0 shows it differently for each driver.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from twophase.barrier.adapters.sqlalchemy import _commits_by_itself


class _Asyncmy:
    def __init__(self, *, autocommit: bool) -> None:
        self._autocommit = autocommit

    def get_autocommit(self) -> bool:
        return self._autocommit


class _AdaptedAsyncmy:
    """SQLAlchemy 2.0's adapter: `autocommit` sets, and nothing asks."""

    def __init__(self, below: _Asyncmy) -> None:
        self.below = below

    def autocommit(self, value: bool) -> None:
        raise AssertionError(value)


@pytest.mark.parametrize("autocommit", [False, True])
def test_asyncmy_is_asked_below_its_adapter(autocommit: bool) -> None:
    dialect = SimpleNamespace(name="mysql", get_driver_connection=lambda adapted: adapted.below)
    pooled = SimpleNamespace(dbapi_connection=_AdaptedAsyncmy(_Asyncmy(autocommit=autocommit)))
    connection: Any = SimpleNamespace(connection=pooled, dialect=dialect)
    assert _commits_by_itself(connection) is autocommit
