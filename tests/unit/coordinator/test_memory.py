"""The bytes that a message in memory counts for, and an owner's share of memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import IN, PATIENCE_S, QUICK, Harness, message
from twophase.coordinator.dispatch.limiter import UNPROVEN
from twophase.coordinator.owners import Owners
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import ActiveMessage, Reply
from twophase.coordinator.state.active_set import ActiveSet, held_bytes
from twophase.coordinator.state.times import Times
from twophase.core.errors import Overloaded
from twophase.core.lifecycle import State
from twophase.core.limits import CALLS_MAX
from twophase.core.message import Branch, Message, decode, encode
from twophase.core.options import Options
from twophase.core.topic import late_id
from twophase.destinations.base import Answer
from twophase.server.identity.caller import Caller
from twophase.server.identity.quotas import Meter
from twophase.server.identity.tokens import Quota
from twophase.testing.clock import VirtualClock

MakeRig = Callable[..., Awaitable[Harness]]

MESSAGES = 100
URL = "http://b/in"
HEADERS = tuple((f"name-{number}", "v" * 240) for number in range(64))
KINDS = {
    "empty": Message("g", ()),
    "payload": Message("g", (Branch(URL, b"x" * 60_000),)),
    "branches": Message("g", (Branch(URL),) * 63),
    "headers": Message("g", (), options=Options(headers=HEADERS)),
    "trace": Message("g", (), options=Options(trace=HEADERS)),
    "check address": Message("g", (), f"http://a/check?{'x' * 2000}"),
    "prepared check address": Message("g", (), "http://a/check", prepared_check_url=f"http://a/{'x' * 2000}"),
    "subscribers": Message("g", (Branch(URL, b"", tuple(f"http://b/{'x' * 200}?{n}" for n in range(63))),)),
}


def _memory() -> ActiveSet:
    clock, settings = VirtualClock(), CoordinatorSettings()
    return ActiveSet(clock, lambda _: None, Times(settings, clock), settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_counts_for_about_the_memory_that_it_takes(kind: str) -> None:
    bodies = [encode(msgspec.structs.replace(KINDS[kind], gid=f"g{number:06}")) for number in range(MESSAGES)]
    tracemalloc.start()
    held = [ActiveMessage(decode(body)) for body in bodies]
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    memory = _memory()
    for one in held:
        memory.add(one.message)
    assert 0.7 < memory.bytes / taken < 1.5


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_counts_for_the_same_wherever_it_is_counted(kind: str) -> None:
    memory, owners, said = _memory(), Owners(), KINDS[kind]
    looked_up = memory.add(Message("other", ()))
    looked_up.become(said)
    memory.weigh(looked_up)
    Meter("orders", Quota(bytes_stored=10**9), owners).take_room(held_bytes(said))
    assert owners.waiting("orders") == (1, memory.add(said).bytes)
    assert looked_up.bytes == memory.bytes - looked_up.bytes


async def test_a_message_that_left_takes_no_memory_however_far_its_due_time_is() -> None:
    clock, settings = VirtualClock(), CoordinatorSettings()
    memory = ActiveSet(clock, lambda _: None, Times(settings, clock), settings)
    memory.look_at_far(clock.now_ms())
    tracemalloc.start()

    for number in range(MESSAGES):
        active = memory.add(Message(f"later-{number}", (Branch(URL, bytes(60_000)),)))
        memory.schedule(active, clock.now_ms() + 30 * 86_400_000)
        memory.remove(active)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert held < 2 * 60_000


async def test_a_message_that_was_looked_up_first_counts_whole(harness: Harness) -> None:
    looked_up = asyncio.ensure_future(harness.abort("g"))
    await asyncio.sleep(0)
    await harness.prepare(message("g", payload=b"x" * 50_000))
    await looked_up
    assert harness.coordinator.gauges().active_bytes > 50_000


async def test_a_message_of_a_topic_counts_with_its_subscribers(harness: Harness) -> None:
    await harness.coordinator.topics.subscribe("rates", f"http://b/{'x' * 2_000}")
    await harness.prepare(message("g", "topic://rates"))
    assert harness.coordinator.gauges().active_bytes > 2_000


class Client:
    """A producer with a token, and what its requests were answered."""

    def __init__(self, harness: Harness, name: str) -> None:
        self._harness = harness
        self._caller = Caller(name) if name else None

    async def submit(self, gid: str, **more: Any) -> str:
        """Submit a message; return the code of its refusal, empty for none."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        said = message(gid, check_url="", **more)
        self._harness.coordinator.submit(said, reply.set_result, None, self._caller)
        error = (await asyncio.wait_for(reply, PATIENCE_S)).error
        return "" if error is None else error.code


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(CoordinatorSettings(delivery=QUICK, active_max=8), id="messages"),
        pytest.param(CoordinatorSettings(delivery=QUICK, active_bytes_max=8 * 100_900), id="bytes"),
    ],
)
async def test_one_owner_leaves_room_in_memory_to_others(make_harness: MakeRig, settings: CoordinatorSettings) -> None:
    harness = await make_harness(settings)
    harness.destination.hold(IN)
    eve, stock, nobody = (Client(harness, name) for name in ("eve", "stock", ""))
    payload = b"x" * 100_000
    said = [await eve.submit(f"eve{number}", payload=payload) for number in range(20)]
    assert set(said[:10]) == {""}
    assert set(said[12:]) == {Overloaded.code}
    assert [await stock.submit(f"stock{number}", payload=payload) for number in range(3)] == ["", "", ""]
    assert await eve.submit("eve0", payload=payload) == "", "it is in memory"
    assert await nobody.submit("from before", payload=payload) == ""
    harness.destination.release(IN)
    await _until_all_succeed(harness, [*(f"stock{number}" for number in range(3)), "from before"])
    await until(lambda: not harness.coordinator.gauges().active)
    assert [await eve.submit(f"again{number}", payload=payload) for number in range(3)] == ["", "", ""]


