"""An unfinished row always has a node that drives it (I2, I9).

That holds whichever node is fenced and returns meanwhile.
"""

from __future__ import annotations

import msgspec
import pytest

from .tenure import TenureRules, explore


def test_whoever_owns_a_row_knows_it_or_is_about_to_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = explore(TenureRules())

    with capsys.disabled():
        print(f"\nmodel, nodes are fenced and come back: {found.moments} states")
    assert found.story == ()
    assert found.moments > 500


@pytest.mark.parametrize("rule", TenureRules.__struct_fields__)
def test_with_a_planted_mistake_nobody_sees_to_it(rule: str) -> None:
    assert explore(msgspec.structs.replace(TenureRules(), **{rule: False})).story, "not caught"


def test_the_story_of_an_answer_that_comes_while_a_node_forgets_can_be_read() -> None:
    story = explore(TenureRules(forgets_at_once=False)).story

    assert story[-1] == "node 0: reschedules the message"
    assert "node 0: takes a place, reads from the beginning" in story
    assert "node 0: a branch answers" in story[story.index("node 0: gives up what it planned") :]
