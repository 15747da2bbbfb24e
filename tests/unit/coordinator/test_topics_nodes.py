"""Topics that change while several nodes know different halves of a message."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.harness import message
from tests.unit.coordinator.nodes import Nodes
from twophase.core.errors import TopicNotFound
from twophase.core.lifecycle import State

ONE = "http://b/1"
RATES = "topic://rates"


@pytest.mark.parametrize("prepares", [False, True], ids=["submit", "prepare again, then submit"])
async def test_a_message_prepared_at_another_node_is_submitted_though_its_topic_has_gone(
    nodes: Nodes, prepares: bool
) -> None:
    await nodes.a.coordinator.topics.subscribe("rates", ONE)
    assert (await nodes.a.prepare(message("g", RATES))).error is None
    await nodes.b.coordinator.topics.delete("rates")

    if prepares:
        assert (await nodes.b.prepare(message("g", RATES))).error is None
    assert (await nodes.b.submit(message("g", RATES))).error is None

    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.b.destination.urls() == [ONE]


async def test_a_new_message_to_a_topic_that_has_gone_is_refused_and_leaves_nothing(nodes: Nodes) -> None:
    reply = await nodes.b.submit(message("g", RATES))

    assert isinstance(reply.error, TopicNotFound)
    assert nodes.b.active == 0
    assert await nodes.shared.get("g") is None
