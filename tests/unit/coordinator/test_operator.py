"""The acts of an operator: stop, park, redrive, retry now.

Each is recorded, none contradicts a verdict, and late results are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.coordinator.rig import CHECK, IN, OK, PATIENCE_S, QUICK, Rig, message
from twophase.coordinator.operator import Act
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import ContraryDecision, Overloaded, StateConflict, StoreError, UnknownMessage
from twophase.core.lifecycle import State
from twophase.core.options import Durability
from twophase.destinations.base import Answer
from twophase.stores.batch import Batch, Insert
from twophase.stores.rows import AttemptKind, DecidedBy
from twophase.stores.search import Search

EVE = Act("eve", "the order was cancelled")
REFUSED = Answer(500, b"no such account")
MakeRig = Callable[..., Awaitable[Rig]]


async def submitted(rig: Rig, gid: str = "g", *urls: str, retry_interval_ms: int = 0) -> None:
    """Submit a message whose branches fail, and whose next call waits."""
    for url in urls or (IN,):
        rig.destination.script[url].extend([REFUSED] * 50)
    await rig.submit(message(gid, *urls, retry_interval_ms=retry_interval_ms))
    await rig.until(lambda: IN in rig.destination.urls())
    await rig.settled()


async def acts(rig: Rig, gid: str = "g") -> list[tuple[str, str]]:
    """Return the recorded acts of operators."""
    await rig.settled()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            view = await rig.coordinator.query(gid)
            assert view is not None
            found = [(one.result, one.error) for one in view.log if one.kind is AttemptKind.OPERATOR]
            if found:
                return found
            await asyncio.sleep(0.002)


async def test_a_stop_of_a_prepared_message_asks_first_and_without_a_verdict_counts(rig: Rig) -> None:
    await rig.prepare(message("g"))
    rig.destination.script[CHECK].append(Answer(500, b"down"))

    reply = await rig.coordinator.operator.stop("g", EVE)

    view = await rig.coordinator.query("g")
    assert view is not None
    assert (reply.error, reply.state) == (None, State.FAILED)
    assert rig.destination.urls() == [CHECK]
    assert (view.state, view.decided_by) == (State.FAILED, DecidedBy.OPERATOR)
    assert view.reason == ("stopped by eve: the order was cancelled; the producer, asked first, answered unknown"), (
        "the override is told as one"
    )
    assert await acts(rig) == [("stop", "stopped by eve: the order was cancelled")]
    assert AttemptKind.CHECK_BACK in {one.kind for one in view.log}


async def test_a_committed_verdict_wins_over_the_operator(rig: Rig) -> None:
    await rig.prepare(message("g"))

    reply = await rig.coordinator.operator.stop("g", EVE)

    assert isinstance(reply.error, StateConflict)
    assert reply.state in (State.SUBMITTED, State.SUCCEEDED)
    await rig.until_state("g", State.SUCCEEDED)
    view = await rig.coordinator.query("g")
    assert view is not None
    assert view.decided_by == DecidedBy.CHECK_BACK
    assert await acts(rig) == [("stop", "stopped by eve: the order was cancelled")]


async def test_a_rolled_back_verdict_is_the_producers_own_word(rig: Rig) -> None:
    await rig.prepare(message("g"))
    rig.destination.script[CHECK].append(Answer(409, b"FAILURE"))

    reply = await rig.coordinator.operator.stop("g", EVE)

    view = await rig.coordinator.query("g")
    assert view is not None
    assert (reply.error, view.state, view.decided_by) == (None, State.FAILED, DecidedBy.CHECK_BACK)


async def test_a_message_that_cannot_be_asked_about_is_stopped_by_the_operator(rig: Rig) -> None:
    await rig.prepare(message("g", check_url=""))

    reply = await rig.coordinator.operator.stop("g", Act())

    view = await rig.coordinator.query("g")
    assert view is not None
    assert (reply.error, view.state) == (None, State.FAILED)
    assert view.reason == "stopped by an operator; it has no check-back address"


async def test_a_submit_that_comes_while_the_producer_is_asked_is_not_stopped(rig: Rig) -> None:
    await rig.prepare(message("g"))
    rig.destination.script[CHECK].append(Answer(500, b"down"))
    rig.destination.hold(CHECK)
    rig.destination.hold(IN)
    stop = asyncio.ensure_future(rig.coordinator.operator.stop("g", EVE))
    await rig.until(lambda: CHECK in rig.destination.urls())

    assert (await rig.submit(message("g"))).error is None
    rig.destination.release(CHECK)

    reply = await asyncio.wait_for(stop, PATIENCE_S)
    assert isinstance(reply.error, StateConflict)
    assert reply.state is State.SUBMITTED
    rig.destination.release(IN)
    await rig.until_state("g", State.SUCCEEDED)


async def test_an_abort_that_comes_while_the_producer_is_asked_is_what_the_operator_wanted(rig: Rig) -> None:
    await rig.prepare(message("g"))
    rig.destination.hold(CHECK)
    stop = asyncio.ensure_future(rig.coordinator.operator.stop("g", EVE))
    await rig.until(lambda: CHECK in rig.destination.urls())

    assert (await rig.abort("g")).error is None
    rig.destination.release(CHECK)

    reply = await asyncio.wait_for(stop, PATIENCE_S)
    assert (reply.error, reply.state) == (None, State.FAILED)
    view = await rig.coordinator.query("g")
    assert view is not None
    assert view.decided_by == DecidedBy.ABORT


async def test_a_producer_that_cannot_even_be_asked_leaves_all_as_it_is(make_rig: MakeRig) -> None:
    rig = await make_rig(
        CoordinatorSettings(
            delivery=QUICK, check_back=QUICK, request_timeout_ms=1, in_flight_per_destination_max=1, queue_waiting_max=1
        )
    )
    rig.destination.hold(CHECK)
    for gid in ("one", "two", "g"):
        await rig.prepare(message(gid))
    stops = [asyncio.ensure_future(rig.coordinator.operator.stop(gid, EVE)) for gid in ("one", "two")]
    await rig.until(lambda: rig.coordinator.gauges().check_backs_waiting == 1)

    crowded = await rig.coordinator.operator.stop("g", EVE)
    waited = await asyncio.wait_for(stops[1], PATIENCE_S)

    for reply in (crowded, waited):
        assert isinstance(reply.error, Overloaded)
        assert reply.state is State.PREPARED
    assert await rig.state("two") is State.PREPARED
    rig.destination.release(CHECK)
    await asyncio.wait_for(stops[0], PATIENCE_S)


async def test_an_operator_whose_answer_comes_while_the_coordinator_stops_is_answered(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop that is planned during the shutdown still has an answer.

    It is planned after the last look at the requests that wait for the store; without care its requester would get
    none.
    """
    get = rig.store.get

    async def look_up_until_cancelled(gid: str) -> object:
        if gid == "g":
            return await get(gid)
        try:
            return await asyncio.Event().wait()
        finally:
            rig.destination.release(CHECK)

    await rig.prepare(message("g"))
    rig.destination.hold(CHECK)
    stop = asyncio.ensure_future(rig.coordinator.operator.stop("g", EVE))
    await rig.until(lambda: rig.destination.urls() == [CHECK])
    monkeypatch.setattr(rig.store, "get", look_up_until_cancelled)
    rig.coordinator.abort("looked up", lambda _: None)
    await rig.until(lambda: rig.coordinator._admission.looking_up == 1)

    await rig.coordinator.stop()

    assert isinstance((await asyncio.wait_for(stop, PATIENCE_S)).error, StoreError)


