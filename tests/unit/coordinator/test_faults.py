"""Faults of a store, a destination or a requester lose no message and no reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.unit.coordinator.rig import CHECK, IN, OK, PATIENCE_S, QUICK, Rig, ScriptedDestination, message
from twophase.coordinator.maintenance.horizon import OLDEST_HEADER, OldestHeader
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Reply
from twophase.core.errors import ConfigurationError, NotYetDelivered, Overloaded, StoreCorrupt, StoreError, StoreFull
from twophase.core.lifecycle import State
from twophase.core.limits import BRANCHES_MAX
from twophase.destinations.base import Answer, Call
from twophase.stores.batch import Batch, Insert

MakeRig = Callable[..., Awaitable[Rig]]


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


async def with_destination(rig: Rig, manner: str) -> Unmannered:
    unmannered = Unmannered(manner)
    rig.destination = unmannered
    await rig.restart()
    return unmannered


@pytest.mark.parametrize("manner", ["answers inside the call", "answers twice", "answers, then raises"])
async def test_the_first_answer_counts_and_permits_are_given_back(rig: Rig, manner: str) -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    town = await with_destination(rig, manner)
    await rig.submit(message("g", IN, "http://bank-c/in"))
    await rig.until_state("g", State.SUCCEEDED)
    assert len(town.calls) == 2
    assert rig.coordinator.gauges().branch_calls == 0
    assert heard == []


@pytest.mark.parametrize("manner", ["raises", "raises when looked at"])
async def test_a_destination_that_raises_is_an_error_answer_and_retried(rig: Rig, manner: str) -> None:
    town = await with_destination(rig, manner)
    await rig.submit(message("g"))
    await rig.settled()
    view = await rig.coordinator.query("g")
    assert view is not None
    assert (view.state, view.attempts) == (State.SUBMITTED, 1)
    assert view.log[0].error == "the destination failed: RuntimeError: no idea"
    town.manner = "answers twice"
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_message_of_as_many_branches_as_allowed_becomes_final(rig: Rig) -> None:
    rig.destination.script["http://bank/62"].append(Answer(500))
    await rig.submit(message("g", *[f"http://bank/{index}" for index in range(BRANCHES_MAX.value)], concurrent=True))
    await rig.settled()
    rig.clock.advance(1_064)
    await rig.until_state("g", State.SUCCEEDED)
    assert len(rig.destination.calls) == BRANCHES_MAX.value + 1


async def test_a_requester_that_fails_to_take_its_reply_gets_no_other_and_stops_no_other(rig: Rig) -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))
    took: list[Reply] = []

    def clumsy(reply: Reply) -> None:
        took.append(reply)
        raise RuntimeError("a requester's own fault")

    rig.store.open.clear()
    rig.coordinator.prepare(message("clumsy"), clumsy)
    other = rig.prepare_soon(message("other"))
    rig.store.open.set()
    assert (await asyncio.wait_for(other, PATIENCE_S)).error is None
    await rig.settled()
    assert [reply.error for reply in took] == [None]
    assert len(heard) == 1


async def test_the_receiver_of_a_failure_may_ask_again_at_once(rig: Rig) -> None:
    second: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    rig.store.failures.append(StoreFull())
    rig.coordinator.prepare(message("g"), lambda _: rig.coordinator.prepare(message("g"), second.set_result))
    assert (await asyncio.wait_for(second, PATIENCE_S)).error is None
    await rig.until(lambda: rig.coordinator.gauges().active == 1)
    rig.clock.advance(36_000)
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_stop_answers_each_requester_once(rig: Rig) -> None:
    replies: dict[str, list[Reply]] = {"in flush": [], "queued": [], "not begun": [], "looked up": [], "waiting": []}
    rig.destination.hold(IN)
    rig.coordinator.submit(message("w", wait_result=True), replies["waiting"].append)
    await rig.until(lambda: bool(rig.destination.calls))
    rig.store.open.clear()
    rig.coordinator.prepare(message("a"), replies["in flush"].append)
    await rig.until(lambda: rig.store.held_flushes == 1)
    rig.coordinator.submit(message("a"), replies["queued"].append)
    rig.coordinator.prepare(message("b"), replies["not begun"].append)
    rig.coordinator.abort("c", replies["looked up"].append)
    stopping = asyncio.create_task(rig.coordinator.stop())
    await rig.until(lambda: rig.coordinator._machine.group_commit._halted)
    rig.store.open.set()
    await stopping
    assert {what: len(took) for what, took in replies.items()} == dict.fromkeys(replies, 1)
    assert replies["in flush"][0].error is None
    assert isinstance(replies["not begun"][0].error, StoreError)
    await rig.restart()
    assert await rig.state("a") is State.PREPARED


async def test_a_row_whose_body_cannot_be_read_is_reported_and_stops_no_other(rig: Rig, tmp_path: Path) -> None:
    await rig.store.flush(Batch([Insert("broken", State.PREPARED, 0, b"\xc1")], []))
    await rig.restart()
    assert [gid for gid, _ in rig.watcher.incidents] == ["broken"]
    assert isinstance((await rig.abort("broken")).error, StoreCorrupt)
    assert isinstance((await rig.prepare(message("broken"))).error, StoreCorrupt)
    assert (await rig.prepare(message("g"))).error is None


async def test_requests_for_one_gid_are_bounded(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(delivery=QUICK, gid_waiting_max=3))
    rig.store.open.clear()
    replies = [rig.prepare_soon(message("g")) for _ in range(6)]
    assert [isinstance((await reply).error, Overloaded) for reply in replies[4:]] == [True, True]
    rig.store.open.set()
    assert [(await reply).error for reply in replies[:4]] == [None] * 4


async def test_requests_that_wait_for_one_round_are_bounded(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(delivery=QUICK, gid_waiting_max=3))
    rig.destination.hold(IN)
    waiting = [rig.submit_soon(message("g", wait_result=True))]
    await rig.until(lambda: bool(rig.destination.calls))
    waiting += [rig.submit_soon(message("g", wait_result=True)) for _ in range(2)]
    assert isinstance((await rig.submit(message("g", wait_result=True))).error, Overloaded)
    rig.destination.release(IN)
    assert [(await reply).error for reply in waiting] == [None] * 3


async def test_a_repeated_submit_does_not_cut_the_firsts_wait_short(rig: Rig) -> None:
    await rig.prepare(message("g"))
    replies = [rig.submit_soon(message("g", wait_result=True)), rig.submit_soon(message("g"))]
    assert [(await reply).error for reply in replies] == [None, None]
    assert (await replies[0]).state is State.SUCCEEDED


async def test_wait_result_is_answered_when_its_finish_cannot_be_stored(rig: Rig) -> None:
    rig.destination.hold(IN)
    reply = rig.submit_soon(message("g", wait_result=True))
    await rig.until(lambda: bool(rig.destination.calls))
    rig.store.failures.append(StoreFull())
    rig.destination.release(IN)
    assert isinstance((await asyncio.wait_for(reply, PATIENCE_S)).error, StoreFull | NotYetDelivered)


async def test_a_store_that_keeps_failing_does_not_have_branches_called_without_pause(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(delivery=QUICK, store_retry_ms=20))
    rig.clock.runs = True
    rig.destination.hold(IN)
    await rig.submit(message("g"))
    rig.store.failures.extend([StoreFull()] * 4)
    rig.destination.release(IN)
    began = asyncio.get_running_loop().time()
    await rig.until_state("g", State.SUCCEEDED)
    # The pauses are 20 + 40 + 80 + 160 ms; without pauses it takes a few.
    assert asyncio.get_running_loop().time() - began > 0.25
    assert len(rig.destination.calls) == 5


async def test_a_failed_look_up_is_reported_and_the_message_still_comes_due(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.prepare(message("g"))
    await rig.restart()
    active = rig.coordinator._memory.get("g")
    assert active is not None
    rig.coordinator._memory.remove(active)

    async def fails(gid: str) -> None:
        raise StoreError(f"cannot read {gid}")

    with monkeypatch.context() as patched:
        patched.setattr(rig.store, "get", fails)
        assert isinstance((await rig.abort("g")).error, StoreError)
    await rig.until(lambda: rig.coordinator.gauges().active == 1)
    rig.clock.advance(36_000)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [CHECK, IN]


async def test_check_backs_beyond_a_full_queue_are_asked_later_and_none_is_forgotten(make_rig: MakeRig) -> None:
    rig = await make_rig(
        CoordinatorSettings(check_back=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1, in_flight_max=2)
    )
    for number in range(5):
        await rig.prepare(message(f"g{number}"))
    rig.clock.advance(36_000)
    for _ in range(5):
        await rig.settled()
        rig.clock.advance(1_064)
    for number in range(5):
        await rig.until_state(f"g{number}", State.SUCCEEDED)


async def test_a_fault_that_names_its_cause_and_remedy_keeps_both(rig: Rig) -> None:
    rig.store.failures.append(ConfigurationError("a certificate has expired.", remedy="Renew it."))
    error = (await rig.prepare(message("g"))).error
    assert isinstance(error, StoreError)
    assert (error.message, error.remedy) == ("a certificate has expired.", "Renew it.")
    assert (await rig.prepare(message("g"))).error is None


@pytest.mark.parametrize("fault", [StoreFull(), ConfigurationError("a certificate has expired."), RuntimeError("?")])
async def test_the_header_of_branch_calls_outlives_any_fault(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    published: list[tuple[str, str]] = []
    faults = [fault]
    now_ms = rig.store.now_ms

    async def fails_once() -> int:
        if faults:
            raise faults.pop()
        return await now_ms()

    monkeypatch.setattr(rig.store, "now_ms", fails_once)
    header = OldestHeader(rig.store, 1, published.append)
    await header.start()
    try:
        await rig.until(lambda: bool(published))
    finally:
        await header.stop()
    assert published[0][0] == OLDEST_HEADER
