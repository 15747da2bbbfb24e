"""The matrix of situations and official clients has a test in every cell."""

from __future__ import annotations

import pytest

from tests.clients.rocketmq.languages import LANGUAGES
from tests.clients.rocketmq.situations import (
    NAMES,
    SITUATIONS,
    Situation,
    driven,
    languages_of,
    situations_table,
    versions_table,
)

WANTED = (
    "happy path",
    "rollback",
    "orphan, committed by another instance",
    "unknown, repeated",
    "producer away for longer than 15 intervals, and back",
    "server `kill -9` and restart",
    "half message sent twice",
    "commit after a check",
    "check answered after the commit",
    "contrary decision",
    "stale receipt",
    "dead letter",
    "FIFO",
    "tags",
    "delay",
    "recall",
)
CELLS = [pytest.param(one, language, id=f"{one.title}-{language}") for one in SITUATIONS for language in NAMES]


def test_every_situation_is_there() -> None:
    assert tuple(one.title for one in SITUATIONS) == WANTED
    assert set(NAMES) == set(LANGUAGES)


@pytest.mark.parametrize(("situation", "language"), CELLS)
def test_every_client_is_driven_in_every_situation(situation: Situation, language: str) -> None:
    assert language in driven(situation)


def test_a_cell_without_a_test_is_seen() -> None:
    one = "restart::a_producer_is_asked_again_after_a_restart"
    assert languages_of(one) == {"python", "node", "java"}
    assert driven(Situation("as an example", (one,))) == {"python", "node", "java"}
    assert languages_of("situations::a_cell_without_a_test_is_seen") == frozenset()
    with pytest.raises(AttributeError):
        languages_of("restart::gone")
    with pytest.raises(ModuleNotFoundError):
        languages_of("gone::gone")


def test_the_tables_name_every_client() -> None:
    heads, rows = situations_table()
    assert heads == ("Situation", *NAMES.values(), "Tests")
    assert [len(row) for row in rows] == [len(heads)] * len(WANTED)
    assert [row for row in rows if "–" in row] == []
    _, versions = versions_table()
    assert [language for language, *_ in versions] == list(NAMES.values())
