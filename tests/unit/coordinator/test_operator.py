"""The acts of an operator: stop, park, redrive, retry now.

Each is recorded, none contradicts a verdict, and late results are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, OK, PATIENCE_S, QUICK, Harness, message
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
EVE_OVERRIDES = Act("eve", "the order was cancelled", override=True)
REFUSED = Answer(500, b"no such account")
MakeRig = Callable[..., Awaitable[Harness]]


async def submitted(harness: Harness, gid: str = "g", *urls: str, retry_interval_ms: int = 0) -> None:
    """Submit a message whose branches fail, and whose next call waits."""
    for url in urls or (IN,):
        harness.destination.script[url].extend([REFUSED] * 50)
    await harness.submit(message(gid, *urls, retry_interval_ms=retry_interval_ms))
    await until(lambda: IN in harness.destination.urls())
    await harness.settled()


async def acts(harness: Harness, gid: str = "g") -> list[tuple[str, str]]:
    """Return the recorded acts of operators."""
    await harness.settled()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            view = await harness.coordinator.query(gid)
            assert view is not None
            found = [(one.result, one.error) for one in view.log if one.kind is AttemptKind.OPERATOR]
            if found:
                return found
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("answer", [Answer(500, b"down"), Answer(425)], ids=["unknown", "in progress"])
async def test_a_stop_of_a_prepared_message_without_a_verdict_is_refused(harness: Harness, answer: Answer) -> None:
    await harness.prepare(message("g"))
    harness.destination.script[CHECK].append(answer)

    reply = await harness.coordinator.operator.stop("g", EVE)

    assert isinstance(reply.error, StateConflict)
    assert "--override" in str(reply.error.remedy)
    assert (reply.state, harness.destination.urls()) == (State.PREPARED, [CHECK])
    assert await harness.state("g") is State.PREPARED
    assert (await harness.submit(message("g"))).error is None, "its producer decides it"
    await harness.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize("parked", [False, True])
async def test_a_message_without_a_check_back_address_is_not_stopped_without_an_override(
    harness: Harness, *, parked: bool
) -> None:
    await harness.prepare(message("g", check_url=""))
    if parked:
        await harness.coordinator.operator.park("g", EVE)

    reply = await harness.coordinator.operator.stop("g", EVE)

    assert isinstance(reply.error, StateConflict)
    assert await harness.state("g") is State.PREPARED


async def test_a_stop_of_a_prepared_message_asks_first_and_without_a_verdict_counts(harness: Harness) -> None:
    await harness.prepare(message("g"))
    harness.destination.script[CHECK].append(Answer(500, b"down"))

    reply = await harness.coordinator.operator.stop("g", EVE_OVERRIDES)

    view = await harness.coordinator.query("g")
    assert view is not None
    assert (reply.error, reply.state) == (None, State.FAILED)
    assert harness.destination.urls() == [CHECK]
    assert (view.state, view.decided_by) == (State.FAILED, DecidedBy.OPERATOR)
    assert view.reason == ("stopped by eve: the order was cancelled; the producer, asked first, answered unknown"), (
        "the override is told as one"
    )
    assert await acts(harness) == [("stop", "stopped by eve: the order was cancelled")]
    assert AttemptKind.CHECK_BACK in {one.kind for one in view.log}


@pytest.mark.parametrize("act", [EVE, EVE_OVERRIDES])
async def test_a_committed_verdict_wins_over_the_operator(harness: Harness, act: Act) -> None:
    await harness.prepare(message("g"))

    reply = await harness.coordinator.operator.stop("g", act)

    assert isinstance(reply.error, StateConflict)
    assert reply.state in (State.SUBMITTED, State.SUCCEEDED)
    await harness.until_state("g", State.SUCCEEDED)
    view = await harness.coordinator.query("g")
    assert view is not None
    assert view.decided_by == DecidedBy.CHECK_BACK
    assert await acts(harness) == [("stop", "stopped by eve: the order was cancelled")]


async def test_a_rolled_back_verdict_is_the_producers_own_word(harness: Harness) -> None:
    await harness.prepare(message("g"))
    harness.destination.script[CHECK].append(Answer(409, b"FAILURE"))

    reply = await harness.coordinator.operator.stop("g", EVE)

    view = await harness.coordinator.query("g")
    assert view is not None
    assert (reply.error, view.state, view.decided_by) == (None, State.FAILED, DecidedBy.CHECK_BACK)


async def test_a_message_that_cannot_be_asked_about_is_stopped_by_the_operator(harness: Harness) -> None:
    await harness.prepare(message("g", check_url=""))

    reply = await harness.coordinator.operator.stop("g", Act(override=True))

    view = await harness.coordinator.query("g")
    assert view is not None
    assert (reply.error, view.state) == (None, State.FAILED)
    assert view.reason == "stopped by an operator; it has no check-back address"


async def test_a_stop_of_prepared_ones_alone_never_ends_a_submitted_one(harness: Harness) -> None:
    prepared_only = Act("eve", "the order was cancelled", override=True, prepared_only=True)
    for number in range(10):
        gid = f"g{number}"
        await harness.prepare(message(gid))
        harness.destination.script[CHECK].append(Answer(500, b"down"))

        submit, stop = await asyncio.gather(
            harness.submit(message(gid)), harness.coordinator.operator.stop(gid, prepared_only)
        )

        assert submit.error is None
        assert isinstance(stop.error, StateConflict)
        await harness.until_state(gid, State.SUCCEEDED)


async def test_a_submit_that_comes_while_the_producer_is_asked_is_not_stopped(harness: Harness) -> None:
    await harness.prepare(message("g"))
    harness.destination.script[CHECK].append(Answer(500, b"down"))
    harness.destination.hold(CHECK)
    harness.destination.hold(IN)
    stop = asyncio.ensure_future(harness.coordinator.operator.stop("g", EVE_OVERRIDES))
    await until(lambda: CHECK in harness.destination.urls())

    assert (await harness.submit(message("g"))).error is None
    harness.destination.release(CHECK)

    reply = await asyncio.wait_for(stop, PATIENCE_S)
    assert isinstance(reply.error, StateConflict)
    assert reply.state is State.SUBMITTED
    harness.destination.release(IN)
    await harness.until_state("g", State.SUCCEEDED)


async def test_an_abort_that_comes_while_the_producer_is_asked_is_what_the_operator_wanted(harness: Harness) -> None:
    await harness.prepare(message("g"))
    harness.destination.hold(CHECK)
    stop = asyncio.ensure_future(harness.coordinator.operator.stop("g", EVE))
    await until(lambda: CHECK in harness.destination.urls())

    assert (await harness.abort("g")).error is None
    harness.destination.release(CHECK)

    reply = await asyncio.wait_for(stop, PATIENCE_S)
    assert (reply.error, reply.state) == (None, State.FAILED)
    view = await harness.coordinator.query("g")
    assert view is not None
    assert view.decided_by == DecidedBy.ABORT


@pytest.mark.parametrize(
    ("decide", "state", "contrary"),
    [("submit", State.SUCCEEDED, Answer(409)), ("abort", State.FAILED, Answer(200))],
)
async def test_a_contrary_verdict_for_a_stop_that_came_too_late_is_an_incident(
    harness: Harness, decide: str, state: State, contrary: Answer
) -> None:
    await harness.prepare(message("g"))
    harness.destination.hold(CHECK)
    harness.destination.script[CHECK].append(contrary)
    stop = asyncio.ensure_future(harness.coordinator.operator.stop("g", EVE))
    await until(lambda: CHECK in harness.destination.urls())
    assert (await (harness.submit(message("g")) if decide == "submit" else harness.abort("g"))).error is None
    await harness.until_state("g", state)
    await until(lambda: not harness.coordinator.gauges().active)

    harness.destination.release(CHECK)

    reply = await asyncio.wait_for(stop, PATIENCE_S)
    assert reply.state is state
    await until(lambda: len(harness.watcher.incidents) == 1)
    await harness.settled()
    view = await harness.coordinator.query("g")
    assert view is not None
    assert view.state is state
    assert [one.error for one in view.log if one.kind is AttemptKind.INCIDENT] == [harness.watcher.incidents[0][1]]


async def test_a_producer_that_cannot_even_be_asked_leaves_all_as_it_is(make_harness: MakeRig) -> None:
    harness = await make_harness(
        CoordinatorSettings(
            delivery=QUICK, check_back=QUICK, request_timeout_ms=1, in_flight_per_destination_max=1, queue_waiting_max=1
        )
    )
    harness.destination.hold(CHECK)
    for gid in ("one", "two", "g"):
        await harness.prepare(message(gid))
    stops = [asyncio.ensure_future(harness.coordinator.operator.stop(gid, EVE)) for gid in ("one", "two")]
    await until(lambda: harness.coordinator.gauges().check_backs_waiting == 1)

    crowded = await harness.coordinator.operator.stop("g", EVE)
    waited = await asyncio.wait_for(stops[1], PATIENCE_S)

    for reply in (crowded, waited):
        assert isinstance(reply.error, Overloaded)
        assert reply.state is State.PREPARED
    assert await harness.state("two") is State.PREPARED
    harness.destination.release(CHECK)
    await asyncio.wait_for(stops[0], PATIENCE_S)


async def test_an_operator_whose_answer_comes_while_the_coordinator_stops_is_answered(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop that is planned during the shutdown still has an answer.

    It is planned after the last look at the requests that wait for the store; without care its requester would get
    none.
    """
    get = harness.store.get

    async def look_up_until_cancelled(gid: str) -> object:
        if gid == "g":
            return await get(gid)
        try:
            return await asyncio.Event().wait()
        finally:
            harness.destination.release(CHECK)

    await harness.prepare(message("g"))
    harness.destination.hold(CHECK)
    stop = asyncio.ensure_future(harness.coordinator.operator.stop("g", EVE))
    await until(lambda: harness.destination.urls() == [CHECK])
    monkeypatch.setattr(harness.store, "get", look_up_until_cancelled)
    harness.coordinator.abort("looked up", lambda _: None)
    await until(lambda: harness.coordinator._admission.looking_up == 1)

    await harness.coordinator.stop()

    assert isinstance((await asyncio.wait_for(stop, PATIENCE_S)).error, StoreError)


