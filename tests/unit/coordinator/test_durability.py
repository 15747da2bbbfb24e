"""`durability="check-back"`: a submit counts before it is flushed.

The check-back recovers a submit that was lost (rule 25).
"""

from __future__ import annotations

from typing import Any

from tests.unit.coordinator.rig import CHECK, IN, Rig, message
from twophase.coordinator.operator import Act
from twophase.core.errors import Refused, StoreFull
from twophase.core.lifecycle import State
from twophase.core.options import Durability
from twophase.destinations.base import Answer
from twophase.stores.batch import Batch, Finish, Insert, Reschedule
from twophase.stores.rows import DecidedBy, HistoryRow

EARLY: dict[str, Any] = {"durability": Durability.CHECK_BACK, "explicit_verdict": True}


async def test_a_submit_is_acknowledged_and_its_branches_are_called_before_any_flush(rig: Rig) -> None:
    await rig.prepare(message("g", **EARLY))
    rig.store.open.clear()
    reply = await rig.submit(message("g", **EARLY))
    assert (reply.error, reply.state) == (None, State.SUBMITTED)
    await rig.until(lambda: rig.destination.urls() == [IN])
    assert await rig.state("g") is State.PREPARED
    rig.store.open.set()
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_message_that_succeeds_at_once_is_one_change_and_says_who_decided(rig: Rig) -> None:
    await rig.prepare(message("g", **EARLY))
    await rig.submit(message("g", **EARLY))
    await rig.until_state("g", State.SUCCEEDED)
    changes = [type(item) for batch in rig.store.batches for item in batch.items]
    row = await rig.store.get("g")
    assert changes == [Insert, Finish]
    assert isinstance(row, HistoryRow)
    assert row.decided_by == DecidedBy.SUBMIT


async def test_a_branch_that_fails_makes_the_decision_durable_before_the_next_call(rig: Rig) -> None:
    rig.destination.script[IN].append(Answer(500))
    await rig.prepare(message("g", **EARLY))
    await rig.submit(message("g", **EARLY))
    await rig.until_state("g", State.SUBMITTED)
    await rig.settled()
    await rig.restart()
    rig.clock.advance(2_000)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN, IN]


async def test_branches_that_have_succeeded_are_not_called_again_with_those_that_have_not(rig: Rig) -> None:
    also = "http://bank-c/in"
    rig.destination.script[also].append(Answer(500))
    await rig.prepare(message("g", IN, also, **EARLY))
    await rig.submit(message("g", IN, also, **EARLY))
    await rig.until_state("g", State.SUBMITTED)
    await rig.settled()
    rig.clock.advance(2_000)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN, also, also]


async def test_a_submit_of_a_parked_message_is_stored_first_because_no_check_back_would_find_it_again(rig: Rig) -> None:
    await rig.prepare(message("g", **EARLY))
    assert (await rig.coordinator.operator.park("g", Act())).error is None
    rig.destination.hold(IN)
    assert (await rig.submit(message("g", **EARLY))).error is None
    assert await rig.state("g") is State.SUBMITTED
    await rig.restart()
    del rig.destination.held[IN]
    rig.clock.advance(40_000)
    await rig.until_state("g", State.SUCCEEDED)
    assert CHECK not in rig.destination.urls()


async def test_a_crash_before_anything_is_flushed_is_recovered_by_the_check_back(rig: Rig) -> None:
    await rig.prepare(message("g", **EARLY))
    rig.destination.hold(IN)
    await rig.submit(message("g", **EARLY))
    await rig.until(lambda: rig.destination.urls() == [IN])
    await rig.restart()
    del rig.destination.held[IN]
    assert await rig.state("g") is State.PREPARED
    rig.destination.script[CHECK].append(Answer(200, b"{}", "committed"))
    rig.clock.advance(40_000)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN, CHECK, IN]


