"""`durability="check-back"`: a submit is acknowledged before its flush, and recovered by the check-back (rule 25)."""

from __future__ import annotations

from typing import Any

from tests.unit.coordinator.rig import CHECK, IN, Rig, message
from twophase.core.errors import StoreFull
from twophase.core.lifecycle import State
from twophase.core.message import Durability
from twophase.destinations.base import Answer
from twophase.stores.base import Batch, Finish

EARLY: dict[str, Any] = {"durability": Durability.CHECK_BACK, "explicit_verdict": True}


async def test_a_submit_is_acknowledged_before_its_flush_and_calls_nothing_before_it(rig: Rig) -> None:
    await rig.prepare(message("g", **EARLY))
    rig.store.open.clear()
    reply = await rig.submit(message("g", **EARLY))
    assert (reply.error, reply.state) == (None, State.SUBMITTED)
    assert rig.destination.calls == []
    rig.store.open.set()
    await rig.until_state("g", State.SUCCEEDED)


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
    await rig.settled()
    assert await rig.state("g") is State.PREPARED
    rig.destination.script[CHECK].append(Answer(200, b"{}", "committed"))
    rig.clock.advance(40_000)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [CHECK, IN]


async def test_an_acknowledged_submit_that_loses_its_compare_and_set_to_a_failure_is_an_incident(rig: Rig) -> None:
    await rig.prepare(message("g", **EARLY))
    await super(type(rig.store), rig.store).flush(Batch([Finish("g", 1, State.FAILED, "elsewhere", "abort")], []))
    assert (await rig.submit(message("g", **EARLY))).error is None
    await rig.until(lambda: bool(rig.watcher.incidents))
    assert await rig.state("g") is State.FAILED
    assert rig.destination.calls == []