async def test_a_submitted_message_is_stopped_and_called_no_more(harness: Harness) -> None:
    await submitted(harness)

    reply = await harness.coordinator.operator.stop("g", EVE)

    view = await harness.coordinator.query("g")
    assert view is not None
    assert (reply.error, view.state, view.decided_by) == (None, State.FAILED, DecidedBy.OPERATOR)
    assert view.reason == "stopped by eve: the order was cancelled"
    calls = len(harness.destination.calls)
    harness.clock.advance(3_600_000)
    await harness.settled()
    assert len(harness.destination.calls) == calls


async def test_a_result_that_comes_after_the_stop_is_recorded_and_not_applied(harness: Harness) -> None:
    harness.destination.hold(IN)
    await harness.submit(message("g", IN, "http://bank-c/in"))
    await until(lambda: IN in harness.destination.urls())

    assert (await harness.coordinator.operator.stop("g", EVE)).error is None
    harness.destination.release(IN)
    await acts(harness)
    await harness.settled()

    async with asyncio.timeout(PATIENCE_S):
        while True:
            view = await harness.coordinator.query("g")
            assert view is not None
            late = [one for one in view.log if one.kind is AttemptKind.BRANCH]
            if late:
                break
            await asyncio.sleep(0.002)
    assert view.state is State.FAILED
    assert [(one.branch_id, one.status, one.error) for one in late] == [
        ("01", 200, "succeeded arrived late, the message was failed")
    ]
    assert harness.destination.urls() == [IN], "the next branch is not called"


