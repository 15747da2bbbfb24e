"""Branches are called until each has succeeded: order, retries, bounds, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, PATIENCE_S, QUICK, Harness, message
from twophase.coordinator.dispatch.limiter import UNPROVEN, ConcurrencyLimiter
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import Overloaded, StoreFull
from twophase.core.lifecycle import State
from twophase.destinations.base import Answer
from twophase.stores.rows import LiveRow

MakeRig = Callable[..., Awaitable[Harness]]
B, C, D = "http://bank-b/in", "http://bank-c/in", "http://bank-d/in"
DOWN = Answer(0, error="connection refused")


async def test_branches_are_called_in_order_one_after_the_other(harness: Harness) -> None:
    harness.destination.hold(B)
    await harness.submit(message("g", B, C))
    await until(lambda: harness.destination.urls() == [B])
    harness.destination.release(B)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [B, C]


async def test_concurrent_branches_are_called_at_once(harness: Harness) -> None:
    for url in (B, C, D):
        harness.destination.hold(url)
    await harness.submit(message("g", B, C, D, concurrent=True))
    await until(lambda: len(harness.destination.calls) == 3)
    for url in (D, C, B):
        harness.destination.release(url)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_failed_branch_is_called_again_after_its_pause_and_the_done_ones_are_not(harness: Harness) -> None:
    harness.destination.script[C].extend([DOWN, Answer(409), Answer(500)])
    await harness.submit(message("g", B, C))
    await harness.settled()
    for pause_ms in (1_000, 2_000, 4_000):
        assert await harness.state("g") is State.SUBMITTED
        harness.clock.advance(pause_ms + 64)
        await harness.settled()
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [B, C, C, C, C]


async def test_an_ongoing_branch_does_not_slow_the_pace(harness: Harness) -> None:
    harness.destination.script[B].extend([Answer(425)] * 3)
    await harness.submit(message("g"))
    for _ in range(3):
        await harness.settled()
        harness.clock.advance(1_064)
    await harness.settled()
    assert len(harness.destination.calls) == 4, "each pause was the first one's"
    await harness.until_state("g", State.SUCCEEDED)


async def test_the_pause_never_grows_beyond_its_cap(harness: Harness) -> None:
    harness.destination.script[B].extend([DOWN] * 12)
    await harness.submit(message("g"))
    for _ in range(12):
        await harness.settled()
        harness.clock.advance(60_064)
    await harness.until_state("g", State.SUCCEEDED)
    assert len(harness.destination.calls) == 13


async def test_a_messages_own_retry_interval_is_its_first_pause(harness: Harness) -> None:
    harness.destination.script[B].append(DOWN)
    await harness.submit(message("g", retry_interval_ms=10_000))
    await harness.settled()
    harness.clock.advance(9_000)
    await harness.settled()
    assert len(harness.destination.calls) == 1
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)


async def test_what_went_wrong_is_recorded_without_the_query_and_what_went_well_is_not(harness: Harness) -> None:
    secret = C + "?token=secret"
    harness.destination.script[secret].append(Answer(500, b"no such account", latency_ms=3))
    await harness.submit(message("g", B, secret))
    await harness.settled()
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)
    view = await harness.coordinator.query("g")
    assert view is not None
    [attempt] = view.log
    assert (attempt.kind, attempt.branch_id, attempt.target, attempt.status) == ("branch", "02", C, 500)
    assert attempt.error == "no such account"


async def test_a_delayed_message_is_delivered_when_its_time_has_come(harness: Harness) -> None:
    await harness.submit(message("g", delay_ms=10_000))
    harness.clock.advance(9_000)
    await harness.settled()
    assert harness.destination.calls == []
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)


async def test_an_address_that_cannot_be_called_is_recorded_and_retried(harness: Harness) -> None:
    await harness.submit(message("g", "carrier-pigeon://home"))
    await harness.settled()
    view = await harness.coordinator.query("g")
    assert view is not None
    assert view.state is State.SUBMITTED
    assert view.log[0].error == "no destination for this scheme"


async def test_a_branch_without_address_succeeds_without_a_call(harness: Harness) -> None:
    await harness.submit(message("g", "", B, ""))
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [B]


async def test_after_a_restart_unfinished_messages_are_delivered_and_done_branches_stay_done(harness: Harness) -> None:
    harness.destination.script[C].append(DOWN)
    await harness.submit(message("g", B, C))
    await harness.settled()
    await harness.restart()
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [B, C, C]


async def test_a_hanging_destination_delays_no_other(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, in_flight_per_destination_max=2))
    harness.destination.hold(B)
    for number in range(10):
        await harness.submit(message(f"hung-{number}", B))
    await harness.submit(message("free", C))
    await harness.until_state("free", State.SUCCEEDED)
    assert harness.destination.urls().count(B) == 2
    harness.destination.release(B)
    for number in range(10):
        await harness.until_state(f"hung-{number}", State.SUCCEEDED)


async def test_a_full_queue_leaves_messages_for_later_and_loses_none(make_harness: MakeRig) -> None:
    harness = await make_harness(
        CoordinatorSettings(delivery=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1)
    )
    harness.destination.hold(B)
    for number in range(5):
        await harness.submit(message(f"g{number}", B))
    await harness.settled()
    harness.destination.release(B)
    for _ in range(5):
        await harness.settled()
        harness.clock.advance(60_064)
    for number in range(5):
        await harness.until_state(f"g{number}", State.SUCCEEDED)


async def test_what_finds_no_permit_costs_the_store_nothing_and_comes_in_time(make_harness: MakeRig) -> None:
    """A destination that hangs must not take the store's time from all others.

    Without the deferral each of its messages would be written anew every few seconds.
    """
    harness = await make_harness(
        CoordinatorSettings(delivery=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1)
    )
    harness.destination.hold(B)
    for number in range(5):
        await harness.submit(message(f"g{number}", B))
    for _ in range(10):
        await harness.settled()
        harness.clock.advance(5_000)
    await harness.settled()
    for number in range(5):
        row = await harness.store.get(f"g{number}")
        assert isinstance(row, LiveRow)
        assert row.version == 1, "nothing was written since it was submitted"
    harness.destination.release(B)
    await harness.until_state("g0", State.SUCCEEDED)
    await harness.until_state("g1", State.SUCCEEDED)
    for _ in range(3):  # one is called, one waits behind it: two at a time
        await harness.settled()
        harness.clock.advance(60_064)  # the longest pause, twice for its jitter, and a timer's width
    for number in range(5):
        await harness.until_state(f"g{number}", State.SUCCEEDED)
    assert harness.destination.urls() == [B] * 5


async def test_what_found_no_permit_with_a_busy_receiver_comes_when_that_is_free_however_old_it_is(
    make_harness: MakeRig,
) -> None:
    """After a restart more messages are due than a destination queue holds.

    The last one is called seconds after the others, not a minute.
    """
    harness = await make_harness(
        CoordinatorSettings(delivery=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1)
    )
    harness.destination.hold(B)
    for number in range(5):
        await harness.submit(message(f"g{number}", B))
    await harness.restart()
    harness.clock.advance(3_600_000)
    await harness.settled()
    harness.destination.release(B)
    for _ in range(4):
        await harness.settled()
        harness.clock.advance(2_100)
    for number in range(5):
        await harness.until_state(f"g{number}", State.SUCCEEDED)


@pytest.mark.parametrize("held", [B, CHECK], ids=["receiver", "producer"])
async def test_what_waits_for_one_that_hangs_is_tried_the_more_seldom_the_longer_others_wait(
    make_harness: MakeRig, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    tried: list[str] = []
    enter = ConcurrencyLimiter.enter

    def counted(limiter: ConcurrencyLimiter, key: str, run: Callable[[], None], owner: str = "", **more: Any) -> bool:
        tried.append(key)
        return enter(limiter, key, run, owner, **more)

    harness = await make_harness(
        CoordinatorSettings(delivery=QUICK, check_back=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1)
    )
    harness.destination.hold(held)
    for number in range(5):
        await (harness.submit(message(f"g{number}", B)) if held == B else harness.prepare(message(f"g{number}")))
    harness.clock.advance(0 if held == B else 60_000)  # now producers are asked, too
    await harness.settled()
    harness.clock.advance(25_000)
    await harness.settled()  # tried, in vain: the first has waited for 25 seconds
    monkeypatch.setattr(ConcurrencyLimiter, "enter", counted)
    harness.clock.advance(15_000)
    await harness.settled()
    assert tried == []
    harness.clock.advance(16_000)
    await harness.settled()
    assert len(tried) == 3


async def test_what_finds_no_permit_is_spread_over_as_many_queues_as_wait(
    make_harness: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five messages are due where one may wait.

    The last one is called after up to five more queues, not after one.
    """
    harness = await make_harness(
        CoordinatorSettings(delivery=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1)
    )
    monkeypatch.setattr(harness.coordinator._machine, "_random", lambda: 0.99)
    harness.destination.hold(B)
    for number in range(5):
        await harness.submit(message(f"g{number}", B))
    await harness.settled()
    pauses_ms = [active.due_ms - harness.clock.now_ms() for active in harness.coordinator._memory.messages()]
    assert max(pauses_ms) > 8_000
    assert max(pauses_ms) <= 12_000


