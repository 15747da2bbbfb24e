"""Faults of a store, a destination or a requester lose no message and no reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, OK, PATIENCE_S, QUICK, Harness, ScriptedDestination, message
from twophase.coordinator.maintenance.horizon import OldestHeader
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Reply
from twophase.core.errors import ConfigurationError, NotYetDelivered, Overloaded, StoreCorrupt, StoreError, StoreFull
from twophase.core.headers import OLDEST_HEADER
from twophase.core.lifecycle import State
from twophase.core.limits import BRANCHES_MAX
from twophase.destinations.base import Answer, Call
from twophase.stores.batch import Batch, Insert

MakeRig = Callable[..., Awaitable[Harness]]


class Unmannered(ScriptedDestination):
    """A destination that raises, answers inside the call, or answers twice."""

    def __init__(self, manner: str) -> None:
        super().__init__()
        self.manner = manner

    def accepts(self, url: str) -> str | None:
        if self.manner == "raises when looked at":
            raise RuntimeError("no idea")
        return super().accepts(url)

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        self.calls.append(call)
        if self.manner == "raises":
            raise RuntimeError("no idea")
        if self.manner == "answers, then raises":
            on_answer(OK)
            raise RuntimeError("no idea")
        if self.manner == "answers inside the call":
            on_answer(OK)
        else:
            asyncio.get_running_loop().call_soon(on_answer, OK)
            asyncio.get_running_loop().call_soon(on_answer, Answer(500))


async def with_destination(harness: Harness, manner: str) -> Unmannered:
    unmannered = Unmannered(manner)
    harness.destination = unmannered
    await harness.restart()
    return unmannered


@pytest.mark.parametrize("manner", ["answers inside the call", "answers twice", "answers, then raises"])
async def test_the_first_answer_counts_and_permits_are_given_back(harness: Harness, manner: str) -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    town = await with_destination(harness, manner)
    await harness.submit(message("g", IN, "http://bank-c/in"))
    await harness.until_state("g", State.SUCCEEDED)
    assert len(town.calls) == 2
    assert harness.coordinator.gauges().branch_calls == 0
    assert heard == []


@pytest.mark.parametrize("manner", ["raises", "raises when looked at"])
async def test_a_destination_that_raises_is_an_error_answer_and_retried(harness: Harness, manner: str) -> None:
    town = await with_destination(harness, manner)
    await harness.submit(message("g"))
    await harness.settled()
    view = await harness.coordinator.query("g")
    assert view is not None
    assert (view.state, view.attempts) == (State.SUBMITTED, 1)
    assert view.log[0].error == "the destination failed: RuntimeError: no idea"
    town.manner = "answers twice"
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_message_of_as_many_branches_as_allowed_becomes_final(harness: Harness) -> None:
    harness.destination.script["http://bank/62"].append(Answer(500))
    await harness.submit(
        message("g", *[f"http://bank/{index}" for index in range(BRANCHES_MAX.value)], concurrent=True)
    )
    await harness.settled()
    harness.clock.advance(1_064)
    await harness.until_state("g", State.SUCCEEDED)
    assert len(harness.destination.calls) == BRANCHES_MAX.value + 1


async def test_a_requester_that_fails_to_take_its_reply_gets_no_other_and_stops_no_other(harness: Harness) -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))
    took: list[Reply] = []

    def clumsy(reply: Reply) -> None:
        took.append(reply)
        raise RuntimeError("a requester's own fault")

    harness.store.open.clear()
    harness.coordinator.prepare(message("clumsy"), clumsy)
    other = harness.prepare_soon(message("other"))
    harness.store.open.set()
    assert (await asyncio.wait_for(other, PATIENCE_S)).error is None
    await harness.settled()
    assert [reply.error for reply in took] == [None]
    assert len(heard) == 1


async def test_the_receiver_of_a_failure_may_ask_again_at_once(harness: Harness) -> None:
    second: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    harness.store.failures.append(StoreFull())
    harness.coordinator.prepare(message("g"), lambda _: harness.coordinator.prepare(message("g"), second.set_result))
    assert (await asyncio.wait_for(second, PATIENCE_S)).error is None
    await until(lambda: harness.coordinator.gauges().active == 1)
    harness.clock.advance(36_000)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_stop_answers_each_requester_once(harness: Harness) -> None:
    replies: dict[str, list[Reply]] = {"in flush": [], "queued": [], "not begun": [], "looked up": [], "waiting": []}
    harness.destination.hold(IN)
    harness.coordinator.submit(message("w", wait_result=True), replies["waiting"].append)
    await until(lambda: bool(harness.destination.calls))
    harness.store.open.clear()
    harness.coordinator.prepare(message("a"), replies["in flush"].append)
    await until(lambda: harness.store.held_flushes == 1)
    harness.coordinator.submit(message("a"), replies["queued"].append)
    harness.coordinator.prepare(message("b"), replies["not begun"].append)
    harness.coordinator.abort("c", replies["looked up"].append)
    stopping = asyncio.create_task(harness.coordinator.stop())
    await until(lambda: harness.coordinator._machine.group_commit._halted)
    harness.store.open.set()
    await stopping
    assert {what: len(took) for what, took in replies.items()} == dict.fromkeys(replies, 1)
    assert replies["in flush"][0].error is None
    assert isinstance(replies["not begun"][0].error, StoreError)
    await harness.restart()
    assert await harness.state("a") is State.PREPARED


async def test_a_row_whose_body_cannot_be_read_is_reported_and_stops_no_other(harness: Harness, tmp_path: Path) -> None:
    await harness.store.flush(Batch([Insert("broken", State.PREPARED, 0, b"\xc1")], []))
    await harness.restart()
    assert [gid for gid, _ in harness.watcher.incidents] == ["broken"]
    assert isinstance((await harness.abort("broken")).error, StoreCorrupt)
    assert isinstance((await harness.prepare(message("broken"))).error, StoreCorrupt)
    assert (await harness.prepare(message("g"))).error is None


async def test_requests_for_one_gid_are_bounded(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, gid_waiting_max=3))
    harness.store.open.clear()
    replies = [harness.prepare_soon(message("g")) for _ in range(6)]
    assert [isinstance((await reply).error, Overloaded) for reply in replies[4:]] == [True, True]
    harness.store.open.set()
    assert [(await reply).error for reply in replies[:4]] == [None] * 4


async def test_requests_that_wait_for_one_round_are_bounded(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, gid_waiting_max=3))
    harness.destination.hold(IN)
    waiting = [harness.submit_soon(message("g", wait_result=True))]
    await until(lambda: bool(harness.destination.calls))
    waiting += [harness.submit_soon(message("g", wait_result=True)) for _ in range(2)]
    assert isinstance((await harness.submit(message("g", wait_result=True))).error, Overloaded)
    harness.destination.release(IN)
    assert [(await reply).error for reply in waiting] == [None] * 3


async def test_a_repeated_submit_does_not_cut_the_firsts_wait_short(harness: Harness) -> None:
    await harness.prepare(message("g"))
    replies = [harness.submit_soon(message("g", wait_result=True)), harness.submit_soon(message("g"))]
    assert [(await reply).error for reply in replies] == [None, None]
    assert (await replies[0]).state is State.SUCCEEDED


async def test_wait_result_is_answered_when_its_finish_cannot_be_stored(harness: Harness) -> None:
    harness.destination.hold(IN)
    reply = harness.submit_soon(message("g", wait_result=True))
    await until(lambda: bool(harness.destination.calls))
    harness.store.failures.append(StoreFull())
    harness.destination.release(IN)
    assert isinstance((await asyncio.wait_for(reply, PATIENCE_S)).error, StoreFull | NotYetDelivered)


async def test_a_store_that_keeps_failing_does_not_have_branches_called_without_pause(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, store_retry_ms=20))
    harness.clock.runs = True
    harness.destination.hold(IN)
    await harness.submit(message("g"))
    harness.store.failures.extend([StoreFull()] * 4)
    harness.destination.release(IN)
    began = asyncio.get_running_loop().time()
    await harness.until_state("g", State.SUCCEEDED)
    # The pauses are 20 + 40 + 80 + 160 ms; without pauses it takes a few.
    assert asyncio.get_running_loop().time() - began > 0.25
    assert len(harness.destination.calls) == 5


async def test_a_failed_look_up_is_reported_and_the_message_still_comes_due(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.prepare(message("g"))
    await harness.restart()
    active = harness.coordinator._memory.get("g")
    assert active is not None
    harness.coordinator._memory.remove(active)

    async def fails(gid: str) -> None:
        raise StoreError(f"cannot read {gid}")

    with monkeypatch.context() as patched:
        patched.setattr(harness.store, "get", fails)
        assert isinstance((await harness.abort("g")).error, StoreError)
    await until(lambda: harness.coordinator.gauges().active == 1)
    harness.clock.advance(36_000)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [CHECK, IN]


async def test_check_backs_beyond_a_full_queue_are_asked_later_and_none_is_forgotten(make_harness: MakeRig) -> None:
    harness = await make_harness(
        CoordinatorSettings(check_back=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1, in_flight_max=2)
    )
    for number in range(5):
        await harness.prepare(message(f"g{number}"))
    harness.clock.advance(36_000)
    for _ in range(5):
        await harness.settled()
        harness.clock.advance(1_064)
    for number in range(5):
        await harness.until_state(f"g{number}", State.SUCCEEDED)


async def test_a_fault_that_names_its_cause_and_remedy_keeps_both(harness: Harness) -> None:
    harness.store.failures.append(ConfigurationError("a certificate has expired.", remedy="Renew it."))
    error = (await harness.prepare(message("g"))).error
    assert isinstance(error, StoreError)
    assert (error.message, error.remedy) == ("a certificate has expired.", "Renew it.")
    assert (await harness.prepare(message("g"))).error is None


@pytest.mark.parametrize("fault", [StoreFull(), ConfigurationError("a certificate has expired."), RuntimeError("?")])
async def test_the_header_of_branch_calls_outlives_any_fault(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    published: list[tuple[str, str]] = []
    faults = [fault]
    now_ms = harness.store.now_ms

    async def fails_once() -> int:
        if faults:
            raise faults.pop()
        return await now_ms()

    monkeypatch.setattr(harness.store, "now_ms", fails_once)
    header = OldestHeader(harness.store, 1, published.append)
    await header.start()
    try:
        await until(lambda: bool(published))
    finally:
        await header.stop()
    assert published[0][0] == OLDEST_HEADER
