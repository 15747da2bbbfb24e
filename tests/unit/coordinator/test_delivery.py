"""Branches are called until each has succeeded: order, retries, bounds, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.coordinator.rig import CHECK, IN, PATIENCE_S, QUICK, Rig, message
from twophase.coordinator.dispatch.limiter import ConcurrencyLimiter
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import Overloaded, StoreFull
from twophase.core.lifecycle import State
from twophase.destinations.base import Answer
from twophase.stores.rows import LiveRow

MakeRig = Callable[..., Awaitable[Rig]]
B, C, D = "http://bank-b/in", "http://bank-c/in", "http://bank-d/in"
DOWN = Answer(0, error="connection refused")


async def test_branches_are_called_in_order_one_after_the_other(rig: Rig) -> None:
    rig.destination.hold(B)
    await rig.submit(message("g", B, C))
    await rig.until(lambda: rig.destination.urls() == [B])
    rig.destination.release(B)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [B, C]


async def test_concurrent_branches_are_called_at_once(rig: Rig) -> None:
    for url in (B, C, D):
        rig.destination.hold(url)
    await rig.submit(message("g", B, C, D, concurrent=True))
    await rig.until(lambda: len(rig.destination.calls) == 3)
    for url in (D, C, B):
        rig.destination.release(url)
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_failed_branch_is_called_again_after_its_pause_and_the_done_ones_are_not(rig: Rig) -> None:
    rig.destination.script[C].extend([DOWN, Answer(409), Answer(500)])
    await rig.submit(message("g", B, C))
    await rig.settled()
    for pause_ms in (1_000, 2_000, 4_000):
        assert await rig.state("g") is State.SUBMITTED
        rig.clock.advance(pause_ms + 64)
        await rig.settled()
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [B, C, C, C, C]


async def test_an_ongoing_branch_does_not_slow_the_pace(rig: Rig) -> None:
    rig.destination.script[B].extend([Answer(425)] * 3)
    await rig.submit(message("g"))
    for _ in range(3):
        await rig.settled()
        rig.clock.advance(1_064)
    await rig.settled()
    assert len(rig.destination.calls) == 4, "each pause was the first one's"
    await rig.until_state("g", State.SUCCEEDED)


async def test_the_pause_never_grows_beyond_its_cap(rig: Rig) -> None:
    rig.destination.script[B].extend([DOWN] * 12)
    await rig.submit(message("g"))
    for _ in range(12):
        await rig.settled()
        rig.clock.advance(60_064)
    await rig.until_state("g", State.SUCCEEDED)
    assert len(rig.destination.calls) == 13


async def test_a_messages_own_retry_interval_is_its_first_pause(rig: Rig) -> None:
    rig.destination.script[B].append(DOWN)
    await rig.submit(message("g", retry_interval_ms=10_000))
    await rig.settled()
    rig.clock.advance(9_000)
    await rig.settled()
    assert len(rig.destination.calls) == 1
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)


async def test_what_went_wrong_is_recorded_without_the_query_and_what_went_well_is_not(rig: Rig) -> None:
    secret = C + "?token=secret"
    rig.destination.script[secret].append(Answer(500, b"no such account", latency_ms=3))
    await rig.submit(message("g", B, secret))
    await rig.settled()
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)
    view = await rig.coordinator.query("g")
    assert view is not None
    [attempt] = view.log
    assert (attempt.kind, attempt.branch_id, attempt.target, attempt.status) == ("branch", "02", C, 500)
    assert attempt.error == "no such account"


async def test_a_delayed_message_is_delivered_when_its_time_has_come(rig: Rig) -> None:
    await rig.submit(message("g", delay_ms=10_000))
    rig.clock.advance(9_000)
    await rig.settled()
    assert rig.destination.calls == []
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)


async def test_an_address_that_cannot_be_called_is_recorded_and_retried(rig: Rig) -> None:
    await rig.submit(message("g", "carrier-pigeon://home"))
    await rig.settled()
    view = await rig.coordinator.query("g")
    assert view is not None
    assert view.state is State.SUBMITTED
    assert view.log[0].error == "no destination for this scheme"


async def test_a_branch_without_address_succeeds_without_a_call(rig: Rig) -> None:
    await rig.submit(message("g", "", B, ""))
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [B]


async def test_after_a_restart_unfinished_messages_are_delivered_and_done_branches_stay_done(rig: Rig) -> None:
    rig.destination.script[C].append(DOWN)
    await rig.submit(message("g", B, C))
    await rig.settled()
    await rig.restart()
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [B, C, C]


async def test_a_hanging_destination_delays_no_other(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(delivery=QUICK, in_flight_per_destination_max=2))
    rig.destination.hold(B)
    for number in range(10):
        await rig.submit(message(f"hung-{number}", B))
    await rig.submit(message("free", C))
    await rig.until_state("free", State.SUCCEEDED)
    assert rig.destination.urls().count(B) == 2
    rig.destination.release(B)
    for number in range(10):
        await rig.until_state(f"hung-{number}", State.SUCCEEDED)


async def test_a_full_queue_leaves_messages_for_later_and_loses_none(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(delivery=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1))
    rig.destination.hold(B)
    for number in range(5):
        await rig.submit(message(f"g{number}", B))
    await rig.settled()
    rig.destination.release(B)
    for _ in range(5):
        await rig.settled()
        rig.clock.advance(60_064)
    for number in range(5):
        await rig.until_state(f"g{number}", State.SUCCEEDED)


async def test_what_finds_no_permit_costs_the_store_nothing_and_comes_in_time(make_rig: MakeRig) -> None:
    """A destination that hangs must not take the store's time from all others.

    Without the deferral each of its messages would be written anew every few seconds.
    """
    rig = await make_rig(CoordinatorSettings(delivery=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1))
    rig.destination.hold(B)
    for number in range(5):
        await rig.submit(message(f"g{number}", B))
    for _ in range(10):
        await rig.settled()
        rig.clock.advance(5_000)
    await rig.settled()
    for number in range(5):
        row = await rig.store.get(f"g{number}")
        assert isinstance(row, LiveRow)
        assert row.version == 1, "nothing was written since it was submitted"
    rig.destination.release(B)
    await rig.until_state("g0", State.SUCCEEDED)
    await rig.until_state("g1", State.SUCCEEDED)
    for _ in range(3):  # one is called, one waits behind it: two at a time
        await rig.settled()
        rig.clock.advance(60_064)  # the longest pause, twice for its jitter, and a timer's width
    for number in range(5):
        await rig.until_state(f"g{number}", State.SUCCEEDED)
    assert rig.destination.urls() == [B] * 5


async def test_what_found_no_permit_with_a_busy_receiver_comes_when_that_is_free_however_old_it_is(
    make_rig: MakeRig,
) -> None:
    """After a restart more messages are due than a destination queue holds.

    The last one is called seconds after the others, not a minute.
    """
    rig = await make_rig(CoordinatorSettings(delivery=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1))
    rig.destination.hold(B)
    for number in range(5):
        await rig.submit(message(f"g{number}", B))
    await rig.restart()
    rig.clock.advance(3_600_000)
    await rig.settled()
    rig.destination.release(B)
    for _ in range(4):
        await rig.settled()
        rig.clock.advance(2_100)
    for number in range(5):
        await rig.until_state(f"g{number}", State.SUCCEEDED)


@pytest.mark.parametrize("held", [B, CHECK], ids=["receiver", "producer"])
async def test_what_waits_for_one_that_hangs_is_tried_the_more_seldom_the_longer_others_wait(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    tried: list[str] = []
    enter = ConcurrencyLimiter.enter

    def counted(limiter: ConcurrencyLimiter, key: str, run: Callable[[], None]) -> bool:
        tried.append(key)
        return enter(limiter, key, run)

    rig = await make_rig(
        CoordinatorSettings(delivery=QUICK, check_back=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1)
    )
    rig.destination.hold(held)
    for number in range(5):
        await (rig.submit(message(f"g{number}", B)) if held == B else rig.prepare(message(f"g{number}")))
    rig.clock.advance(0 if held == B else 60_000)  # now producers are asked, too
    await rig.settled()
    rig.clock.advance(25_000)
    await rig.settled()  # tried, in vain: the first has waited for 25 seconds
    monkeypatch.setattr(ConcurrencyLimiter, "enter", counted)
    rig.clock.advance(15_000)
    await rig.settled()
    assert tried == []
    rig.clock.advance(16_000)
    await rig.settled()
    assert len(tried) == 3


async def test_what_finds_no_permit_is_spread_over_as_many_queues_as_wait(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five messages are due where one may wait.

    The last one is called after up to five more queues, not after one.
    """
    rig = await make_rig(CoordinatorSettings(delivery=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1))
    monkeypatch.setattr(rig.coordinator._machine, "_random", lambda: 0.99)
    rig.destination.hold(B)
    for number in range(5):
        await rig.submit(message(f"g{number}", B))
    await rig.settled()
    pauses_ms = [active.due_ms - rig.clock.now_ms() for active in rig.coordinator._memory.messages()]
    assert max(pauses_ms) > 8_000
    assert max(pauses_ms) <= 12_000