async def test_a_submitted_message_is_stopped_and_called_no_more(rig: Rig) -> None:
    await submitted(rig)

    reply = await rig.coordinator.operator.stop("g", EVE)

    view = await rig.coordinator.query("g")
    assert view is not None
    assert (reply.error, view.state, view.decided_by) == (None, State.FAILED, DecidedBy.OPERATOR)
    assert view.reason == "stopped by eve: the order was cancelled"
    calls = len(rig.destination.calls)
    rig.clock.advance(3_600_000)
    await rig.settled()
    assert len(rig.destination.calls) == calls


async def test_a_result_that_comes_after_the_stop_is_recorded_and_not_applied(rig: Rig) -> None:
    rig.destination.hold(IN)
    await rig.submit(message("g", IN, "http://bank-c/in"))
    await rig.until(lambda: IN in rig.destination.urls())

    assert (await rig.coordinator.operator.stop("g", EVE)).error is None
    rig.destination.release(IN)
    await acts(rig)
    await rig.settled()

    async with asyncio.timeout(PATIENCE_S):
        while True:
            view = await rig.coordinator.query("g")
            assert view is not None
            late = [one for one in view.log if one.kind is AttemptKind.BRANCH]
            if late:
                break
            await asyncio.sleep(0.002)
    assert view.state is State.FAILED
    assert [(one.branch_id, one.status, one.error) for one in late] == [
        ("01", 200, "succeeded arrived late, the message was failed")
    ]
    assert rig.destination.urls() == [IN], "the next branch is not called"


async def test_a_client_that_waits_for_the_result_learns_of_the_stop(rig: Rig) -> None:
    rig.destination.hold(IN)
    waiting = rig.submit_soon(message("g", wait_result=True))
    await rig.until(lambda: IN in rig.destination.urls())

    await rig.coordinator.operator.stop("g", EVE)

    reply = await asyncio.wait_for(waiting, PATIENCE_S)
    assert isinstance(reply.error, ContraryDecision)
    assert reply.state is State.FAILED
    rig.destination.release(IN)