async def test_a_client_that_waits_for_the_result_learns_of_the_stop(harness: Harness) -> None:
    harness.destination.hold(IN)
    waiting = harness.submit_soon(message("g", wait_result=True))
    await until(lambda: IN in harness.destination.urls())

    await harness.coordinator.operator.stop("g", EVE)

    reply = await asyncio.wait_for(waiting, PATIENCE_S)
    assert isinstance(reply.error, ContraryDecision)
    assert reply.state is State.FAILED
    harness.destination.release(IN)


async def test_what_is_final_or_unknown_cannot_be_operated_on_and_leaves_no_record(harness: Harness) -> None:
    await harness.submit(message("done"))
    await harness.until_state("done", State.SUCCEEDED)
    operator = harness.coordinator.operator

    for act in (operator.stop, operator.park, operator.redrive, operator.retry_now):
        assert isinstance((await act("nobody", EVE)).error, UnknownMessage)
        reply = await act("done", EVE)
        assert isinstance(reply.error, StateConflict)
        assert reply.state is State.SUCCEEDED
    await harness.settled()
    view = await harness.coordinator.query("done")
    assert view is not None
    assert list(view.log) == []
    assert await harness.store.attempts("nobody") == []


async def test_a_message_with_check_back_durability_is_stopped_while_it_is_delivered(harness: Harness) -> None:
    harness.destination.hold(IN)
    early = message("g", durability=Durability.CHECK_BACK)
    await harness.prepare(early)
    assert (await harness.submit(early)).error is None
    await until(lambda: IN in harness.destination.urls())

    reply = await harness.coordinator.operator.stop("g", EVE)

    assert (reply.error, await harness.state("g")) == (None, State.FAILED)
    harness.destination.release(IN)


