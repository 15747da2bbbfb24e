"""A row that is due for long is tried, whatever made memory forget it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.coordinator.harness import IN, Harness, message
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.core.lifecycle import State
from twophase.destinations.base import Answer

DOWN = Answer(503)
LONG_MS = 45_000


def forgotten(harness: Harness, active: ActiveMessage) -> None:
    harness.coordinator._memory.remove(active)


def without_a_time(harness: Harness, active: ActiveMessage) -> None:
    harness.coordinator._memory.unschedule(active)


def of_before(harness: Harness, active: ActiveMessage) -> None:
    """Memory has an older version than the row, and another time."""
    active.version -= 1
    harness.coordinator._memory.schedule(active, harness.clock.now_ms() + 10 * LONG_MS)


async def retried(harness: Harness) -> ActiveMessage:
    """Return a message whose branch is down, when its next try is planned."""
    harness.destination.script[IN].append(DOWN)
    await harness.submit(message("g"))
    await harness.until(lambda: harness.destination.urls() == [IN])
    await harness.settled()
    active = harness.coordinator._memory.get("g")
    assert active is not None
    assert active.slot is not None
    return active


@pytest.mark.parametrize("lose", [forgotten, without_a_time, of_before])
async def test_a_message_that_nothing_would_have_tried_is_delivered(
    harness: Harness, lose: Callable[[Harness, ActiveMessage], None]
) -> None:
    lose(harness, await retried(harness))
    harness.clock.advance(LONG_MS)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.watcher.overdue_messages == 1


async def test_a_message_that_waits_for_its_time_is_left_alone(harness: Harness) -> None:
    await retried(harness)
    harness.clock.advance(LONG_MS)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.watcher.overdue_messages == 0


async def test_a_call_that_hangs_is_left_alone(harness: Harness) -> None:
    harness.destination.hold(IN)
    await harness.submit(message("g"))
    await harness.until(lambda: harness.destination.urls() == [IN])
    for _ in range(3):
        harness.clock.advance(LONG_MS)
        await harness.settled()
    assert harness.destination.urls() == [IN]
    harness.destination.release(IN)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.watcher.overdue_messages == 0