async def test_until_a_message_is_finished_what_its_branches_wrote_is_not_cleaned(rig: Rig) -> None:
    await rig.prepare(message("g", **EARLY))
    row = await rig.store.get("g")
    assert row is not None
    born_ms = row.created_ms
    rig.destination.hold(IN)
    await rig.submit(message("g", **EARLY))
    await rig.until(lambda: rig.destination.urls() == [IN])
    rig.clock.advance(10_000)
    assert (await rig.coordinator.horizon("", "")).oldest_unfinished_ms == born_ms
    await rig.restart()
    del rig.destination.held[IN]
    rig.destination.hold(CHECK)
    rig.destination.script[CHECK].append(Answer(200, b"{}", "committed"))
    rig.clock.advance(40 * 86_400_000)
    await rig.until(lambda: rig.destination.urls() == [IN, CHECK])
    assert (await rig.coordinator.horizon("", "")).oldest_unfinished_ms == born_ms
    rig.destination.script[IN].append(Answer(500))
    rig.destination.release(CHECK)
    await rig.until_state("g", State.SUBMITTED)
    await rig.settled()
    assert (await rig.coordinator.horizon("", "")).oldest_unfinished_ms == born_ms, "decided late, called early"
    rig.clock.advance(2_000)
    await rig.until_state("g", State.SUCCEEDED)
    finished_ms = rig.clock.now_ms()
    assert (await rig.coordinator.horizon("", "")).oldest_unfinished_ms >= finished_ms


async def test_requests_after_an_early_decision_meet_a_submitted_message(rig: Rig) -> None:
    await rig.prepare(message("g", **EARLY))
    rig.destination.hold(IN)
    await rig.submit(message("g", **EARLY))
    assert (await rig.submit(message("g", **EARLY))).error is None
    assert isinstance((await rig.abort("g")).error, Refused)
    rig.destination.release(IN)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN]


async def test_a_row_that_changed_meanwhile_does_not_undo_an_early_decision(rig: Rig) -> None:
    await rig.prepare(message("g", **EARLY))
    rig.destination.hold(IN)
    await rig.submit(message("g", **EARLY))
    moved = Batch([Reschedule("g", 1, rig.clock.now_ms() + 60_000, 1, 0)], [])
    await super(type(rig.store), rig.store).flush(moved)
    rig.destination.release(IN)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.watcher.incidents == []


async def test_a_delayed_message_is_durable_before_it_is_acknowledged(rig: Rig) -> None:
    await rig.prepare(message("g", delay_ms=5_000, **EARLY))
    rig.store.open.clear()
    reply = rig.submit_soon(message("g", delay_ms=5_000, **EARLY))
    await rig.until(lambda: rig.coordinator.gauges().waiting_for_store == 1)
    assert not reply.done()
    rig.store.open.set()
    assert (await reply).error is None


async def test_a_prepare_is_durable_before_it_is_acknowledged_all_the_same(rig: Rig) -> None:
    rig.store.open.clear()
    reply = rig.prepare_soon(message("g", **EARLY))
    await rig.until(lambda: rig.coordinator.gauges().waiting_for_store == 1)
    assert not reply.done()
    rig.store.open.set()
    assert (await reply).error is None


async def test_a_plain_message_is_durable_before_it_is_acknowledged(rig: Rig) -> None:
    rig.store.open.clear()
    reply = rig.submit_soon(message("g", **EARLY))
    await rig.until(lambda: rig.coordinator.gauges().waiting_for_store == 1)
    assert not reply.done()
    rig.store.open.set()
    assert (await reply).error is None


async def test_without_an_address_to_ask_it_is_durable_before_it_is_acknowledged(rig: Rig) -> None:
    await rig.prepare(message("g", check_url="", **EARLY))
    rig.store.open.clear()
    reply = rig.submit_soon(message("g", check_url="", **EARLY))
    await rig.until(lambda: rig.coordinator.gauges().waiting_for_store == 1)
    assert not reply.done()
    rig.store.open.set()
    assert (await reply).error is None


async def test_an_acknowledged_submit_whose_flush_fails_is_recovered_by_the_check_back(rig: Rig) -> None:
    await rig.prepare(message("g", **EARLY))
    rig.store.failures.append(StoreFull())
    assert (await rig.submit(message("g", **EARLY))).error is None
    await rig.until(lambda: not rig.store.failures)
    assert await rig.state("g") is State.PREPARED
    rig.destination.script[CHECK].append(Answer(200, b"{}", "committed"))
    rig.clock.advance(40_000)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN, CHECK, IN]


async def test_an_acknowledged_submit_that_loses_its_compare_and_set_to_a_failure_is_an_incident(rig: Rig) -> None:
    await rig.prepare(message("g", **EARLY))
    await super(type(rig.store), rig.store).flush(Batch([Finish("g", 1, State.FAILED, "elsewhere", "abort")], []))
    assert (await rig.submit(message("g", **EARLY))).error is None
    await rig.until(lambda: bool(rig.watcher.incidents))
    assert await rig.state("g") is State.FAILED
    assert rig.destination.urls() == [IN]