async def test_large_messages_are_read_in_short_pages_and_none_is_left_out(rig: Rig) -> None:
    large = bytes(3_900_000)
    for number in range(11):
        await rig.submit(message(f"g{number}", B, payload=large, delay_ms=5_000))
    await rig.restart()
    rig.clock.advance(6_000)
    for number in range(11):
        await rig.until_state(f"g{number}", State.SUCCEEDED)
    assert rig.destination.urls() == [B] * 11


async def test_what_finds_no_permit_leaves_memory_to_others(make_rig: MakeRig) -> None:
    """A receiver and a producer hang, each with ten times what memory holds.

    No other message is late for that.
    """
    rig = await make_rig(
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
    rig.destination.hold(B)
    rig.destination.hold(CHECK)
    for number in range(100):
        await rig.submit(message(f"hung{number}", B))
        await rig.prepare(message(f"mute{number}", B))
    rig.clock.advance(60_000)
    await rig.settled()
    rig.destination.script[alive].append(Answer(500))
    await rig.submit(message("again", alive))
    await rig.prepare(message("left", alive, check_url=asked))
    begun_ms = rig.clock.now_ms()
    for gid in ("again", "left"):
        while await rig.state(gid) is not State.SUCCEEDED:
            assert rig.clock.now_ms() - begun_ms < 120_000, f"{gid} waits for a place in memory"
            rig.clock.advance(2_000)
            for _ in range(3):
                await rig.settled()
    assert rig.coordinator.gauges().active <= 20


async def test_what_finds_no_permit_stays_in_memory_while_its_change_is_with_the_store(rig: Rig) -> None:
    """Another node's message must stay in memory for the store's answer.

    Evicting it now would leave the answer without a message.
    """
    rig.store.open.clear()
    reply = rig.prepare_soon(message("g"))
    await rig.until(lambda: rig.store.held_flushes == 1)
    active = rig.coordinator._memory.get("g")
    assert active is not None
    active.owned = False

    rig.coordinator._machine.defer(active, 0)

    assert rig.coordinator._memory.get("g") is active
    rig.store.open.set()
    assert (await asyncio.wait_for(reply, PATIENCE_S)).error is None


async def test_what_is_due_is_read_while_memory_is_a_little_over_its_bound(make_rig: MakeRig) -> None:
    """Memory is over its bound whenever more messages arrive than find a permit.

    A message that leaves memory needs a flush for it.
    """
    alive = "http://alive/in"
    rig = await make_rig(CoordinatorSettings(delivery=QUICK, active_max=20, page_rows=5, crowded_retry_ms=1))
    rig.destination.hold(B)
    for number in range(21):  # calls under way, so none of them leaves
        await rig.submit(message(f"hung{number}", B))
    await rig.until(lambda: len(rig.destination.calls) == 21)
    rig.destination.script[alive].append(Answer(500))
    await rig.submit(message("again", alive))
    await rig.until(lambda: rig.coordinator.gauges().active == 21)
    rig.clock.advance(2_000)
    await rig.until_state("again", State.SUCCEEDED)


async def test_memory_holds_a_bounded_number_and_the_rest_waits_in_the_store(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(delivery=QUICK, check_back=QUICK, active_max=3, page_rows=2))
    for number in range(20):
        await rig.submit(message(f"g{number:02d}", B, delay_ms=5_000))
        await rig.prepare(message(f"p{number:02d}", B))
        assert rig.coordinator.gauges().active <= 4
    rig.clock.advance(40_000)
    for number in range(20):
        await rig.until_state(f"g{number:02d}", State.SUCCEEDED)
        await rig.until_state(f"p{number:02d}", State.SUCCEEDED)
    assert len(rig.destination.calls) == 60


async def test_a_message_that_left_memory_is_found_when_it_is_asked_for(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(active_max=1))
    for number in range(4):
        await rig.prepare(message(f"g{number}"))
    assert (await rig.prepare(message("g0"))).error is None
    assert (await rig.abort("g1")).error is None
    assert (await rig.submit(message("g2"))).error is None
    await rig.until_state("g2", State.SUCCEEDED)
    assert await rig.state("g1") is State.FAILED


async def test_beyond_the_bound_requests_are_refused_until_there_is_room(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(waiting_max=2))
    rig.store.open.clear()
    taken = [rig.prepare_soon(message("a")), rig.prepare_soon(message("b"))]
    assert isinstance((await rig.prepare(message("c"))).error, Overloaded)
    rig.store.open.set()
    assert [(await reply).error for reply in taken] == [None, None]
    assert (await rig.prepare(message("c"))).error is None


async def test_a_store_fault_while_delivering_loses_nothing(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(delivery=QUICK, check_back=QUICK, store_retry_ms=1))
    rig.clock.runs = True
    rig.destination.hold(B)
    await rig.submit(message("g"))
    rig.store.failures.append(StoreFull())
    rig.destination.release(B)
    await rig.until_state("g", State.SUCCEEDED)


async def test_drain_ends_what_is_under_way_and_starts_nothing_new(rig: Rig) -> None:
    rig.destination.hold(B)
    await rig.submit(message("g", B, C))
    await rig.until(lambda: rig.destination.urls() == [B])
    task = asyncio.create_task(rig.coordinator.drain(5_000))
    await asyncio.sleep(0)
    rig.destination.release(B)
    await task
    assert rig.destination.urls() == [B]
    await rig.restart()
    rig.clock.advance(2_000)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [B, C]


async def test_drain_is_bounded_when_a_call_never_ends(rig: Rig) -> None:
    rig.destination.hold(B)
    waiting = rig.submit_soon(message("g", B, wait_result=True))
    await rig.until(lambda: rig.destination.urls() == [B])
    await rig.coordinator.drain(50)
    assert (await waiting).error is not None


async def test_what_was_called_at_in_is_what_was_asked(rig: Rig) -> None:
    await rig.submit(message("g", IN))
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.calls[0].timeout_ms == 3_000
