"""The last delivery that a group allows.

Its consumer has the message, as with every delivery before. The message becomes a dead letter when the last delivery
has failed, and not when it begins.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.items import MADE
from tests.support.waiting import until
from tests.unit.coordinator.harness import Harness
from tests.unit.coordinator.queueing import GROUP, TOPIC, Queueing, order
from twophase.coordinator.queues import Delivered
from twophase.coordinator.queues.subscription import held_of
from twophase.core.errors import ReceiptStale
from twophase.stores.queue_rows import Definition

LETTERS = f"%DLQ%{GROUP}"


@pytest.fixture
def queueing(harness: Harness) -> Queueing:
    return Queueing(harness)


async def limit(harness: Harness, attempts_max: int) -> None:
    """Let the group have a message that many times."""
    await harness.store.define_queue(
        Definition("group", GROUP, f'{{"attempts_max":{attempts_max},"backoff_ms":[1000]}}'), MADE
    )


async def letters(queueing: Queueing) -> list[str]:
    """Return the dead letters, after every burial that has begun."""
    await until(lambda: not queueing.queues._burials)
    entries = await queueing.harness.store.queue_page(LETTERS, 0, 0, 1_000)
    return [held_of(entry).message.message_id for entry in entries]


@pytest.mark.parametrize("attempts_max", [1, 2, 17])
async def test_the_consumer_of_the_last_delivery_may_acknowledge_it(
    harness: Harness, queueing: Queueing, attempts_max: int
) -> None:
    await limit(harness, attempts_max)
    await queueing.send(order("1"))
    for attempt in range(1, attempts_max + 1):
        (one,) = await queueing.receive(invisible_ms=1_000)
        assert one.attempt == attempt
        harness.clock.advance(1_000 if attempt < attempts_max else 999)

    assert await letters(queueing) == []
    await queueing.ack(one)

    harness.clock.advance(3_600_000)
    assert await queueing.ids() == []
    assert await letters(queueing) == []


@pytest.mark.parametrize("attempts_max", [1, 2])
async def test_a_last_delivery_that_failed_makes_a_dead_letter(
    harness: Harness, queueing: Queueing, attempts_max: int
) -> None:
    await limit(harness, attempts_max)
    await queueing.send(order("1"))
    for _ in range(attempts_max):
        (one,) = await queueing.receive(invisible_ms=1_000)
        harness.clock.advance(1_000)

    assert await queueing.ids() == []
    assert await letters(queueing) == ["1"]
    with pytest.raises(ReceiptStale):
        await queueing.ack(one)


@pytest.mark.parametrize("is_acknowledged", [True, False])
async def test_the_next_of_a_message_group_waits_for_the_end_of_a_last_delivery(
    harness: Harness, queueing: Queueing, is_acknowledged: bool
) -> None:
    await limit(harness, 1)
    await queueing.send(*(order(id_, kind="fifo", message_group="a") for id_ in ("1", "2")))
    (first,) = await queueing.receive(invisible_ms=1_000)

    assert first.message.message_id == "1"
    assert await letters(queueing) == []
    assert await queueing.ids() == []
    if is_acknowledged:
        await queueing.ack(first)
    else:
        harness.clock.advance(1_000)
        assert await queueing.ids() == []  # it is buried now
        assert await letters(queueing) == ["1"]
    assert await queueing.ids() == ["2"]


async def test_what_another_consumer_got_while_it_was_given_up_is_no_dead_letter(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer gives a message up, and another one has it before it is read."""
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=1_000)
    reading = harness.store.queue_entries
    again: list[Delivered] = []

    async def slow(*asked: Any) -> Any:
        monkeypatch.undo()
        harness.clock.advance(1_000)
        again.extend(await queueing.receive())
        return await reading(*asked)

    monkeypatch.setattr(harness.store, "queue_entries", slow)
    with pytest.raises(ReceiptStale):
        await queueing.queues.dead_letter("", GROUP, TOPIC, first.handle)

    assert await letters(queueing) == []
    await queueing.ack(*again)


_STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(["", "a", "b"])),
    st.tuples(st.just("receive"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["ack", "extend", "give back", "give up"]), st.integers(0, 9)),
    st.tuples(st.just("pass"), st.sampled_from([400, 1_000])),
)


class Consumers:
    """Consumers of one group, and what they know of their messages."""

    def __init__(self, harness: Harness, attempts_max: int) -> None:
        self.harness = harness
        self.queueing = Queueing(harness)
        self.attempts_max = attempts_max
        self.groups: list[str] = []
        """The message group of each message, by its id."""
        self.held: dict[str, tuple[str, int]] = {}
        """The receipt of each message that a consumer has, and until when."""
        self.deliveries: dict[str, int] = {}
        self.done: set[str] = set()
        self.given_up: set[str] = set()

    async def step(self, what: str, how: Any) -> None:
        queues, clock = self.queueing.queues, self.harness.clock
        held = sorted(self.held)
        if what == "send":
            kind = "fifo" if how else "normal"
            await self.queueing.send(order(str(len(self.groups)), kind=kind, message_group=how))
            self.groups.append(how)
        elif what == "receive":
            await self._receive(how)
        elif what == "pass":
            clock.advance(how)
            self.held = {id_: one for id_, one in self.held.items() if one[1] > clock.now_ms()}
        elif held:
            id_ = held[how % len(held)]
            handle, _ = self.held.pop(id_)
            if what == "extend":
                handle = await queues.extend("", GROUP, TOPIC, handle, 1_000)
                self.held[id_] = handle, clock.now_ms() + 1_000
            elif what == "give back":
                await queues.give_back("", GROUP, TOPIC, handle)
                self.deliveries[id_] -= 1
            elif what == "give up":
                await queues.dead_letter("", GROUP, TOPIC, handle)
                self.given_up.add(id_)
            else:
                await queues.ack("", GROUP, TOPIC, handle)
                self.done.add(id_)
        await self._require()

    async def _receive(self, count: int) -> None:
        found = await self.queueing.receive(count, invisible_ms=1_000)
        buried = set(await letters(self.queueing))
        for one in found:
            id_ = one.message.message_id
            assert id_ not in self.held.keys() | self.done | buried, "one consumer at a time"
            mates = {str(other) for other in range(int(id_)) if self.groups[other] == self.groups[int(id_)] != ""}
            assert mates <= self.done | buried, "those before it are done"
            self.deliveries[id_] = self.deliveries.get(id_, 0) + 1
            assert one.attempt == self.deliveries[id_] <= self.attempts_max
            self.held[id_] = one.handle, self.harness.clock.now_ms() + 1_000

    async def _require(self) -> None:
        buried = await letters(self.queueing)
        assert len(buried) == len(set(buried))
        assert not set(buried) & (self.held.keys() | self.done), "what a consumer has, or has done, is no dead letter"
        failed = {id_ for id_ in buried if self.deliveries[id_] == self.attempts_max}
        assert set(buried) <= failed | self.given_up


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(attempts_max=st.integers(1, 3), steps=st.lists(_STEPS, min_size=5, max_size=30))
def test_what_a_consumer_has_is_never_buried(attempts_max: int, steps: list[tuple[str, Any]]) -> None:
    async def run(folder: Path) -> None:
        harness = Harness(folder)
        await harness.coordinator.start()
        try:
            await limit(harness, attempts_max)
            consumers = Consumers(harness, attempts_max)
            await consumers.step("send", "a")
            for what, how in steps:
                await consumers.step(what, how)
        finally:
            await harness.coordinator.stop()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