async def test_large_messages_are_read_in_short_pages_and_none_is_left_out(harness: Harness) -> None:
    large = bytes(3_900_000)
    for number in range(11):
        await harness.submit(message(f"g{number}", B, payload=large, delay_ms=5_000))
    await harness.restart()
    harness.clock.advance(6_000)
    for number in range(11):
        await harness.until_state(f"g{number}", State.SUCCEEDED)
    assert harness.destination.urls() == [B] * 11


async def test_what_finds_no_permit_leaves_memory_to_others(make_harness: MakeRig) -> None:
    """A receiver and a producer hang, each with ten times what memory holds.

    No other message is late for that.
    """
    harness = await make_harness(
        CoordinatorSettings(
            delivery=QUICK,
            check_back=QUICK,
            in_flight_per_destination_max=1,
            queue_waiting_max=1,
            active_max=10,
            page_rows=5,
            crowded_retry_ms=1,
        )
    )
    alive, asked = "http://alive/in", "http://alive/check"
    harness.destination.hold(B)
    harness.destination.hold(CHECK)
    for number in range(100):
        await harness.submit(message(f"hung{number}", B))
        await harness.prepare(message(f"mute{number}", B))
    harness.clock.advance(60_000)
    await harness.settled()
    harness.destination.script[alive].append(Answer(500))
    await harness.submit(message("again", alive))
    await harness.prepare(message("left", alive, check_url=asked))
    begun_ms = harness.clock.now_ms()
    for gid in ("again", "left"):
        while await harness.state(gid) is not State.SUCCEEDED:
            assert harness.clock.now_ms() - begun_ms < 120_000, f"{gid} waits for a place in memory"
            harness.clock.advance(2_000)
            for _ in range(3):
                await harness.settled()
    assert harness.coordinator.gauges().active <= 20


