"""An extension whose answer was lost.

Its repetition is answered by the receipt that counts.
"""

from __future__ import annotations

import pytest

from tests.unit.coordinator.harness import Harness
from tests.unit.coordinator.queueing import GROUP, TOPIC, Queueing, order
from twophase.core.errors import ReceiptStale


@pytest.fixture
def queueing(harness: Harness) -> Queueing:
    return Queueing(harness)


async def extend(queueing: Queueing, handle: str, for_ms: int = 10_000) -> str:
    made: str = await queueing.queues.extend("", GROUP, TOPIC, handle, for_ms)
    return made


async def test_a_repeated_extension_is_answered_by_the_newest_receipt_and_begins_anew(
    harness: Harness, queueing: Queueing
) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=10_000)
    newest = await extend(queueing, first.handle)
    harness.clock.advance(9_000)

    assert await extend(queueing, first.handle) == newest

    harness.clock.advance(9_000)
    assert await queueing.ids() == [], "the answer promised the whole time"
    harness.clock.advance(1_000)
    assert await queueing.ids() == ["1"]


async def test_the_receipt_of_a_repeated_extension_counts(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=10_000)
    await extend(queueing, first.handle)
    newest = await extend(queueing, first.handle)

    await queueing.queues.ack("", GROUP, TOPIC, newest)

    harness.clock.advance(60_000)
    assert await queueing.ids() == []
    with pytest.raises(ReceiptStale):
        await extend(queueing, first.handle)


async def test_an_extension_by_an_earlier_receipt_of_the_delivery_shortens_nothing(
    harness: Harness, queueing: Queueing
) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=10_000)
    second = await extend(queueing, first.handle)
    third = await extend(queueing, first.handle, 20_000)
    assert len({first.handle, second, third}) == 3
    harness.clock.advance(19_000)
    assert await queueing.ids() == []
    await extend(queueing, third, 50_000)
    await extend(queueing, second, 5_000)  # it may be as old as the first one
    harness.clock.advance(49_000)
    assert await queueing.ids() == []
    harness.clock.advance(1_000)
    assert await queueing.ids() == ["1"]


@pytest.mark.parametrize("act", ["ack", "dead_letter", "give_back"])
async def test_what_is_done_counts_although_the_answer_with_the_newest_receipt_was_lost(
    harness: Harness, queueing: Queueing, act: str
) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=10_000)
    await extend(queueing, first.handle)
    await extend(queueing, await extend(queueing, first.handle))

    await getattr(queueing.queues, act)("", GROUP, TOPIC, first.handle)

    harness.clock.advance(60_000)
    assert await queueing.ids() == (["1"] if act == "give_back" else [])
    with pytest.raises(ReceiptStale):
        await queueing.ack(first)


async def test_a_repeated_extension_is_stale_when_another_consumer_has_the_message(
    harness: Harness, queueing: Queueing
) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=10_000)
    await extend(queueing, first.handle)
    harness.clock.advance(10_000)
    await queueing.receive()

    with pytest.raises(ReceiptStale):
        await extend(queueing, first.handle)


async def test_what_its_consumer_has_given_up_is_not_kept_from_the_next(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=10_000)
    await queueing.queues.extend("", GROUP, TOPIC, first.handle, 5_000, rests=True)

    with pytest.raises(ReceiptStale, match="given it up"):
        await extend(queueing, first.handle)

    harness.clock.advance(5_000)
    assert await queueing.ids() == ["1"]
