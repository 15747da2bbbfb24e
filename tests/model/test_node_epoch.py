"""An unfinished row always has a node that drives it (I2, I9).

That holds whichever node is fenced and returns meanwhile.
"""

from __future__ import annotations

import msgspec
import pytest

from .node_epoch import NodeEpochRules, explore


def test_the_owner_of_a_row_knows_it_or_is_about_to_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = explore(NodeEpochRules())

    with capsys.disabled():
        print(f"\nmodel, nodes are fenced and come back: {found.moments} states")
    assert found.story == ()
    assert found.moments > 500


@pytest.mark.parametrize("rule", NodeEpochRules.__struct_fields__)
def test_with_a_planted_mistake_no_node_drives_it(rule: str) -> None:
    assert explore(msgspec.structs.replace(NodeEpochRules(), **{rule: False})).story, "not caught"


def test_the_story_of_an_answer_that_comes_while_a_node_forgets_can_be_read() -> None:
    story = explore(NodeEpochRules(forgets_at_once=False)).story

    assert story[-1] == "node 0: reschedules the message"
    assert "node 0: takes a place, reads from the beginning" in story
    assert "node 0: a branch answers" in story[story.index("node 0: gives up what it planned") :]