async def test_what_finds_no_permit_stays_in_memory_while_its_change_is_with_the_store(harness: Harness) -> None:
    """Another node's message must stay in memory for the store's answer.

    Evicting it now would leave the answer without a message.
    """
    harness.store.open.clear()
    reply = harness.prepare_soon(message("g"))
    await until(lambda: harness.store.held_flushes == 1)
    active = harness.coordinator._memory.get("g")
    assert active is not None
    active.owned = False

    harness.coordinator._machine.defer(active, 0)

    assert harness.coordinator._memory.get("g") is active
    harness.store.open.set()
    assert (await asyncio.wait_for(reply, PATIENCE_S)).error is None


async def test_what_is_due_is_read_while_memory_is_a_little_over_its_bound(make_harness: MakeRig) -> None:
    """Memory is over its bound whenever more messages arrive than find a permit.

    A message that leaves memory needs a flush for it.
    """
    alive = "http://alive/in"
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, active_max=10, page_rows=5, crowded_retry_ms=1))
    harness.destination.hold(B)
    for number in range(11):  # calls under way, so none of them leaves
        await harness.submit(message(f"hung{number}", B))
    await until(lambda: len(harness.destination.calls) == 11)
    harness.destination.script[alive].append(Answer(500))
    await harness.submit(message("again", alive))
    await until(lambda: harness.coordinator.gauges().active == 11)
    harness.clock.advance(2_000)
    await harness.until_state("again", State.SUCCEEDED)


