"""`durability="check-back"`: a submit counts before it is flushed.

The check-back recovers a submit that was lost (rule 25).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, QUICK, Harness, message
from tests.unit.coordinator.test_attempts_max import MakeRig
from twophase.coordinator.operator import Act
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import Refused, StoreFull
from twophase.core.lifecycle import State
from twophase.core.options import Durability
from twophase.core.redirect import Redirection
from twophase.destinations.base import Answer
from twophase.stores.batch import Batch, DecideEarly, Finish, Insert, Reschedule
from twophase.stores.rows import DecidedBy, HistoryRow, LiveRow

ALSO = "http://bank-c/in"
NEW = "http://bank-d/in"
EARLY: dict[str, Any] = {"durability": Durability.CHECK_BACK, "explicit_verdict": True}


async def test_a_submit_is_acknowledged_and_its_branches_are_called_before_any_flush(harness: Harness) -> None:
    await harness.prepare(message("g", **EARLY))
    harness.store.open.clear()
    reply = await harness.submit(message("g", **EARLY))
    assert (reply.error, reply.state) == (None, State.SUBMITTED)
    await until(lambda: harness.destination.urls() == [IN])
    assert await harness.state("g") is State.PREPARED
    harness.store.open.set()
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_message_that_succeeds_at_once_is_one_change_and_says_who_decided(harness: Harness) -> None:
    await harness.prepare(message("g", **EARLY))
    await harness.submit(message("g", **EARLY))
    await harness.until_state("g", State.SUCCEEDED)
    changes = [type(item) for batch in harness.store.batches for item in batch.items]
    row = await harness.store.get("g")
    assert changes == [Insert, Finish]
    assert isinstance(row, HistoryRow)
    assert row.decided_by == DecidedBy.SUBMIT


async def test_a_branch_that_fails_makes_the_decision_durable_before_the_next_call(harness: Harness) -> None:
    harness.destination.script[IN].append(Answer(500))
    await harness.prepare(message("g", **EARLY))
    await harness.submit(message("g", **EARLY))
    await harness.until_state("g", State.SUBMITTED)
    await harness.settled()
    await harness.restart()
    harness.clock.advance(2_000)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN, IN]


async def test_branches_that_have_succeeded_are_not_called_again_with_those_that_have_not(harness: Harness) -> None:
    harness.destination.script[ALSO].append(Answer(500))
    await harness.prepare(message("g", IN, ALSO, **EARLY))
    await harness.submit(message("g", IN, ALSO, **EARLY))
    await harness.until_state("g", State.SUBMITTED)
    await harness.settled()
    harness.clock.advance(2_000)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN, ALSO, ALSO]


async def test_the_decision_is_stored_with_the_branches_that_have_succeeded(harness: Harness) -> None:
    harness.destination.script[ALSO].append(Answer(500))
    await harness.prepare(message("g", IN, ALSO, **EARLY))
    await harness.submit(message("g", IN, ALSO, **EARLY))
    await harness.until_state("g", State.SUBMITTED)
    row = await harness.store.get("g")
    assert isinstance(row, LiveRow)
    assert (row.decided_by, row.done, row.attempts, row.version) == (DecidedBy.SUBMIT, 0b01, 1, 2)
    await harness.restart()
    harness.clock.advance(2_000)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN, ALSO, ALSO]


async def test_a_message_that_leaves_crowded_memory_after_its_decision_calls_no_branch_again(
    make_harness: MakeRig,
) -> None:
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, active_max=1, crowded_retry_ms=1))
    harness.destination.script[ALSO].append(Answer(500))
    harness.destination.hold(ALSO)
    await harness.prepare(message("g", IN, ALSO, **EARLY))
    await harness.submit(message("g", IN, ALSO, **EARLY))
    harness.destination.hold(NEW)
    await harness.submit(message("beside", NEW))
    await until(lambda: harness.destination.urls() == [IN, ALSO, NEW])
    harness.destination.release(ALSO)
    await harness.until_state("g", State.SUBMITTED)
    await until(lambda: harness.coordinator.gauges().active == 1)
    harness.clock.advance(2_000)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN, ALSO, NEW, ALSO]


@pytest.mark.parametrize("act", ["park", "redirect"])
async def test_an_operator_s_act_stores_an_early_decision_with_the_branches_that_have_succeeded(
    harness: Harness, act: str
) -> None:
    harness.destination.hold(ALSO)
    await harness.prepare(message("g", IN, ALSO, **EARLY))
    await harness.submit(message("g", IN, ALSO, **EARLY))
    await until(lambda: harness.destination.urls() == [IN, ALSO])
    operator = harness.coordinator.operator
    if act == "park":
        assert (await operator.park("g", Act())).error is None
    else:
        _, moves = await operator.redirect("g", Redirection(NEW, beginning="http://"), Act(), lambda *_: None)
        assert [move.branch_id for move in moves] == ["02"]
    assert harness.store.batches[1].items == [DecideEarly("g", 1, 1_000, DecidedBy.SUBMIT, attempts=0, done=0b01)]
    row = await harness.store.get("g")
    assert isinstance(row, LiveRow)
    assert (row.state, row.done, row.version) == (State.SUBMITTED, 0b01, 3)


async def test_a_submit_of_a_parked_message_is_stored_first_because_no_check_back_would_find_it_again(
    harness: Harness,
) -> None:
    await harness.prepare(message("g", **EARLY))
    assert (await harness.coordinator.operator.park("g", Act())).error is None
    harness.destination.hold(IN)
    assert (await harness.submit(message("g", **EARLY))).error is None
    assert await harness.state("g") is State.SUBMITTED
    await harness.restart()
    del harness.destination.held[IN]
    harness.clock.advance(40_000)
    await harness.until_state("g", State.SUCCEEDED)
    assert CHECK not in harness.destination.urls()


async def test_a_crash_before_anything_is_flushed_is_recovered_by_the_check_back(harness: Harness) -> None:
    await harness.prepare(message("g", **EARLY))
    harness.destination.hold(IN)
    await harness.submit(message("g", **EARLY))
    await until(lambda: harness.destination.urls() == [IN])
    await harness.restart()
    del harness.destination.held[IN]
    assert await harness.state("g") is State.PREPARED
    harness.destination.script[CHECK].append(Answer(200, b"{}", "committed"))
    harness.clock.advance(40_000)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN, CHECK, IN]


async def test_until_a_message_is_finished_what_its_branches_wrote_is_not_cleaned(harness: Harness) -> None:
    await harness.prepare(message("g", **EARLY))
    row = await harness.store.get("g")
    assert row is not None
    born_ms = row.created_ms
    harness.destination.hold(IN)
    await harness.submit(message("g", **EARLY))
    await until(lambda: harness.destination.urls() == [IN])
    harness.clock.advance(10_000)
    assert (await harness.coordinator.horizon("", "")).oldest_unfinished_ms == born_ms
    await harness.restart()
    del harness.destination.held[IN]
    harness.destination.hold(CHECK)
    harness.destination.script[CHECK].append(Answer(200, b"{}", "committed"))
    harness.clock.advance(40 * 86_400_000)
    await until(lambda: harness.destination.urls() == [IN, CHECK])
    assert (await harness.coordinator.horizon("", "")).oldest_unfinished_ms == born_ms
    harness.destination.script[IN].append(Answer(500))
    harness.destination.release(CHECK)
    await harness.until_state("g", State.SUBMITTED)
    await harness.settled()
    assert (await harness.coordinator.horizon("", "")).oldest_unfinished_ms == born_ms, "decided late, called early"
    harness.clock.advance(2_000)
    await harness.until_state("g", State.SUCCEEDED)
    finished_ms = harness.clock.now_ms()
    assert (await harness.coordinator.horizon("", "")).oldest_unfinished_ms >= finished_ms


async def test_requests_after_an_early_decision_meet_a_submitted_message(harness: Harness) -> None:
    await harness.prepare(message("g", **EARLY))
    harness.destination.hold(IN)
    await harness.submit(message("g", **EARLY))
    assert (await harness.submit(message("g", **EARLY))).error is None
    assert isinstance((await harness.abort("g")).error, Refused)
    harness.destination.release(IN)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN]


async def test_a_row_that_changed_meanwhile_does_not_undo_an_early_decision(harness: Harness) -> None:
    await harness.prepare(message("g", **EARLY))
    harness.destination.hold(IN)
    await harness.submit(message("g", **EARLY))
    moved = Batch([Reschedule("g", 1, harness.clock.now_ms() + 60_000, 1, 0)], [])
    await super(type(harness.store), harness.store).flush(moved)
    harness.destination.release(IN)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.watcher.incidents == []


async def test_a_delayed_message_is_durable_before_it_is_acknowledged(harness: Harness) -> None:
    await harness.prepare(message("g", delay_ms=5_000, **EARLY))
    harness.store.open.clear()
    reply = harness.submit_soon(message("g", delay_ms=5_000, **EARLY))
    await until(lambda: harness.coordinator.gauges().waiting_for_store == 1)
    assert not reply.done()
    harness.store.open.set()
    assert (await reply).error is None


async def test_a_prepare_is_durable_before_it_is_acknowledged_all_the_same(harness: Harness) -> None:
    harness.store.open.clear()
    reply = harness.prepare_soon(message("g", **EARLY))
    await until(lambda: harness.coordinator.gauges().waiting_for_store == 1)
    assert not reply.done()
    harness.store.open.set()
    assert (await reply).error is None


async def test_a_plain_message_is_durable_before_it_is_acknowledged(harness: Harness) -> None:
    harness.store.open.clear()
    reply = harness.submit_soon(message("g", **EARLY))
    await until(lambda: harness.coordinator.gauges().waiting_for_store == 1)
    assert not reply.done()
    harness.store.open.set()
    assert (await reply).error is None


async def test_without_an_address_to_ask_it_is_durable_before_it_is_acknowledged(harness: Harness) -> None:
    await harness.prepare(message("g", check_url="", **EARLY))
    harness.store.open.clear()
    reply = harness.submit_soon(message("g", check_url="", **EARLY))
    await until(lambda: harness.coordinator.gauges().waiting_for_store == 1)
    assert not reply.done()
    harness.store.open.set()
    assert (await reply).error is None


async def test_an_acknowledged_submit_whose_flush_fails_is_recovered_by_the_check_back(harness: Harness) -> None:
    await harness.prepare(message("g", **EARLY))
    harness.store.failures.append(StoreFull())
    assert (await harness.submit(message("g", **EARLY))).error is None
    await until(lambda: not harness.store.failures)
    assert await harness.state("g") is State.PREPARED
    harness.destination.script[CHECK].append(Answer(200, b"{}", "committed"))
    harness.clock.advance(40_000)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN, CHECK, IN]


async def test_an_acknowledged_submit_that_loses_its_compare_and_set_to_a_failure_is_an_incident(
    harness: Harness,
) -> None:
    await harness.prepare(message("g", **EARLY))
    await super(type(harness.store), harness.store).flush(
        Batch([Finish("g", 1, State.FAILED, "elsewhere", "abort")], [])
    )
    assert (await harness.submit(message("g", **EARLY))).error is None
    await until(lambda: bool(harness.watcher.incidents))
    assert await harness.state("g") is State.FAILED
    assert harness.destination.urls() == [IN]
