"""A park is the end of calls: none begins behind it.

Calls under way finish, and the branches that succeed in them stay done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, PATIENCE_S, QUICK, Harness, message
from twophase.coordinator.operator import Act
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import NotYetDelivered, StateConflict
from twophase.core.lifecycle import State
from twophase.core.limits import CALLS_MAX
from twophase.core.redirect import Redirection
from twophase.destinations.base import Answer
from twophase.stores.rows import LiveRow

EVE = Act("eve", "the consumer is being repaired")
ONE_CALL = CoordinatorSettings(delivery=QUICK, check_back=QUICK, in_flight_per_destination_max=1)
THREE = ("http://c/1", "http://c/2", "http://c/3")
HOUR_MS = 3_600_000
MakeRig = Callable[..., Awaitable[Harness]]


async def park_while_called(harness: Harness, *urls: str, concurrent: bool = False) -> None:
    """Park a message while its first branch is called, and let that call succeed."""
    harness.destination.hold(urls[0])
    await harness.submit(message("g", *urls, concurrent=concurrent))
    await until(lambda: bool(harness.destination.calls))
    assert (await harness.coordinator.operator.park("g", EVE)).error is None
    harness.destination.release(urls[0])
    await harness.settled()


async def redrive(harness: Harness) -> None:
    assert (await harness.coordinator.operator.redrive("g", EVE)).error is None
    harness.clock.advance(64)
    await harness.until_state("g", State.SUCCEEDED)


async def branches_done(harness: Harness) -> int:
    row = await harness.store.get("g")
    assert row is not None
    return row.done


async def test_a_park_ends_the_round_of_branches_in_order(harness: Harness) -> None:
    await park_while_called(harness, *THREE)
    harness.clock.advance(HOUR_MS)
    await harness.settled()
    assert harness.destination.urls() == [THREE[0]]
    assert await branches_done(harness) == 0b001

    await redrive(harness)
    assert harness.destination.urls() == list(THREE)


async def test_a_redirect_does_not_move_what_succeeded_behind_the_park(harness: Harness) -> None:
    await park_while_called(harness, *THREE)
    redirection = Redirection("http://d", beginning="http://c")
    reply, moves = await harness.coordinator.operator.redirect("g", redirection, EVE, lambda *_: None)
    assert (reply.error, [move.branch_id for move in moves]) == (None, ["02", "03"])
    await redrive(harness)
    assert harness.destination.urls() == ["http://c/1", "http://d/2", "http://d/3"]


async def test_what_succeeded_behind_the_park_survives_a_restart(harness: Harness) -> None:
    await park_while_called(harness, *THREE)
    await harness.restart()
    await redrive(harness)
    assert harness.destination.urls() == list(THREE)


@pytest.mark.parametrize("concurrent", [False, True], ids=["in order", "concurrent"])
async def test_a_call_that_waits_for_its_turn_is_not_made(make_harness: MakeRig, concurrent: bool) -> None:
    harness = await make_harness(ONE_CALL)
    harness.destination.hold("http://c/busy")
    await harness.submit(message("busy", "http://c/busy"))
    await until(lambda: harness.destination.urls() == ["http://c/busy"])
    await harness.submit(message("g", *THREE, concurrent=concurrent))
    await until(lambda: harness.coordinator.gauges().branch_calls_waiting > 0)
    assert (await harness.coordinator.operator.park("g", EVE)).error is None

    harness.destination.release("http://c/busy")
    await harness.settled()
    assert harness.destination.urls() == ["http://c/busy"]
    gauges = harness.coordinator.gauges()
    assert (gauges.branch_calls, gauges.branch_calls_waiting, gauges.active) == (0, 0, 0)
    await redrive(harness)
    assert sorted(harness.destination.urls()) == sorted(("http://c/busy", *THREE))


async def test_a_question_that_waits_is_not_asked_behind_the_park_while_a_stop_keeps_the_message(
    make_harness: MakeRig,
) -> None:
    harness = await make_harness(ONE_CALL)
    harness.destination.hold(CHECK)
    await harness.prepare(message("busy"))
    harness.clock.advance(36_000)
    await until(lambda: len(harness.destination.calls) == 1)
    await harness.prepare(message("g"))
    harness.clock.advance(36_000)
    await until(lambda: harness.coordinator.gauges().check_backs_waiting == 1)
    harness.destination.script[CHECK].extend([Answer(500), Answer(500)])
    stop = asyncio.ensure_future(harness.coordinator.operator.stop("g", EVE))
    await until(lambda: harness.coordinator.gauges().check_backs_waiting == 2)
    assert (await harness.coordinator.operator.park("g", EVE)).error is None

    harness.destination.release(CHECK)
    assert isinstance((await asyncio.wait_for(stop, PATIENCE_S)).error, StateConflict)
    await harness.settled()
    assert [dict(call.query)["gid"] for call in harness.destination.calls].count("g") == 1, "the stop's question alone"
    row = await harness.store.get("g")
    assert isinstance(row, LiveRow)
    assert (row.state, row.parked) == (State.PREPARED, True)
    assert harness.coordinator.gauges().active == 0, "a parked message leaves memory"


async def test_concurrent_branches_that_are_called_finish_and_the_others_rest(make_harness: MakeRig) -> None:
    harness = await make_harness(ONE_CALL)
    await park_while_called(harness, *THREE, concurrent=True)
    assert harness.destination.urls() == [THREE[0]]
    assert await branches_done(harness) == 0b001
    await redrive(harness)
    assert sorted(harness.destination.urls()) == sorted(THREE)


async def test_a_redrive_before_the_turn_of_a_call_lets_it_be_made(make_harness: MakeRig) -> None:
    harness = await make_harness(ONE_CALL)
    harness.destination.hold(THREE[0])
    await harness.submit(message("g", *THREE, concurrent=True))
    await until(lambda: harness.coordinator.gauges().branch_calls_waiting == 2)
    await harness.coordinator.operator.park("g", EVE)
    await harness.coordinator.operator.redrive("g", EVE)
    harness.clock.advance(64)
    harness.destination.release(THREE[0])
    await harness.until_state("g", State.SUCCEEDED)
    assert sorted(harness.destination.urls()) == sorted(THREE)


async def test_a_subscriber_whose_turn_comes_behind_the_park_is_not_called(
    make_harness: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So the topic is not expanded at the submit: its subscribers are called one by one.
    monkeypatch.setattr("twophase.coordinator.topics.CALLS_MAX", msgspec.structs.replace(CALLS_MAX, value=1))
    harness = await make_harness(ONE_CALL)
    for url in THREE:
        await harness.coordinator.topics.subscribe("rates", url)
    await harness.prepare(message("g", IN, open=True))
    harness.destination.hold(THREE[0])
    await harness.submit(message("g", IN, "topic://rates", open=True))
    await until(lambda: harness.destination.urls() == [IN, THREE[0]])
    await harness.coordinator.operator.park("g", EVE)
    harness.destination.release(THREE[0])
    await harness.settled()
    assert harness.destination.urls() == [IN, THREE[0]]
    assert harness.coordinator.gauges().branch_calls_waiting == 0
    await redrive(harness)
    assert set(harness.destination.urls()) == {IN, *THREE}


async def test_a_client_that_waits_for_the_result_hears_of_the_end_of_the_round(harness: Harness) -> None:
    harness.destination.hold(THREE[0])
    reply = harness.submit_soon(message("g", *THREE, wait_result=True))
    await until(lambda: bool(harness.destination.calls))
    await harness.coordinator.operator.park("g", EVE)
    assert not reply.done()
    harness.destination.release(THREE[0])
    assert isinstance((await asyncio.wait_for(reply, PATIENCE_S)).error, NotYetDelivered)


async def test_a_producer_whose_turn_comes_behind_the_park_is_not_asked(make_harness: MakeRig) -> None:
    harness = await make_harness(ONE_CALL)
    harness.destination.hold(CHECK)
    for gid in ("busy", "g"):
        await harness.prepare(message(gid))
    harness.clock.advance(36_000)
    await until(lambda: harness.coordinator.gauges().check_backs_waiting == 1)
    asked = dict(harness.destination.calls[0].query)["gid"]
    other = "g" if asked == "busy" else "busy"
    assert (await harness.coordinator.operator.park(other, EVE)).error is None
    harness.destination.release(CHECK)
    await harness.until_state(asked, State.SUCCEEDED)
    harness.clock.advance(HOUR_MS)
    await harness.settled()
    assert harness.destination.urls() == [CHECK, IN]
    assert harness.coordinator.gauges().check_backs_waiting == 0

    await harness.coordinator.operator.redrive(other, EVE)
    harness.clock.advance(64)
    await harness.until_state(other, State.SUCCEEDED)


async def test_an_answer_undecided_behind_the_park_gives_no_other_time(harness: Harness) -> None:
    harness.destination.script[CHECK].append(Answer(425))
    harness.destination.hold(CHECK)
    await harness.prepare(message("g"))
    harness.clock.advance(36_000)
    await until(lambda: harness.destination.urls() == [CHECK])
    await harness.coordinator.operator.park("g", EVE)
    harness.destination.release(CHECK)
    harness.clock.advance(HOUR_MS)
    await harness.settled()
    assert harness.destination.urls() == [CHECK]
    view = await harness.coordinator.query("g")
    assert view is not None
    assert view.parked


async def test_a_stop_of_a_parked_message_asks_its_producer_all_the_same(harness: Harness) -> None:
    await harness.prepare(message("g"))
    await harness.coordinator.operator.park("g", EVE)
    reply = await harness.coordinator.operator.stop("g", EVE)
    assert isinstance(reply.error, StateConflict), "its producer says that it committed"
    assert harness.destination.urls()[0] == CHECK
    await harness.until_state("g", State.SUCCEEDED)


async def test_what_rests_leaves_memory(harness: Harness) -> None:
    await harness.prepare(message("parked"))
    await harness.coordinator.operator.park("parked", EVE)
    await harness.submit(message("delayed", delay_ms=HOUR_MS))
    await harness.submit(message("soon", delay_ms=30_000))
    await harness.prepare(message("prepared"))
    await harness.settled()
    left = [gid for gid in ("parked", "delayed", "soon", "prepared") if harness.coordinator._memory.get(gid) is None]
    assert left == ["parked", "delayed"]

    for gid in left:
        assert (await harness.submit(message(gid, delay_ms=HOUR_MS if gid == "delayed" else 0))).error is None
    await harness.settled()
    assert harness.coordinator._memory.get("delayed") is None, "a submit that is repeated does not bring it back"
    harness.clock.advance(HOUR_MS + 100)
    await harness.until_state("delayed", State.SUCCEEDED)


async def test_a_submit_behind_a_stop_that_is_refused_is_delivered(harness: Harness) -> None:
    """A parked message leaves memory, but not before the last request that waits."""
    parked = message("g", check_url="")
    await harness.prepare(parked)
    await harness.coordinator.operator.park("g", EVE)
    harness.store.open.clear()
    prepared = harness.prepare_soon(parked)
    stopped = asyncio.ensure_future(harness.coordinator.operator.stop("g", EVE))
    active = harness.coordinator._memory.get("g")
    assert active is not None
    await until(lambda: bool(active.queue))
    submitted = harness.submit_soon(parked)
    harness.store.open.set()

    assert (await asyncio.wait_for(prepared, PATIENCE_S)).error is None
    assert isinstance((await asyncio.wait_for(stopped, PATIENCE_S)).error, StateConflict)
    assert (await asyncio.wait_for(submitted, PATIENCE_S)).error is None
    await harness.settled()
    assert harness.destination.urls() == [IN]
    assert await harness.state("g") is State.SUCCEEDED