async def test_clients_without_tokens_have_the_whole_memory(make_harness: MakeRig) -> None:
    # Each message has its call under way, so none leaves memory: a host that has not answered gets 16.
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, active_max=7))
    harness.destination.hold(IN)
    nobody = Client(harness, "")
    said = [await nobody.submit(f"g{number}") for number in range(20)]
    assert said == [""] * 15 + [Overloaded.code] * 5


async def test_an_owners_messages_count_for_it_after_a_restart(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, active_max=8))
    harness.destination.hold(IN)
    said = [await Client(harness, "eve").submit(f"eve{number}") for number in range(8)]
    assert said == [""] * 8
    await harness.restart()
    await harness.settled()
    for number in range(4):
        assert await Client(harness, "stock").submit(f"stock{number}") == ""
    assert await Client(harness, "eve").submit("new") == Overloaded.code
    assert await Client(harness, "stock").submit("new") == ""


async def test_a_backlog_that_is_not_under_way_refuses_nothing_to_its_owner(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, active_max=8, page_rows=5, crowded_retry_ms=1))
    harness.destination.script[IN].extend([Answer(500, b"no")] * 40)
    eve = Client(harness, "eve")
    for number in range(40):
        assert await eve.submit(f"eve{number}") == ""
        await harness.settled()
    harness.clock.advance(60_000)
    for number in range(40):
        await harness.until_state(f"eve{number}", State.SUCCEEDED)


async def _until_all_succeed(harness: Harness, gids: list[str], step_ms: int = 2_000) -> None:
    for gid in gids:
        while await harness.state(gid) is not State.SUCCEEDED:
            harness.clock.advance(step_ms)
            await harness.settled()


async def test_messages_for_a_silent_receiver_wait_in_the_store_where_memory_has_no_room(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, check_back=QUICK, active_max=40, page_rows=5))
    silent = "http://silent/in"
    harness.destination.hold(silent)
    for number in range(150):
        assert (await harness.submit(message(f"silent{number}", silent))).error is None
        await harness.settled()
        assert harness.coordinator.gauges().active <= 50
    assert (await harness.submit(message("other", IN))).error is None
    await harness.until_state("other", State.SUCCEEDED)
    harness.destination.release(silent)
    await _until_all_succeed(harness, [f"silent{number}" for number in range(150)])


