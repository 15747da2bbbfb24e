"""A limit of consecutive failed rounds.

A message that reaches the limit is parked until it is redriven.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, QUICK, Harness, message
from tests.unit.coordinator.nodes import Nodes
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Reply, Trigger
from twophase.coordinator.view import MessageView
from twophase.core.lifecycle import Event, State
from twophase.core.options import Durability
from twophase.destinations.base import Answer
from twophase.stores.batch import Batch, Reschedule

MakeRig = Callable[..., Awaitable[Harness]]
ALSO = "http://bank-c/in"


def limited(attempts_max: int) -> CoordinatorSettings:
    return CoordinatorSettings(delivery=QUICK, check_back=QUICK, attempts_max=attempts_max)


async def view_of(harness: Harness, gid: str = "g") -> MessageView:
    view = await harness.coordinator.query(gid)
    assert view is not None
    return view


async def pass_time(harness: Harness, rounds: int = 8) -> None:
    for _ in range(rounds):
        await harness.settled()
        harness.clock.advance(60_064)
    await harness.settled()


async def redrive(harness: Harness, gid: str = "g") -> None:
    """Redrive the message as an operator, and wait for the reply."""
    told: list[Reply] = []
    active = harness.coordinator._memory.get(gid) or harness.coordinator._admission.look_up(gid)
    harness.coordinator._machine.handle(active, Trigger(Event.REDRIVE, None, told.append, "operator"))
    await until(lambda: bool(told))
    assert told[0].error is None


async def test_after_the_limit_of_failures_in_a_row_it_is_parked_and_called_no_more(make_harness: MakeRig) -> None:
    harness = await make_harness(limited(3))
    harness.destination.script[IN].extend([Answer(500)] * 9)
    await harness.submit(message("g"))
    await pass_time(harness)
    view = await view_of(harness)
    assert (view.state, view.parked, view.attempts) == (State.SUBMITTED, True, 3)
    assert harness.destination.urls() == [IN] * 3
    assert [gid for gid, _ in harness.watcher.parked_messages] == ["g"]


async def test_what_has_succeeded_is_kept_and_a_restart_does_not_begin_anew(make_harness: MakeRig) -> None:
    harness = await make_harness(limited(2))
    harness.destination.script[ALSO].extend([Answer(500)] * 9)
    await harness.submit(message("g", IN, ALSO))
    await pass_time(harness)
    await harness.restart()
    await pass_time(harness)
    view = await view_of(harness)
    assert (view.parked, view.attempts, view.done) == (True, 2, 0b01)
    assert harness.destination.urls() == [IN, ALSO, ALSO]


async def test_redriven_it_has_all_its_attempts_again_also_when_the_process_dies_then(make_harness: MakeRig) -> None:
    harness = await make_harness(limited(3))
    harness.destination.script[IN].extend([Answer(500)] * 5)
    await harness.submit(message("g"))
    await pass_time(harness)
    harness.destination.hold(IN)
    await redrive(harness)
    assert ((await view_of(harness)).parked, (await view_of(harness)).attempts) == (False, 0)
    await harness.restart()
    del harness.destination.held[IN]
    await pass_time(harness)
    assert await harness.state("g") is State.SUCCEEDED


async def test_a_branch_that_succeeds_meanwhile_begins_the_count_anew(make_harness: MakeRig) -> None:
    harness = await make_harness(limited(3))
    for url in (IN, ALSO):
        harness.destination.script[url].extend([Answer(500)] * 2)
    await harness.submit(message("g", IN, ALSO))
    await pass_time(harness)
    assert await harness.state("g") is State.SUCCEEDED


async def test_a_branch_that_asks_for_patience_has_not_failed(make_harness: MakeRig) -> None:
    harness = await make_harness(limited(2))
    harness.destination.script[IN].extend([Answer(425)] * 5)
    await harness.submit(message("g"))
    await pass_time(harness)
    assert await harness.state("g") is State.SUCCEEDED


async def test_the_messages_own_limit_counts_before_the_coordinators(make_harness: MakeRig) -> None:
    harness = await make_harness(limited(2))
    harness.destination.script[IN].extend([Answer(500)] * 4)
    await harness.submit(message("g", attempts_max=5))
    await pass_time(harness)
    assert await harness.state("g") is State.SUCCEEDED


async def test_without_a_limit_it_is_called_for_ever(harness: Harness) -> None:
    harness.destination.script[IN].extend([Answer(500)] * 40)
    await harness.submit(message("g"))
    await pass_time(harness, rounds=42)
    assert await harness.state("g") is State.SUCCEEDED


async def test_no_limit_ends_the_questions_about_an_undecided_message(make_harness: MakeRig) -> None:
    harness = await make_harness(limited(1))
    harness.destination.script[CHECK].extend([Answer(500)] * 20)
    await harness.prepare(message("g", attempts_max=1))
    await pass_time(harness, rounds=25)
    assert await harness.state("g") is State.SUCCEEDED
    assert harness.destination.urls().count(CHECK) == 21


async def test_the_attempts_before_a_decision_are_not_those_after_it(make_harness: MakeRig) -> None:
    harness = await make_harness(limited(2))
    harness.destination.script[CHECK].extend([Answer(500)] * 5)
    harness.destination.script[IN].append(Answer(500))
    await harness.prepare(message("g"))
    await pass_time(harness, rounds=12)
    assert await harness.state("g") is State.SUCCEEDED


async def test_with_check_back_durability_too_it_is_parked(make_harness: MakeRig) -> None:
    harness = await make_harness(limited(1))
    harness.destination.script[IN].extend([Answer(500)] * 9)
    await harness.prepare(message("g", durability=Durability.CHECK_BACK))
    await harness.submit(message("g", durability=Durability.CHECK_BACK))
    await pass_time(harness)
    view = await view_of(harness)
    assert (view.state, view.parked, view.attempts) == (State.SUBMITTED, True, 1)
    assert harness.destination.urls() == [IN]


async def test_wait_result_is_answered_when_the_message_is_parked(make_harness: MakeRig) -> None:
    harness = await make_harness(limited(1))
    harness.destination.script[IN].append(Answer(500))
    reply = await harness.submit(message("g", wait_result=True))
    assert reply.error is not None
    await until(lambda: bool(harness.watcher.parked_messages))


async def test_a_node_whose_message_has_moved_parks_nothing_of_the_new_owner(nodes: Nodes) -> None:
    nodes.a.destination.script[IN].append(Answer(500))
    nodes.a.destination.hold(IN)
    await nodes.a.submit(message("g", attempts_max=1))
    await until(lambda: nodes.a.destination.urls() == [IN])
    due_ms = nodes.clock.now_ms() + 60_000
    await nodes.b.store.flush(Batch([Reschedule("g", 1, due_ms, attempts=0, done=0)], []))
    nodes.a.destination.release(IN)
    await until(lambda: nodes.a.active == 0)
    row = await nodes.shared.get("g")
    assert row is not None
    assert not getattr(row, "parked", True)