async def test_a_parked_message_rests_until_it_is_redriven(harness: Harness) -> None:
    await submitted(harness)

    assert (await harness.coordinator.operator.park("g", EVE)).error is None
    calls = len(harness.destination.calls)
    harness.clock.advance(3_600_000)
    await harness.settled()
    assert len(harness.destination.calls) == calls
    view = await harness.coordinator.query("g")
    assert view is not None
    assert (view.state, view.parked) == (State.SUBMITTED, True)

    harness.destination.script[IN].clear()
    assert (await harness.coordinator.operator.redrive("g", Act("adam"))).error is None
    harness.clock.advance(64)
    await harness.until_state("g", State.SUCCEEDED)
    assert await acts(harness) == [("park", "parked by eve: the order was cancelled"), ("redrive", "redriven by adam")]


async def test_a_park_survives_a_restart(harness: Harness) -> None:
    await submitted(harness)
    await harness.coordinator.operator.park("g", EVE)

    await harness.restart()
    calls = len(harness.destination.calls)
    harness.clock.advance(3_600_000)
    await harness.settled()

    assert len(harness.destination.calls) == calls
    assert await acts(harness) == [("park", "parked by eve: the order was cancelled")]


async def test_a_submit_that_is_repeated_after_a_restart_does_not_end_the_parking(harness: Harness) -> None:
    await submitted(harness)
    await harness.coordinator.operator.park("g", EVE)
    await harness.restart()
    calls = len(harness.destination.calls)

    assert (await harness.submit(message("g"))).error is None
    harness.clock.advance(3_600_000)
    await harness.settled()

    assert len(harness.destination.calls) == calls


async def test_a_park_while_a_call_is_under_way_lets_its_success_count(harness: Harness) -> None:
    harness.destination.hold(IN)
    await harness.submit(message("g"))
    await until(lambda: IN in harness.destination.urls())

    await harness.coordinator.operator.park("g", EVE)
    harness.destination.release(IN)

    await harness.until_state("g", State.SUCCEEDED)


async def test_a_park_of_a_message_with_check_back_durability_stores_its_decision_first(harness: Harness) -> None:
    harness.destination.hold(IN)
    harness.destination.script[IN].append(REFUSED)
    early = message("g", durability=Durability.CHECK_BACK)
    await harness.prepare(early)
    await harness.submit(early)
    await until(lambda: IN in harness.destination.urls())

    assert (await harness.coordinator.operator.park("g", EVE)).error is None
    view = await harness.coordinator.query("g")
    assert view is not None
    assert (view.state, view.parked, view.decided_by) == (State.SUBMITTED, True, DecidedBy.SUBMIT)

    harness.destination.release(IN)
    await harness.settled()
    view = await harness.coordinator.query("g")
    assert view is not None
    assert (view.state, view.parked) == (State.SUBMITTED, True)


async def test_a_retry_now_does_not_wait_for_the_pause(harness: Harness) -> None:
    await submitted(harness, retry_interval_ms=600_000)
    harness.destination.script[IN].clear()

    assert (await harness.coordinator.operator.retry_now("g", EVE)).error is None
    harness.clock.advance(64)

    await harness.until_state("g", State.SUCCEEDED)
    assert await acts(harness) == [("retry-now", "tried now by eve: the order was cancelled")]


