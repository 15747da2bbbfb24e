"""No branch is called before the time that its message names.

This holds whichever way the message reaches its round.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, Harness, message
from tests.unit.coordinator.nodes import Nodes
from twophase.coordinator.operator import Act
from twophase.core.errors import NotYetDelivered
from twophase.core.lifecycle import State
from twophase.core.options import Durability
from twophase.destinations.base import Answer
from twophase.stores.batch import Batch, Reschedule

HOUR_MS = 3_600_000
CHECK_DUE_MS = 35_064


async def not_yet(harness: Harness, ms: int) -> None:
    """Let time pass, and check that only check-backs are called."""
    harness.clock.advance(ms)
    await harness.settled()
    assert IN not in harness.destination.urls()


async def test_a_plain_message_waits_for_its_time_and_is_called_then(harness: Harness) -> None:
    await harness.submit(message("g", not_before_ms=harness.clock.now_ms() + HOUR_MS))
    await not_yet(harness, HOUR_MS - 1_000)
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN]


async def test_a_time_that_has_passed_is_at_once(harness: Harness) -> None:
    await harness.submit(message("g", not_before_ms=harness.clock.now_ms() - HOUR_MS))
    await harness.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize("delay_ms", [1_000, 2 * HOUR_MS])
async def test_of_a_delay_and_a_time_the_later_one_counts(harness: Harness, delay_ms: int) -> None:
    await harness.submit(message("g", delay_ms=delay_ms, not_before_ms=harness.clock.now_ms() + HOUR_MS))
    await not_yet(harness, max(delay_ms, HOUR_MS) - 1_000)
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize("options", [{"delay_ms": HOUR_MS}, {"not_before_ms": HOUR_MS}], ids=["delay", "time"])
async def test_it_survives_the_check_back(harness: Harness, options: dict[str, Any]) -> None:
    if "not_before_ms" in options:
        options = {"not_before_ms": harness.clock.now_ms() + HOUR_MS}
    await harness.prepare(message("g", **options))
    harness.clock.advance(CHECK_DUE_MS)
    await harness.until_state("g", State.SUBMITTED)
    await not_yet(harness, HOUR_MS - CHECK_DUE_MS - 1_000)
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [CHECK, IN]


async def test_a_submit_without_it_keeps_the_prepared_one_and_one_with_it_replaces_it(harness: Harness) -> None:
    at_ms = harness.clock.now_ms() + HOUR_MS
    for gid in ("kept", "replaced"):
        await harness.prepare(message(gid, not_before_ms=at_ms))
    await harness.submit(message("kept"))
    await harness.submit(message("replaced", not_before_ms=at_ms + HOUR_MS))
    await not_yet(harness, HOUR_MS - 1_000)
    harness.clock.advance(1_064)
    await harness.until_state("kept", State.SUCCEEDED)
    assert await harness.state("replaced") is State.SUBMITTED
    harness.clock.advance(HOUR_MS)
    await harness.until_state("replaced", State.SUCCEEDED)


async def test_a_repeated_submit_calls_nothing_before_and_wait_result_says_later(harness: Harness) -> None:
    said = message("g", not_before_ms=harness.clock.now_ms() + HOUR_MS)
    for _ in range(3):
        assert (await harness.submit(said)).error is None
    waits = message("g", not_before_ms=said.options.not_before_ms, wait_result=True)
    assert isinstance((await harness.submit(waits)).error, NotYetDelivered)
    await not_yet(harness, HOUR_MS - 1_000)


async def test_check_back_durability_does_not_call_before_either(harness: Harness) -> None:
    said = message("g", not_before_ms=harness.clock.now_ms() + HOUR_MS, durability=Durability.CHECK_BACK)
    await harness.prepare(said)
    await harness.submit(said)
    assert await harness.state("g") is State.SUBMITTED
    await not_yet(harness, HOUR_MS - 1_000)


@pytest.mark.parametrize("options", [{"delay_ms": HOUR_MS}, {"not_before_ms": HOUR_MS}], ids=["delay", "time"])
async def test_a_row_that_falls_due_before_its_time_is_not_called(harness: Harness, options: dict[str, Any]) -> None:
    """A "retry now", or a node whose clock was ahead, may write such a row."""
    if "not_before_ms" in options:
        options = {"not_before_ms": harness.clock.now_ms() + HOUR_MS}
    await harness.submit(message("g", **options))
    row = Reschedule("g", 1, harness.clock.now_ms(), attempts=0, done=0)
    await super(type(harness.store), harness.store).flush(Batch([row], []))
    await harness.restart()
    await not_yet(harness, HOUR_MS - 1_000)
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_restart_does_not_forget_it(harness: Harness) -> None:
    await harness.submit(message("g", not_before_ms=harness.clock.now_ms() + HOUR_MS))
    await harness.restart()
    await not_yet(harness, HOUR_MS - 1_000)
    await harness.restart()
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)


async def test_redriving_a_parked_message_does_not_call_before(harness: Harness) -> None:
    await harness.submit(message("g", not_before_ms=harness.clock.now_ms() + HOUR_MS))
    operator = harness.coordinator.operator
    for act in (operator.park, operator.redrive):
        assert (await act("g", Act("eve"))).error is None
        await harness.settled()
    await not_yet(harness, HOUR_MS - 1_000)
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize("options", [{"delay_ms": HOUR_MS}, {"not_before_ms": HOUR_MS}], ids=["delay", "time"])
async def test_an_operators_retry_now_does_not_call_before(harness: Harness, options: dict[str, Any]) -> None:
    if "not_before_ms" in options:
        options = {"not_before_ms": harness.clock.now_ms() + HOUR_MS}
    await harness.submit(message("g", **options))
    assert (await harness.coordinator.operator.retry_now("g", Act())).error is None
    await not_yet(harness, HOUR_MS - 1_000)
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_failed_call_is_repeated_as_any_other(harness: Harness) -> None:
    harness.destination.script[IN].append(Answer(500))
    await harness.submit(message("g", not_before_ms=harness.clock.now_ms() + HOUR_MS))
    harness.clock.advance(HOUR_MS + 64)
    await until(lambda: harness.destination.urls() == [IN])
    await harness.settled()
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)


async def test_another_node_that_takes_the_message_over_keeps_the_time(nodes: Nodes) -> None:
    at_ms = nodes.clock.now_ms() + HOUR_MS
    await nodes.a.submit(message("adopted", not_before_ms=at_ms))
    await nodes.a.prepare(message("moved", not_before_ms=at_ms))
    await nodes.b.submit(message("moved"))
    await nodes.a.coordinator.stop()
    await until(lambda: nodes.b.watcher.adopted_messages > 0)
    nodes.clock.advance(HOUR_MS - 10_000)
    nodes.shared.renew()
    await nodes.beats()
    assert nodes.b.destination.urls() == []
    nodes.clock.advance(11_000)
    nodes.shared.renew()
    for gid in ("adopted", "moved"):
        await nodes.until_state(gid, State.SUCCEEDED)
    assert nodes.a.destination.urls() == []
