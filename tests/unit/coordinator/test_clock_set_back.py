"""A clock that was ahead and is set right delays nothing.

Nothing is late in memory, after a restart, or at another node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, PATIENCE_S, Harness, message, set_back
from tests.unit.coordinator.nodes import Nodes
from tests.unit.coordinator.queueing import GROUP, TOPIC, Queueing, order
from tests.unit.coordinator.test_redirect import anything
from twophase.coordinator.operator import Act
from twophase.coordinator.state.active_message import Reply
from twophase.core.errors import ReceiptStale
from twophase.core.lifecycle import State
from twophase.core.queue_operating import DefineTopic, RemoveRequest
from twophase.core.redirect import Redirection
from twophase.destinations.base import Answer
from twophase.stores.rows import LiveRow

DAY_MS = 86_400_000
AHEAD_MS = 30 * DAY_MS
HOUR_MS = 3_600_000
DOWN = Answer(0, error="connection refused")

Correct = Callable[[Harness], Awaitable[None]]


async def in_memory(harness: Harness) -> None:
    set_back(harness.clock, AHEAD_MS)


async def over_a_restart(harness: Harness) -> None:
    harness.clock._offset_ms -= AHEAD_MS
    await harness.restart()


async def until_succeeded(harness: Harness, gid: str) -> None:
    """Wait for success, while the clock advances in small steps.

    It stands still otherwise.
    """
    async with asyncio.timeout(PATIENCE_S):
        while await harness.state(gid) is not State.SUCCEEDED:
            harness.clock.advance(64)
            await asyncio.sleep(0.005)


CORRECTED = pytest.mark.parametrize("correct", [in_memory, over_a_restart])


@CORRECTED
async def test_a_prepared_message_is_asked_about(harness: Harness, correct: Correct) -> None:
    harness.clock.advance(AHEAD_MS)
    await harness.prepare(message("g"))
    await correct(harness)
    await until_succeeded(harness, "g")
    assert harness.destination.urls() == [CHECK, IN]


@CORRECTED
async def test_a_branch_that_failed_is_called_again(harness: Harness, correct: Correct) -> None:
    harness.clock.advance(AHEAD_MS)
    harness.destination.script[IN].append(DOWN)
    await harness.submit(message("g"))
    await harness.settled()
    await correct(harness)
    await until_succeeded(harness, "g")


@CORRECTED
async def test_a_message_from_before_that_failed_while_the_clock_was_ahead_is_called_again(
    harness: Harness, correct: Correct
) -> None:
    harness.destination.script[IN].extend([DOWN] * 2)
    await harness.submit(message("g"))
    await harness.settled()
    harness.clock.advance(AHEAD_MS)
    await harness.settled()
    assert harness.destination.urls() == [IN] * 2
    await correct(harness)
    await until_succeeded(harness, "g")


@CORRECTED
async def test_a_time_a_delay_and_a_pause_that_the_message_asked_for_are_waited_for(
    harness: Harness, correct: Correct
) -> None:
    harness.destination.script[IN].append(DOWN)
    await harness.submit(message("pause", retry_interval_ms=12 * HOUR_MS))
    await harness.submit(message("time", not_before_ms=harness.clock.now_ms() + 300 * DAY_MS))
    await harness.submit(message("delay", delay_ms=300 * DAY_MS))
    await harness.prepare(message("asked late", timeout_to_fail_ms=20 * HOUR_MS))
    await harness.settled()
    called = list(harness.destination.calls)
    harness.clock._offset_ms += AHEAD_MS
    await correct(harness)
    for _ in range(20):
        harness.clock.advance(64)
        await harness.settled()
    assert harness.destination.calls == called


@CORRECTED
async def test_a_delay_that_began_while_the_clock_was_ahead_is_counted_anew(harness: Harness, correct: Correct) -> None:
    harness.clock.advance(AHEAD_MS)
    await harness.submit(message("delay", delay_ms=HOUR_MS))
    await harness.submit(message("at once"))
    await until_succeeded(harness, "at once")
    await correct(harness)
    for _ in range(20):
        harness.clock.advance(64)
        await harness.settled()
    harness.clock.advance(HOUR_MS - 60_000)
    await harness.settled()
    assert await harness.state("delay") is State.SUBMITTED
    harness.clock.advance(60_000)
    await until_succeeded(harness, "delay")


@CORRECTED
async def test_a_delay_is_counted_anew_from_a_decision_behind_the_correction(
    harness: Harness, correct: Correct
) -> None:
    harness.clock.advance(AHEAD_MS)
    await harness.prepare(message("g", delay_ms=HOUR_MS))
    await correct(harness)
    assert (await harness.submit(message("g", delay_ms=HOUR_MS))).error is None
    for _ in range(20):
        harness.clock.advance(64)
        await harness.settled()
    assert IN not in harness.destination.urls()
    harness.clock.advance(HOUR_MS)
    await until_succeeded(harness, "g")


async def test_a_clock_that_was_ahead_for_a_moment_leaves_no_message_behind(harness: Harness) -> None:
    """Between the two steps only the prepare itself reads the clock."""
    harness.clock._offset_ms += AHEAD_MS
    await harness.prepare(message("g"))
    harness.clock._offset_ms -= AHEAD_MS
    await until_succeeded(harness, "g")


async def test_a_delay_that_began_while_the_clock_was_ahead_for_a_moment_is_counted_anew(harness: Harness) -> None:
    """Such a message leaves memory at once, so the wrong time is in the store alone."""
    await harness.settled()
    harness.clock._offset_ms += AHEAD_MS
    await harness.submit(message("delay", delay_ms=HOUR_MS))
    await harness.settled()
    harness.clock._offset_ms -= AHEAD_MS
    for _ in range(20):
        harness.clock.advance(64)
        await harness.settled()
    harness.clock.advance(HOUR_MS)
    await harness.settled()
    assert await harness.state("delay") is State.SUCCEEDED


async def test_a_small_step_back_hurries_nothing(harness: Harness) -> None:
    await harness.prepare(message("g", timeout_to_fail_ms=20 * HOUR_MS))
    set_back(harness.clock, 5_000)
    await harness.settled()
    assert harness.destination.calls == []


@pytest.mark.parametrize("restart", [False, True])
async def test_nodes_on_one_database_go_on_when_its_clock_is_set_back(nodes: Nodes, restart: bool) -> None:
    nodes.clock.advance(AHEAD_MS)
    nodes.shared.renew()
    nodes.a.destination.script[IN].append(DOWN)
    await nodes.a.prepare(message("prepared"))
    await nodes.a.submit(message("submitted"))
    await until(lambda: "submitted" in nodes.a.rescheduled())
    if restart:
        nodes.a.gates.cut = True
    set_back(nodes.clock, AHEAD_MS)
    await nodes.until_state("prepared", State.SUCCEEDED)
    await nodes.until_state("submitted", State.SUCCEEDED)


async def test_a_message_that_is_born_while_the_clock_is_set_back_is_reported(harness: Harness) -> None:
    reply: asyncio.Future[Reply] = harness.prepare_soon(message("g"))
    set_back(harness.clock, HOUR_MS)
    assert (await reply).error is None
    harness.clock.advance(36_000)
    await until_succeeded(harness, "g")


@CORRECTED
async def test_an_operator_who_tries_a_message_now_is_not_told_to_wait_for_the_wrong_clock(
    harness: Harness, correct: Correct
) -> None:
    harness.clock.advance(AHEAD_MS)
    harness.destination.script[CHECK].append(Answer(500))
    await harness.prepare(message("g"))
    await correct(harness)
    view = await harness.coordinator.query("g")
    assert view is not None
    earliest_ms = harness.coordinator.operator.earliest_ms(view.state, view.message, view.created_ms)
    assert earliest_ms <= harness.clock.now_ms() + 60_000

    assert (await harness.coordinator.operator.redrive("g", Act())).error is None

    row = await harness.store.get("g")
    assert isinstance(row, LiveRow)
    assert row.due_ms <= harness.clock.now_ms() + 60_000


@CORRECTED
@pytest.mark.parametrize("act", ["redrive", "retry_now", "redirect"])
async def test_a_question_is_not_postponed_by_an_operator_who_asks_for_it(
    harness: Harness, correct: Correct, act: str
) -> None:
    harness.clock.advance(AHEAD_MS)
    harness.destination.script[CHECK].append(Answer(500))
    await harness.prepare(message("g"))
    await correct(harness)
    operator = harness.coordinator.operator
    assert (await operator.park("g", Act())).error is None
    assert (await operator.redrive("g", Act())).error is None
    row = await harness.store.get("g")
    assert isinstance(row, LiveRow)

    harness.clock.advance(1_000)
    if act == "redirect":
        reply, moves = await operator.redirect("g", Redirection("http://bank-a/new", check=True), Act(), anything)
        assert moves
    else:
        reply = await getattr(operator, act)("g", Act())
    assert reply.error is None

    hurried = await harness.store.get("g")
    assert isinstance(hurried, LiveRow)
    assert hurried.due_ms <= row.due_ms


@pytest.mark.parametrize("waits", [False, True])
async def test_a_lease_ends_in_its_time_and_a_consumer_gets_the_message(harness: Harness, waits: bool) -> None:
    queueing = Queueing(harness)
    harness.clock.advance(AHEAD_MS)
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=30_000)
    waiting = asyncio.ensure_future(queueing.receiving(wait_ms=HOUR_MS))
    if waits:
        await queueing.waiting()
    else:
        waiting.cancel()
        await asyncio.wait([waiting])

    set_back(harness.clock, AHEAD_MS)
    for pause_ms in (0, 29_000):
        harness.clock.advance(pause_ms)
        assert await queueing.receive() == []
    harness.clock.advance(1_001)

    (again,) = await (waiting if waits else queueing.receive())
    assert (again.message.message_id, again.attempt) == ("1", 2)
    with pytest.raises(ReceiptStale):
        await queueing.ack(first)
    await queueing.ack(again)


async def test_a_long_poll_ends_in_its_time(harness: Harness) -> None:
    queueing = Queueing(harness)
    harness.clock.advance(AHEAD_MS)
    polling = asyncio.ensure_future(queueing.receiving(wait_ms=1_000))
    await queueing.waiting()
    set_back(harness.clock, AHEAD_MS)

    async with asyncio.timeout(PATIENCE_S):
        while not polling.done():
            harness.clock.advance(500)
            await asyncio.sleep(0.1)

    assert await polling == []


async def test_a_group_whose_consumers_have_stopped_can_be_removed(harness: Harness) -> None:
    queueing = Queueing(harness)
    harness.clock.advance(AHEAD_MS)
    await queueing.receive()
    set_back(harness.clock, AHEAD_MS)
    await queueing.receive()
    harness.clock.advance(61_000)

    await harness.coordinator.queue_operator.remove_group(GROUP, RemoveRequest(), Act("eve", "gone"))


async def test_a_topic_that_another_node_changes_is_known_within_seconds(nodes: Nodes) -> None:
    nodes.clock.advance(AHEAD_MS)
    nodes.shared.renew()
    await nodes.a.coordinator.queues.topic("", TOPIC)
    nodes.clock._offset_ms -= AHEAD_MS
    nodes.shared.renew()

    await nodes.b.coordinator.queue_operator.define_topic(TOPIC, DefineTopic(queues=2), Act("eve", "more"))

    assert (await nodes.a.coordinator.queues.topic("", TOPIC)).queues == 2
