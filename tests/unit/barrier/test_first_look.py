"""The first look proves a barrier table once for an engine, alias or connection.

A table that was not proven is looked at again.
"""

from __future__ import annotations

from typing import Any

import pytest

from twophase.barrier.dialect import POSTGRESQL
from twophase.barrier.first_look import look_once
from twophase.core.errors import BarrierTableUnusable

FLAW = ["key", "it has no unique key"]


class Lasting:
    """An engine, or a connection, that allows weak references."""

    pool = None


def is_proven(engine: Any, flaws: list[list[str]]) -> bool:
    """Return True when the table is looked at now; it has these flaws."""
    steps = look_once(engine, POSTGRESQL, "barrier")
    statement = next(steps, None)
    if statement is None or "pg_index" not in statement.sql:
        steps.close()
        return False
    if flaws:
        with pytest.raises(BarrierTableUnusable, match="TP-6006"):
            steps.send(flaws)
        return True
    # The question about durability follows; it, too, is asked once an engine.
    steps.send([])
    steps.close()
    return True


@pytest.mark.parametrize("engine", [Lasting(), "an alias that only this test uses"], ids=["engine", "alias"])
def test_a_table_is_looked_at_until_it_is_proven_and_then_no_more(engine: Any) -> None:
    assert [is_proven(engine, [FLAW]) for _ in range(2)] == [True, True]
    assert [is_proven(engine, []) for _ in range(2)] == [True, False]


def test_each_engine_is_looked_at_by_itself() -> None:
    assert [is_proven(engine, []) for engine in (Lasting(), Lasting())] == [True, True]
