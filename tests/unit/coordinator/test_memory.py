"""The bytes that a message in memory counts for."""

from __future__ import annotations

import asyncio
import tracemalloc

import msgspec
import pytest

from tests.unit.coordinator.harness import Harness, message
from twophase.coordinator.owners import Owners
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.times import Times
from twophase.core.message import Branch, Message, decode, encode
from twophase.core.options import Options
from twophase.server.identity.quotas import Meter
from twophase.server.identity.tokens import Quota
from twophase.testing.clock import VirtualClock

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
    return ActiveSet(clock, lambda _: None, Times(settings, clock), settings.active_max, settings.active_bytes_max)


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
    Meter("orders", Quota(bytes_stored=10**9), owners).require_room(said)
    assert owners.waiting("orders") == (1, memory.add(said).bytes)
    assert looked_up.bytes == memory.bytes - looked_up.bytes


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
