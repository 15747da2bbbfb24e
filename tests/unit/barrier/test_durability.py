"""A database that may forget a commit is reported where it cannot be refused.

The warning comes once for an engine or alias, and once for each class of connections that are handed over one by one.
"""

from __future__ import annotations

from typing import Any

import pytest

from twophase.barrier.dialect import POSTGRESQL
from twophase.barrier.durability import warn_once


class Engine:
    """An engine that lives as long as a test, with its connections."""

    pool = None


def is_asked(engine: Any) -> bool:
    """Return True when the database is asked; it answers with a danger."""
    steps = warn_once(engine, POSTGRESQL, "barrier")
    if next(steps, None) is None:
        return False
    with pytest.raises(StopIteration):
        steps.send([["fsync is off"]])
    return True


def test_each_engine_and_each_alias_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    one, other = Engine(), Engine()
    assert [is_asked(engine) for engine in (one, other, one)] == [True, True, False]
    assert [is_asked(alias) for alias in ("default", "stock", "default")] == [True, True, False]
    assert len(caplog.records) == 4
    assert {record.__dict__["code"] for record in caplog.records} == {"TP-6003"}


def test_of_connections_handed_over_one_by_one_the_first_stands_for_its_kind() -> None:
    class Connection:
        """A driver's connection."""

    assert [is_asked(Connection()) for _ in range(3)] == [True, False, False]


def test_a_database_that_cannot_be_asked_fails_one_call_only() -> None:
    engine = Engine()
    steps = warn_once(engine, POSTGRESQL, "barrier")
    next(steps)
    with pytest.raises(LookupError):
        steps.throw(LookupError("no such variable"))
    assert not is_asked(engine)