@pytest.mark.parametrize("receivers", [40, 2])
async def test_large_messages_for_silent_receivers_leave_room_to_others(make_harness: MakeRig, receivers: int) -> None:
    """Their calls are under way, so they cannot leave memory."""
    harness = await make_harness(
        CoordinatorSettings(delivery=QUICK, active_bytes_max=8 * 100_900, in_flight_max=64, page_rows=5)
    )
    silent = [f"http://silent{number}/in" for number in range(receivers)]
    for url in silent:
        harness.destination.hold(url)
    for number in range(40):
        said = message(f"silent{number}", silent[number % receivers], payload=b"x" * 100_000)
        assert (await harness.submit(said)).error is None, number
        await harness.settled()
    assert (await harness.submit(message("other", IN))).error is None
    await harness.until_state("other", State.SUCCEEDED)
    for url in silent:
        harness.destination.release(url)
    await _until_all_succeed(harness, [f"silent{number}" for number in range(40)])


async def test_calls_of_late_subscribers_wait_in_the_store_where_memory_has_no_room(
    make_harness: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So the topic of a late branch is not expanded at the submit: its subscribers are called one by one.
    monkeypatch.setattr("twophase.coordinator.topics.CALLS_MAX", msgspec.structs.replace(CALLS_MAX, value=1))
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, check_back=QUICK, active_max=40, page_rows=5))
    silent = "http://silent/in"
    await harness.coordinator.topics.subscribe("rates", silent)
    harness.destination.hold(silent)
    for number in range(80):
        assert (await harness.prepare(message(f"late{number}", IN, open=True))).error is None
        assert (await harness.submit(message(f"late{number}", IN, "topic://rates", open=True))).error is None
        await harness.settled()
        assert harness.coordinator.gauges().active <= 50
    assert (await harness.submit(message("other", IN))).error is None
    await harness.until_state("other", State.SUCCEEDED)
    harness.destination.release(silent)
    await _until_all_succeed(harness, [f"late{number}" for number in range(80)])
    assert {dict(call.query)["branch_id"] for call in harness.destination.calls if call.url == silent} == {
        late_id("02", silent)
    }


async def test_a_producer_that_hangs_delays_no_other_where_memory_has_no_room(make_harness: MakeRig) -> None:
    """A message that leaves memory comes back after 5 seconds."""
    silent, check = "http://silent/check", "http://bank-a/check"
    harness = await make_harness(
        CoordinatorSettings(
            delivery=QUICK, check_back=QUICK, active_max=60, page_rows=60, queue_waiting_max=50, crowded_retry_ms=1
        )
    )
    await _prove(harness, check)
    harness.destination.hold(silent)
    for number in range(90):
        assert (await harness.prepare(message(f"silent{number}", check_url=silent))).error is None
    for number in range(60):
        assert (await harness.prepare(message(f"other{number}", check_url=check))).error is None
    due_ms = harness.clock.now_ms() + CoordinatorSettings().timeout_to_fail_ms
    harness.clock.advance(due_ms - harness.clock.now_ms())
    await _until_all_succeed(harness, [f"other{number}" for number in range(60)], step_ms=10)
    assert harness.clock.now_ms() - due_ms < 4_000


async def test_messages_that_wait_for_a_silent_receiver_make_room_to_what_is_due(make_harness: MakeRig) -> None:
    """The receiver has answered before, so its calls wait at first."""
    harness = await make_harness(
        CoordinatorSettings(delivery=QUICK, check_back=QUICK, active_max=60, page_rows=20, crowded_retry_ms=1)
    )
    silent, memory = "http://silent/in", harness.coordinator._memory
    for number in range(UNPROVEN + 1):
        await harness.submit(message(f"answered{number}", silent))
        await harness.until_state(f"answered{number}", State.SUCCEEDED)
    harness.destination.hold(silent)
    harness.destination.script[IN].append(Answer(500, b"no"))
    for number in range(100):
        assert (await harness.submit(message(f"silent{number}", silent))).error is None
    assert (await harness.submit(message("other", IN))).error is None
    await harness.settled()
    assert memory.overcrowded
    # The test does not look the message up, because that would bring it into memory.
    async with asyncio.timeout(PATIENCE_S):
        while len([url for url in harness.destination.urls() if url == IN]) < 2:
            harness.clock.advance(500)
            await harness.settled()
    assert len(harness.destination.held[silent]) < 100, "no silent call had to end for it"


async def _prove(harness: Harness, check: str) -> None:
    """Have an address answer once more than a new one may be asked at a time."""
    for number in range(UNPROVEN + 1):
        await harness.prepare(message(f"proof{number}", check_url=check))
    harness.clock.advance(CoordinatorSettings().timeout_to_fail_ms)
    await _until_all_succeed(harness, [f"proof{number}" for number in range(UNPROVEN + 1)])
