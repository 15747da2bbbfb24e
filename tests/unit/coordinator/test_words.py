"""Verdict words in the body of a 200.

dtm's rule alone decides what they mean; explain, logs and alerts name them.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.coordinator.harness import IN, Harness, message
from tests.unit.coordinator.test_attempts_max import pass_time
from twophase.coordinator.dispatch.evidence import tellable
from twophase.core.lifecycle import State
from twophase.destinations.base import Answer

CUSTOMER = Answer(200, b'{"customer":"FAILURE of ONGOING projects"}')


async def test_a_word_in_a_200_decides_nothing_of_a_message_that_is_judged_by_status(harness: Harness) -> None:
    topic = "http://bank-c/topic"
    await harness.coordinator.topics.subscribe("t", topic)
    harness.destination.script[IN].append(CUSTOMER)
    harness.destination.script[topic].append(CUSTOMER)
    await harness.submit(message("g", IN, "topic://t", strict=True))
    await harness.until_state("g", State.SUCCEEDED)
    view = await harness.coordinator.query("g")
    assert view is not None
    assert list(view.log) == []


@pytest.mark.parametrize(("word", "result"), [("FAILURE", "failed"), ("ONGOING", "ongoing")])
async def test_where_dtms_rule_holds_the_log_and_the_alert_name_the_word_that_decided(
    harness: Harness, word: str, result: str
) -> None:
    harness.destination.script[IN].extend([Answer(200, f'{{"customer":"{word}"}}'.encode())] * 3 + [Answer(500)] * 3)
    await harness.submit(message("g"))
    await pass_time(harness)
    assert await harness.state("g") is State.SUCCEEDED
    said = f"its 200 answer contains the word {word}: dtm's rule; strict judges by status alone"
    assert [tellable(one) for one in harness.watcher.not_done_attempts if one.status == 200] == [said] * 3
    told = [msgspec.json.decode(call.payload)["error"] for call in harness.hook.calls]
    if word == "FAILURE":
        assert told[0] == f"{result}: answered with status 200; {said}"
    assert told[-1] == "error: answered with status 500"