async def test_what_is_final_or_unknown_cannot_be_operated_on_and_leaves_no_record(rig: Rig) -> None:
    await rig.submit(message("done"))
    await rig.until_state("done", State.SUCCEEDED)
    operator = rig.coordinator.operator

    for act in (operator.stop, operator.park, operator.redrive, operator.retry_now):
        assert isinstance((await act("nobody", EVE)).error, UnknownMessage)
        reply = await act("done", EVE)
        assert isinstance(reply.error, StateConflict)
        assert reply.state is State.SUCCEEDED
    await rig.settled()
    view = await rig.coordinator.query("done")
    assert view is not None
    assert list(view.log) == []
    assert await rig.store.attempts("nobody") == []


async def test_a_message_with_check_back_durability_is_stopped_while_it_is_delivered(rig: Rig) -> None:
    rig.destination.hold(IN)
    early = message("g", durability=Durability.CHECK_BACK)
    await rig.prepare(early)
    assert (await rig.submit(early)).error is None
    await rig.until(lambda: IN in rig.destination.urls())

    reply = await rig.coordinator.operator.stop("g", EVE)

    assert (reply.error, await rig.state("g")) == (None, State.FAILED)
    rig.destination.release(IN)


async def test_a_parked_message_rests_until_it_is_redriven(rig: Rig) -> None:
    await submitted(rig)

    assert (await rig.coordinator.operator.park("g", EVE)).error is None
    calls = len(rig.destination.calls)
    rig.clock.advance(3_600_000)
    await rig.settled()
    assert len(rig.destination.calls) == calls
    view = await rig.coordinator.query("g")
    assert view is not None
    assert (view.state, view.parked) == (State.SUBMITTED, True)

    rig.destination.script[IN].clear()
    assert (await rig.coordinator.operator.redrive("g", Act("adam"))).error is None
    rig.clock.advance(64)
    await rig.until_state("g", State.SUCCEEDED)
    assert await acts(rig) == [("park", "parked by eve: the order was cancelled"), ("redrive", "redriven by adam")]


async def test_a_park_survives_a_restart(rig: Rig) -> None:
    await submitted(rig)
    await rig.coordinator.operator.park("g", EVE)

    await rig.restart()
    calls = len(rig.destination.calls)
    rig.clock.advance(3_600_000)
    await rig.settled()

    assert len(rig.destination.calls) == calls
    assert await acts(rig) == [("park", "parked by eve: the order was cancelled")]


async def test_a_submit_that_is_repeated_after_a_restart_does_not_end_the_parking(rig: Rig) -> None:
    await submitted(rig)
    await rig.coordinator.operator.park("g", EVE)
    await rig.restart()
    calls = len(rig.destination.calls)

    assert (await rig.submit(message("g"))).error is None
    rig.clock.advance(3_600_000)
    await rig.settled()

    assert len(rig.destination.calls) == calls


async def test_a_park_while_a_call_is_under_way_lets_its_success_count(rig: Rig) -> None:
    rig.destination.hold(IN)
    await rig.submit(message("g"))
    await rig.until(lambda: IN in rig.destination.urls())

    await rig.coordinator.operator.park("g", EVE)
    rig.destination.release(IN)

    await rig.until_state("g", State.SUCCEEDED)


async def test_a_park_of_a_message_with_check_back_durability_stores_its_decision_first(rig: Rig) -> None:
    rig.destination.hold(IN)
    rig.destination.script[IN].append(REFUSED)
    early = message("g", durability=Durability.CHECK_BACK)
    await rig.prepare(early)
    await rig.submit(early)
    await rig.until(lambda: IN in rig.destination.urls())

    assert (await rig.coordinator.operator.park("g", EVE)).error is None
    view = await rig.coordinator.query("g")
    assert view is not None
    assert (view.state, view.parked, view.decided_by) == (State.SUBMITTED, True, DecidedBy.SUBMIT)

    rig.destination.release(IN)
    await rig.settled()
    view = await rig.coordinator.query("g")
    assert view is not None
    assert (view.state, view.parked) == (State.SUBMITTED, True)


async def test_a_retry_now_does_not_wait_for_the_pause(rig: Rig) -> None:
    await submitted(rig, retry_interval_ms=600_000)
    rig.destination.script[IN].clear()

    assert (await rig.coordinator.operator.retry_now("g", EVE)).error is None
    rig.clock.advance(64)

    await rig.until_state("g", State.SUCCEEDED)
    assert await acts(rig) == [("retry-now", "tried now by eve: the order was cancelled")]


