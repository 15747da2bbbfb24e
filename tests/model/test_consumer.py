"""The branch barrier may be cleaned, and each branch takes effect once.

The promises are I6 and I10, the rule is C16.
"""

from __future__ import annotations

import msgspec
import pytest

from .consumer import ConsumerRules, explore

MISTAKES = {
    "inserts_row_with_effect": "I6",
    "waits_for_the_end": "I6",
    "keeps_after_the_end": "I6",
    "counts_what_was_called_early": "I6",
    "counts_what_is_tried_again": "I6",
    "far_means_never_called": "I6",
    "header_is_as_old_as_its_question": "I6",
    "imported_message_keeps_birth": "I6",
    "cleaner_names_row_by_key": "I6",
    "takes_old_calls": "I2",
    "reads_done_before": "I2",
    "confirms_durably": "I2",
    "remembers_lost_transactions": "I2",
}


def test_cleaning_never_repeats_an_effect_nor_loses_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = explore(ConsumerRules())

    with capsys.disabled():
        print(f"\nmodel, the branch barrier is cleaned: {found.moments} states")
    assert found.promise == "", found.story
    assert found.moments >= 12


@pytest.mark.parametrize("rule", MISTAKES)
def test_a_planted_mistake_breaks_its_promise(rule: str) -> None:
    found = explore(msgspec.structs.replace(ConsumerRules(), **{rule: False}))

    assert found.promise == MISTAKES[rule], "not caught"
    assert found.story


def test_every_rule_has_a_planted_mistake() -> None:
    assert set(ConsumerRules.__struct_fields__) == set(MISTAKES)


def test_the_careless_cleaner_s_story_can_be_read() -> None:
    story = explore(ConsumerRules(waits_for_the_end=False)).story

    assert story[-2:] == ("cleaner: deletes the branch's row", "branch: a call arrives")