async def test_a_retry_now_asks_no_producer_before_its_time(harness: Harness) -> None:
    await harness.prepare(message("g"))

    assert (await harness.coordinator.operator.retry_now("g", EVE)).error is None
    harness.clock.advance(64)
    await harness.settled()
    assert harness.destination.urls() == []

    harness.destination.script[CHECK].append(Answer(500))
    harness.clock.advance(35_100)
    await until(lambda: len(harness.destination.calls) == 1)
    await harness.settled()
    assert (await harness.coordinator.operator.retry_now("g", EVE)).error is None
    harness.clock.advance(64)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_retry_now_delivers_nothing_before_its_delay(harness: Harness) -> None:
    await harness.submit(message("g", delay_ms=60_000))

    await harness.coordinator.operator.retry_now("g", EVE)
    harness.clock.advance(64)
    await harness.settled()

    assert harness.destination.urls() == []
    harness.clock.advance(60_100)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_retry_now_beside_a_call_under_way_calls_no_second_time(harness: Harness) -> None:
    harness.destination.hold(IN)
    await harness.submit(message("g"))
    await until(lambda: IN in harness.destination.urls())

    assert (await harness.coordinator.operator.retry_now("g", EVE)).error is None
    harness.clock.advance(64)
    await harness.settled()

    assert harness.destination.urls() == [IN]
    harness.destination.release(IN)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_parked_message_is_not_tried_now(harness: Harness) -> None:
    await submitted(harness)
    await harness.coordinator.operator.park("g", EVE)

    reply = await harness.coordinator.operator.retry_now("g", EVE)

    assert isinstance(reply.error, StateConflict)
    assert "Redrive" in reply.error.remedy


async def test_what_waits_too_long_is_tried_now_and_what_has_its_time_is_not(harness: Harness) -> None:
    for gid in ("a", "b", "c"):
        harness.destination.script[f"http://{gid}/in"].append(REFUSED)
        await harness.submit(message(gid, f"http://{gid}/in", retry_interval_ms=600_000))
    await harness.submit(message("delayed", delay_ms=600_000))
    await until(lambda: len(harness.destination.calls) == 3)
    await harness.settled()
    operator = harness.coordinator.operator

    assert await operator.retry_later_ones(700_000, 10, EVE) == (0, False)
    assert await operator.retry_later_ones(100_000, 2, EVE) == (2, True)
    assert await operator.retry_later_ones(100_000, 2, EVE) == (1, False)
    harness.clock.advance(64)
    for gid in ("a", "b", "c"):
        await harness.until_state(gid, State.SUCCEEDED)
    assert await operator.retry_later_ones(100_000, 2, EVE) == (0, False)
    assert await harness.state("delayed") is State.SUBMITTED


async def test_messages_are_found_with_what_cannot_be_read_among_them(harness: Harness) -> None:
    await harness.submit(message("done"))
    await harness.until_state("done", State.SUCCEEDED)
    await harness.prepare(message("waits"))
    await harness.store.flush(Batch([Insert("broken", State.PREPARED, 60_000, b"\xc1")], []))

    views, position = await harness.coordinator.search(Search(), "", 10)

    assert [(view.message.gid, len(view.message.branches)) for view in views] == [
        ("waits", 1),
        ("broken", 0),
        ("done", 1),
    ]
    assert position == ""


async def test_a_record_holds_no_line_breaks_and_is_bounded(harness: Harness) -> None:
    await submitted(harness)

    await harness.coordinator.operator.park("g", Act("e\nve" + "e" * 500, "because\r\n\x00" + "x" * 5_000))

    ((_, told),) = await acts(harness)
    assert told.isprintable()
    assert told.startswith("parked by e vee")
    assert len(told) <= 512


async def test_the_act_is_in_the_commit_that_it_caused(harness: Harness) -> None:
    await submitted(harness)

    await harness.coordinator.operator.park("g", EVE)

    (batch,) = [one for one in harness.store.batches if any(a.kind is AttemptKind.OPERATOR for a in one.attempts)]
    assert [item.gid for item in batch.items] == ["g"]


async def test_an_operator_is_refused_like_any_client_while_the_coordinator_drains(harness: Harness) -> None:
    await submitted(harness)
    await harness.coordinator.drain(100)

    reply = await harness.coordinator.operator.park("g", EVE)

    assert reply.error is not None
    assert reply.error.code == "TP-3002"


@pytest.mark.parametrize("answer", [OK, Answer(409, b"FAILURE")])
async def test_a_verdict_after_the_stop_changes_nothing(harness: Harness, answer: Answer) -> None:
    await harness.prepare(message("g"))
    harness.clock.advance(34_000)
    harness.destination.script[CHECK].extend([Answer(500), answer])
    assert (await harness.coordinator.operator.stop("g", EVE_OVERRIDES)).error is None

    harness.clock.advance(100_000)
    await harness.settled()

    assert await harness.state("g") is State.FAILED
    assert harness.destination.urls() == [CHECK]
