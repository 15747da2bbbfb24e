"""Each planted mistake, in the table or in the rules, is caught.

The promise that it breaks is the one expected.
"""

from __future__ import annotations

import pytest

from twophase.core.lifecycle import Event, State, transition

from .explore import explore
from .mutations import RULE_MUTATIONS, TABLE_MUTATIONS, Mutation
from .rules import Rules, Size
from .worlds import WORLDS

ALL = (*TABLE_MUTATIONS, *RULE_MUTATIONS)
SIZES = tuple(size for size in dict.fromkeys(one.size for one in ALL) if size not in WORLDS.values())
"""The others are explored in full by `test_promises`."""


@pytest.mark.parametrize("mutation", ALL, ids=[one.name for one in ALL])
def test_a_planted_mistake_breaks_its_promise(mutation: Mutation) -> None:
    found = explore(mutation.rules, mutation.size)

    assert found.breach is not None, "not caught"
    assert mutation.promise == found.breach.promise, str(found.breach)


@pytest.mark.parametrize("size", SIZES, ids=[f"world {number}" for number in range(len(SIZES))])
def test_without_a_mistake_the_same_world_is_sound(size: Size) -> None:
    assert explore(Rules(), size).breach is None


def test_every_planted_table_differs_from_the_real_one_in_one_cell() -> None:
    for mutation in TABLE_MUTATIONS:
        changed = [(s, e) for s in State for e in Event if mutation.rules.table(s, e) != transition(s, e)]
        assert len(changed) == 1, mutation.name


def test_every_rule_has_a_planted_mistake() -> None:
    right = Rules()
    changed = {
        name
        for one in RULE_MUTATIONS
        for name in Rules.__struct_fields__
        if getattr(one.rules, name) != getattr(right, name)
    }

    assert set(Rules.__struct_fields__) - {"table"} == changed


def test_a_counterexample_reads_as_a_numbered_story() -> None:
    mistake = next(one for one in RULE_MUTATIONS if one.name == "check-back only reads")

    story = str(explore(mistake.rules, mistake.size).breach).splitlines()

    assert story[0] == "I4 is broken: 'rolled back' was answered for a transaction that is committed"
    assert story[1] == "   1. attempt 1: sends prepare"
    assert any("check-back route: 'rolled back'" in line for line in story)
    assert "database: commits attempt 1" in story[-1]
