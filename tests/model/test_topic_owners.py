"""No node gives out again what was acknowledged, whichever serves the topic (I8)."""

from __future__ import annotations

import msgspec
import pytest

from .topic_owners import TopicOwnerRules, explore


def test_what_was_acknowledged_is_given_out_by_no_node_again(capsys: pytest.CaptureFixture[str]) -> None:
    found = explore(TopicOwnerRules())

    with capsys.disabled():
        print(f"\nmodel, a topic moves between nodes: {found.moments} states")
    assert found.story == ()
    assert found.finished
    assert found.moments > 10_000


MISTAKES = [
    "takes_only_what_is_free",
    "reads_after_its_term_began",
    "gives_out_within_its_lease",
    "stops_before_it_gives_up",
    "confirms_after_the_flush",
]


@pytest.mark.parametrize("rule", MISTAKES)
def test_with_a_planted_mistake_it_comes_again(rule: str) -> None:
    assert explore(msgspec.structs.replace(TopicOwnerRules(), **{rule: False})).story, "not caught"


def test_what_was_acknowledged_stands_also_where_a_topic_is_taken_from_an_owner_that_lives() -> None:
    assert explore(TopicOwnerRules(is_taken_from_the_living=True)).story == ()


def test_without_terms_a_former_owner_undoes_it() -> None:
    found = explore(TopicOwnerRules(is_taken_from_the_living=True, progress_names_its_term=False))

    assert found.story[-1] == "what was acknowledged is undone"


def test_every_rule_has_a_planted_mistake() -> None:
    assert {*MISTAKES, "progress_names_its_term", "is_taken_from_the_living"} == set(TopicOwnerRules.__struct_fields__)


def test_the_story_of_a_frozen_node_can_be_read() -> None:
    story = explore(TopicOwnerRules(gives_out_within_its_lease=False)).story

    assert "which was acknowledged" in story[-1]
    assert any("ends the epoch" in step for step in story)
