"""No branch is called before the time that its message names.

This holds whichever way the message reaches its round.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.coordinator.nodes import Nodes
from tests.unit.coordinator.rig import CHECK, IN, Rig, message
from twophase.coordinator.operator import Act
from twophase.coordinator.state.active_message import Trigger
from twophase.core.errors import NotYetDelivered
from twophase.core.lifecycle import Event, State
from twophase.core.options import Durability
from twophase.destinations.base import Answer
from twophase.stores.batch import Batch, Reschedule

HOUR_MS = 3_600_000
CHECK_DUE_MS = 35_064


async def not_yet(rig: Rig, ms: int) -> None:
    """Let time pass, and check that only check-backs are called."""
    rig.clock.advance(ms)
    await rig.settled()
    assert IN not in rig.destination.urls()


async def test_a_plain_message_waits_for_its_time_and_is_called_then(rig: Rig) -> None:
    await rig.submit(message("g", not_before_ms=rig.clock.now_ms() + HOUR_MS))
    await not_yet(rig, HOUR_MS - 1_000)
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN]


async def test_a_time_that_has_passed_is_at_once(rig: Rig) -> None:
    await rig.submit(message("g", not_before_ms=rig.clock.now_ms() - HOUR_MS))
    await rig.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize("delay_ms", [1_000, 2 * HOUR_MS])
async def test_of_a_delay_and_a_time_the_later_one_counts(rig: Rig, delay_ms: int) -> None:
    await rig.submit(message("g", delay_ms=delay_ms, not_before_ms=rig.clock.now_ms() + HOUR_MS))
    await not_yet(rig, max(delay_ms, HOUR_MS) - 1_000)
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize("options", [{"delay_ms": HOUR_MS}, {"not_before_ms": HOUR_MS}], ids=["delay", "time"])
async def test_it_survives_the_check_back(rig: Rig, options: dict[str, Any]) -> None:
    if "not_before_ms" in options:
        options = {"not_before_ms": rig.clock.now_ms() + HOUR_MS}
    await rig.prepare(message("g", **options))
    rig.clock.advance(CHECK_DUE_MS)
    await rig.until_state("g", State.SUBMITTED)
    await not_yet(rig, HOUR_MS - CHECK_DUE_MS - 1_000)
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [CHECK, IN]


async def test_a_submit_without_it_keeps_the_prepared_one_and_one_with_it_replaces_it(rig: Rig) -> None:
    at_ms = rig.clock.now_ms() + HOUR_MS
    for gid in ("kept", "replaced"):
        await rig.prepare(message(gid, not_before_ms=at_ms))
    await rig.submit(message("kept"))
    await rig.submit(message("replaced", not_before_ms=at_ms + HOUR_MS))
    await not_yet(rig, HOUR_MS - 1_000)
    rig.clock.advance(1_064)
    await rig.until_state("kept", State.SUCCEEDED)
    assert await rig.state("replaced") is State.SUBMITTED
    rig.clock.advance(HOUR_MS)
    await rig.until_state("replaced", State.SUCCEEDED)


async def test_a_repeated_submit_calls_nothing_before_and_wait_result_says_later(rig: Rig) -> None:
    said = message("g", not_before_ms=rig.clock.now_ms() + HOUR_MS)
    for _ in range(3):
        assert (await rig.submit(said)).error is None
    waits = message("g", not_before_ms=said.options.not_before_ms, wait_result=True)
    assert isinstance((await rig.submit(waits)).error, NotYetDelivered)
    await not_yet(rig, HOUR_MS - 1_000)


async def test_check_back_durability_does_not_call_before_either(rig: Rig) -> None:
    said = message("g", not_before_ms=rig.clock.now_ms() + HOUR_MS, durability=Durability.CHECK_BACK)
    await rig.prepare(said)
    await rig.submit(said)
    assert await rig.state("g") is State.SUBMITTED
    await not_yet(rig, HOUR_MS - 1_000)


@pytest.mark.parametrize("options", [{"delay_ms": HOUR_MS}, {"not_before_ms": HOUR_MS}], ids=["delay", "time"])
async def test_a_row_that_falls_due_before_its_time_is_not_called(rig: Rig, options: dict[str, Any]) -> None:
    """A "retry now", or a node whose clock was ahead, may write such a row."""
    if "not_before_ms" in options:
        options = {"not_before_ms": rig.clock.now_ms() + HOUR_MS}
    await rig.submit(message("g", **options))
    row = Reschedule("g", 1, rig.clock.now_ms(), attempts=0, done=0)
    await super(type(rig.store), rig.store).flush(Batch([row], []))
    await rig.restart()
    await not_yet(rig, HOUR_MS - 1_000)
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_restart_does_not_forget_it(rig: Rig) -> None:
    await rig.submit(message("g", not_before_ms=rig.clock.now_ms() + HOUR_MS))
    await rig.restart()
    await not_yet(rig, HOUR_MS - 1_000)
    await rig.restart()
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)


async def test_redriving_a_parked_message_does_not_call_before(rig: Rig) -> None:
    await rig.submit(message("g", not_before_ms=rig.clock.now_ms() + HOUR_MS))
    active = rig.coordinator._memory.get("g")
    assert active is not None
    for event in (Event.PARK, Event.REDRIVE):
        rig.coordinator._machine.handle(active, Trigger(event, decided_by="operator"))
        await rig.settled()
    await not_yet(rig, HOUR_MS - 1_000)
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize("options", [{"delay_ms": HOUR_MS}, {"not_before_ms": HOUR_MS}], ids=["delay", "time"])
async def test_an_operators_retry_now_does_not_call_before(rig: Rig, options: dict[str, Any]) -> None:
    if "not_before_ms" in options:
        options = {"not_before_ms": rig.clock.now_ms() + HOUR_MS}
    await rig.submit(message("g", **options))
    assert (await rig.coordinator.operator.retry_now("g", Act())).error is None
    await not_yet(rig, HOUR_MS - 1_000)
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_failed_call_is_repeated_as_any_other(rig: Rig) -> None:
    rig.destination.script[IN].append(Answer(500))
    await rig.submit(message("g", not_before_ms=rig.clock.now_ms() + HOUR_MS))
    rig.clock.advance(HOUR_MS + 64)
    await rig.until(lambda: rig.destination.urls() == [IN])
    await rig.settled()
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)


async def test_another_node_that_takes_the_message_over_keeps_the_time(nodes: Nodes) -> None:
    at_ms = nodes.clock.now_ms() + HOUR_MS
    await nodes.a.submit(message("adopted", not_before_ms=at_ms))
    await nodes.a.prepare(message("moved", not_before_ms=at_ms))
    await nodes.b.submit(message("moved"))
    await nodes.a.coordinator.stop()
    await nodes.until(lambda: nodes.b.watcher.adopted_messages > 0)
    nodes.clock.advance(HOUR_MS - 10_000)
    nodes.shared.renew()
    await nodes.beats()
    assert nodes.b.destination.urls() == []
    nodes.clock.advance(11_000)
    nodes.shared.renew()
    for gid in ("adopted", "moved"):
        await nodes.until_state(gid, State.SUCCEEDED)
    assert nodes.a.destination.urls() == []