async def test_destinations_that_hang_leave_places_for_a_healthy_one(make_harness: MakeRig) -> None:
    harness = await make_harness(
        CoordinatorSettings(delivery=QUICK, in_flight_max=200, in_flight_per_destination_max=100)
    )
    hung = [f"http://hung{number}/in" for number in range(9)]
    for url in hung:
        harness.destination.hold(url)
        for number in range(100):
            harness.submit_soon(message(f"{url[7:12]}-{number}", url))
    await until(lambda: len(harness.destination.calls) == 9 * UNPROVEN)
    await harness.submit(message("healthy", "http://healthy/in"))
    await harness.until_state("healthy", State.SUCCEEDED)


async def test_memory_holds_a_bounded_number_and_the_rest_waits_in_the_store(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, check_back=QUICK, active_max=3, page_rows=2))
    for number in range(20):
        await harness.submit(message(f"g{number:02d}", B, delay_ms=5_000))
        await harness.prepare(message(f"p{number:02d}", B))
        assert harness.coordinator.gauges().active <= 4
    harness.clock.advance(40_000)
    for number in range(20):
        await harness.until_state(f"g{number:02d}", State.SUCCEEDED)
        await harness.until_state(f"p{number:02d}", State.SUCCEEDED)
    assert len(harness.destination.calls) == 60


async def test_a_message_that_left_memory_is_found_when_it_is_asked_for(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(active_max=1))
    for number in range(4):
        await harness.prepare(message(f"g{number}"))
    assert (await harness.prepare(message("g0"))).error is None
    assert (await harness.abort("g1")).error is None
    assert (await harness.submit(message("g2"))).error is None
    await harness.until_state("g2", State.SUCCEEDED)
    assert await harness.state("g1") is State.FAILED


async def test_beyond_the_bound_requests_are_refused_until_there_is_room(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(waiting_max=2))
    harness.store.open.clear()
    taken = [harness.prepare_soon(message("a")), harness.prepare_soon(message("b"))]
    assert isinstance((await harness.prepare(message("c"))).error, Overloaded)
    harness.store.open.set()
    assert [(await reply).error for reply in taken] == [None, None]
    assert (await harness.prepare(message("c"))).error is None


async def test_a_store_fault_while_delivering_loses_nothing(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, check_back=QUICK, store_retry_ms=1))
    harness.clock.runs = True
    harness.destination.hold(B)
    await harness.submit(message("g"))
    harness.store.failures.append(StoreFull())
    harness.destination.release(B)
    await harness.until_state("g", State.SUCCEEDED)


async def test_drain_ends_what_is_under_way_and_starts_nothing_new(harness: Harness) -> None:
    harness.destination.hold(B)
    await harness.submit(message("g", B, C))
    await until(lambda: harness.destination.urls() == [B])
    task = asyncio.create_task(harness.coordinator.drain(5_000))
    await asyncio.sleep(0)
    harness.destination.release(B)
    await task
    assert harness.destination.urls() == [B]
    await harness.restart()
    harness.clock.advance(2_000)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [B, C]


async def test_drain_is_bounded_when_a_call_never_ends(harness: Harness) -> None:
    harness.destination.hold(B)
    waiting = harness.submit_soon(message("g", B, wait_result=True))
    await until(lambda: harness.destination.urls() == [B])
    await harness.coordinator.drain(50)
    assert (await waiting).error is not None


async def test_what_was_called_at_in_is_what_was_asked(harness: Harness) -> None:
    await harness.submit(message("g", IN))
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.calls[0].timeout_ms == 3_000