async def test_a_retry_now_asks_no_producer_before_its_time(rig: Rig) -> None:
    await rig.prepare(message("g"))

    assert (await rig.coordinator.operator.retry_now("g", EVE)).error is None
    rig.clock.advance(64)
    await rig.settled()
    assert rig.destination.urls() == []

    rig.destination.script[CHECK].append(Answer(500))
    rig.clock.advance(35_100)
    await rig.until(lambda: len(rig.destination.calls) == 1)
    await rig.settled()
    assert (await rig.coordinator.operator.retry_now("g", EVE)).error is None
    rig.clock.advance(64)
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_retry_now_delivers_nothing_before_its_delay(rig: Rig) -> None:
    await rig.submit(message("g", delay_ms=60_000))

    await rig.coordinator.operator.retry_now("g", EVE)
    rig.clock.advance(64)
    await rig.settled()

    assert rig.destination.urls() == []
    rig.clock.advance(60_100)
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_retry_now_beside_a_call_under_way_calls_no_second_time(rig: Rig) -> None:
    rig.destination.hold(IN)
    await rig.submit(message("g"))
    await rig.until(lambda: IN in rig.destination.urls())

    assert (await rig.coordinator.operator.retry_now("g", EVE)).error is None
    rig.clock.advance(64)
    await rig.settled()

    assert rig.destination.urls() == [IN]
    rig.destination.release(IN)
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_parked_message_is_not_tried_now(rig: Rig) -> None:
    await submitted(rig)
    await rig.coordinator.operator.park("g", EVE)

    reply = await rig.coordinator.operator.retry_now("g", EVE)

    assert isinstance(reply.error, StateConflict)
    assert "Redrive" in reply.error.remedy


async def test_what_waits_too_long_is_tried_now_and_what_has_its_time_is_not(rig: Rig) -> None:
    for gid in ("a", "b", "c"):
        rig.destination.script[f"http://{gid}/in"].append(REFUSED)
        await rig.submit(message(gid, f"http://{gid}/in", retry_interval_ms=600_000))
    await rig.submit(message("delayed", delay_ms=600_000))
    await rig.until(lambda: len(rig.destination.calls) == 3)
    await rig.settled()
    operator = rig.coordinator.operator

    assert await operator.retry_later_ones(700_000, 10, EVE) == (0, False)
    assert await operator.retry_later_ones(100_000, 2, EVE) == (2, True)
    assert await operator.retry_later_ones(100_000, 2, EVE) == (1, False)
    rig.clock.advance(64)
    for gid in ("a", "b", "c"):
        await rig.until_state(gid, State.SUCCEEDED)
    assert await operator.retry_later_ones(100_000, 2, EVE) == (0, False)
    assert await rig.state("delayed") is State.SUBMITTED


async def test_messages_are_found_with_what_cannot_be_read_among_them(rig: Rig) -> None:
    await rig.submit(message("done"))
    await rig.until_state("done", State.SUCCEEDED)
    await rig.prepare(message("waits"))
    await rig.store.flush(Batch([Insert("broken", State.PREPARED, 60_000, b"\xc1")], []))

    views, position = await rig.coordinator.search(Search(), "", 10)

    assert [(view.message.gid, len(view.message.branches)) for view in views] == [
        ("waits", 1),
        ("broken", 0),
        ("done", 1),
    ]
    assert position == ""


async def test_a_record_holds_no_line_breaks_and_is_bounded(rig: Rig) -> None:
    await submitted(rig)

    await rig.coordinator.operator.park("g", Act("e\nve" + "e" * 500, "because\r\n\x00" + "x" * 5_000))

    ((_, told),) = await acts(rig)
    assert told.isprintable()
    assert told.startswith("parked by e vee")
    assert len(told) <= 512


async def test_the_act_is_in_the_commit_that_it_caused(rig: Rig) -> None:
    await submitted(rig)

    await rig.coordinator.operator.park("g", EVE)

    (batch,) = [one for one in rig.store.batches if any(a.kind is AttemptKind.OPERATOR for a in one.attempts)]
    assert [item.gid for item in batch.items] == ["g"]


async def test_an_operator_is_refused_like_any_client_while_the_coordinator_drains(rig: Rig) -> None:
    await submitted(rig)
    await rig.coordinator.drain(100)

    reply = await rig.coordinator.operator.park("g", EVE)

    assert reply.error is not None
    assert reply.error.code == "TP-3002"


@pytest.mark.parametrize("answer", [OK, Answer(409, b"FAILURE")])
async def test_a_verdict_after_the_stop_changes_nothing(rig: Rig, answer: Answer) -> None:
    await rig.prepare(message("g"))
    rig.clock.advance(34_000)
    rig.destination.script[CHECK].extend([Answer(500), answer])
    assert (await rig.coordinator.operator.stop("g", EVE)).error is None

    rig.clock.advance(100_000)
    await rig.settled()

    assert await rig.state("g") is State.FAILED
    assert rig.destination.urls() == [CHECK]
