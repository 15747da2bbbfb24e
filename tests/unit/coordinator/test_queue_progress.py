"""Progress of groups: durable before the reply, and enough for a restart."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import PATIENCE_S, Harness
from tests.unit.coordinator.queueing import GROUP, TOPIC, Queueing, order
from twophase.coordinator.gauges import QueueGauge
from twophase.coordinator.queues import QueueMessage
from twophase.coordinator.queues.cursor import Cursor
from twophase.core.errors import ReceiptStale, StoreError, StoreUnavailable
from twophase.stores.batch import Batch, FlushResult
from twophase.stores.queue_rows import PAGE_BYTES_MAX


@pytest.fixture
def queueing(harness: Harness) -> Queueing:
    return Queueing(harness)


async def test_a_restart_gives_out_what_was_given_out_and_nothing_that_was_acknowledged(
    harness: Harness, queueing: Queueing
) -> None:
    await queueing.send(*(order(f"{number}") for number in range(6)))
    found = await queueing.receive(5)
    await queueing.ack(found[1], found[3])

    await harness.restart()
    again = await queueing.receive()

    assert [(one.message.message_id, one.attempt) for one in again] == [
        ("0", 2),
        ("2", 2),
        ("4", 2),
        ("5", 1),
    ]
    for earlier, is_done in (found[0], False), (found[1], True):
        with pytest.raises(ReceiptStale) as caught:
            await queueing.ack(earlier)
        assert caught.value.is_superseded is is_done


async def test_a_restart_ends_no_pause_and_costs_what_rests_no_delivery(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("1"), order("2"))
    one, _ = await queueing.receive()
    await queueing.queues.extend("", GROUP, TOPIC, one.handle, 7_200_000, rests=True)
    for attempt in (2, 3):
        await written(harness)
        await harness.restart()
        harness.clock.advance(60_000)
        assert [(again.message.message_id, again.attempt) for again in await queueing.receive()] == [("2", attempt)]

    with pytest.raises(ReceiptStale):
        await queueing.ack(one)
    await written(harness)
    await harness.restart()
    harness.clock.advance(7_200_000)
    again = await queueing.receive()
    assert sorted((one.message.message_id, one.attempt) for one in again) == [("1", 2), ("2", 4)]


@pytest.mark.parametrize("repeated", [False, True])
async def test_a_pause_is_durable_before_its_reply(harness: Harness, queueing: Queueing, repeated: bool) -> None:
    await queueing.send(order("1"))
    (one,) = await queueing.receive()
    harness.store.open.clear()
    pausing = [
        asyncio.ensure_future(queueing.queues.extend("", GROUP, TOPIC, one.handle, 60_000, rests=True))
        for _ in range(1 + repeated)
    ]
    await until(lambda: bool(harness.coordinator.queues.serving._flushing[0]))
    assert not any(one.done() for one in pausing)

    harness.store.open.set()

    assert len({await asyncio.wait_for(one, PATIENCE_S) for one in pausing}) == 1
    (progress,) = await harness.store.queue_progress(GROUP, TOPIC)
    kept = Cursor(progress)
    assert kept._rests_before, "it is in the store"


async def test_a_restart_ends_what_a_consumer_had(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("1"))
    (one,) = await queueing.receive()
    await queueing.queues.extend("", GROUP, TOPIC, one.handle, 7_200_000)
    await written(harness)

    await harness.restart()

    assert await queueing.ids() == ["1"]


async def test_a_message_that_rests_keeps_its_message_group_waiting_after_a_restart(
    harness: Harness, queueing: Queueing
) -> None:
    await queueing.send(*(order(id_, kind="fifo", message_group="g") for id_ in "12"))
    (one,) = await queueing.receive()
    await queueing.queues.extend("", GROUP, TOPIC, one.handle, 60_000, rests=True)
    await written(harness)

    await harness.restart()

    assert await queueing.ids() == []
    harness.clock.advance(60_000)
    assert await queueing.ids() == ["1"]


async def written(harness: Harness) -> None:
    """Wait until what is done is in the store."""
    serving = harness.coordinator.queues.serving
    await until(lambda: not (serving._dirty or serving._flushing[0]))


async def test_a_receipt_of_another_group_or_before_any_poll_is_not_known(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("1"))
    (delivered,) = await queueing.receive()
    of_others = queueing.queues.receive(
        "", "others", TOPIC, expression="*", limit=1, invisible_ms=30_000, wait_ms=0, client_id="c", auto_renew=False
    )
    (of_others,) = await asyncio.wait_for(of_others, PATIENCE_S)

    with pytest.raises(ReceiptStale) as caught:
        await queueing.ack(of_others)
    assert not caught.value.is_superseded
    await harness.restart()
    with pytest.raises(ReceiptStale) as caught:
        await queueing.ack(delivered)
    assert not caught.value.is_superseded

    (again,) = await queueing.receive()
    later = await queueing.queues.extend("", GROUP, TOPIC, again.handle, 30_000)
    await queueing.queues.ack("", GROUP, TOPIC, later)


async def test_an_acknowledgement_is_durable_before_its_reply(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("1"))
    (delivered,) = await queueing.receive()
    harness.store.open.clear()

    acking = asyncio.ensure_future(queueing.ack(delivered))
    await until(lambda: harness.store.held_flushes == 1)
    assert not acking.done()
    harness.store.open.set()
    await acking

    assert [one.next_number for one in await harness.store.queue_progress(GROUP, TOPIC)] == [1]


@pytest.mark.parametrize("act", ["ack", "dead_letter"])
async def test_a_repeated_acknowledgement_is_refused_when_the_first_is_durable(
    harness: Harness, queueing: Queueing, act: str
) -> None:
    """The refusal says that nothing is left to do; wire formats answer it with OK."""
    await queueing.send(order("1"))
    (delivered,) = await queueing.receive()
    harness.store.open.clear()
    first = asyncio.ensure_future(queueing.ack(delivered))
    await until(lambda: harness.store.held_flushes == 1)

    again = asyncio.ensure_future(getattr(queueing.queues, act)("", GROUP, TOPIC, delivered.handle))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not again.done()
    harness.store.open.set()
    with pytest.raises(ReceiptStale):
        await asyncio.wait_for(again, PATIENCE_S)

    await first
    with pytest.raises(ReceiptStale):
        await queueing.ack(delivered)


async def test_a_repeated_acknowledgement_after_a_failed_flush_is_an_error_as_long_as_nothing_is_durable(
    harness: Harness, queueing: Queueing
) -> None:
    await queueing.send(order("1"))
    (delivered,) = await queueing.receive()
    harness.store.failures += [StoreError("no"), StoreError("not yet")]
    for _ in range(2):
        with pytest.raises(StoreError):
            await queueing.ack(delivered)

    with pytest.raises(ReceiptStale):
        await queueing.ack(delivered)

    assert [one.next_number for one in await harness.store.queue_progress(GROUP, TOPIC)] == [1]


async def test_an_acknowledgement_is_not_postponed_by_those_behind_it(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(*(order(f"{number}") for number in range(3)))
    commit = harness.coordinator._machine.group_commit
    for one in await queueing.receive():
        commit.report(urgent=False)
        acking = asyncio.ensure_future(queueing.ack(one))
        await until(lambda: commit._linger is not None or commit._flush is not None)
        first = commit._linger
        commit.report(urgent=True)
        assert commit._linger is first
        await acking


async def test_an_acknowledgement_whose_flush_fails_is_an_error_and_is_written_with_the_next(
    harness: Harness, queueing: Queueing
) -> None:
    await queueing.send(order("1"), order("2"))
    one, two = await queueing.receive()
    harness.store.failures.append(StoreError("no"))
    with pytest.raises(StoreError):
        await queueing.ack(one)

    await queueing.ack(two)

    assert [one.next_number for one in await harness.store.queue_progress(GROUP, TOPIC)] == [2]


async def test_progress_that_the_store_does_not_take_is_not_tried_without_a_pause(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queueing.send(order("1"))
    (one,) = await queueing.receive()
    flushes = 0
    flush = harness.store.flush

    async def away(batch: Batch) -> FlushResult:
        nonlocal flushes
        flushes += 1
        raise StoreUnavailable("away")

    monkeypatch.setattr(harness.store, "flush", away)
    with pytest.raises(StoreError):
        await queueing.ack(one)
    for _ in range(100):
        await asyncio.sleep(0)
    assert flushes == 1

    await asyncio.wait_for(harness.coordinator._machine.group_commit.drained(), PATIENCE_S)
    assert flushes == 2
    monkeypatch.setattr(harness.store, "flush", flush)
    await asyncio.wait_for(harness.coordinator._machine.group_commit.drained(), PATIENCE_S)
    assert [one.next_number for one in await harness.store.queue_progress(GROUP, TOPIC)] == [1]


@pytest.mark.parametrize("late", [False, True])
async def test_consumers_look_for_what_a_failed_flush_has_written_all_the_same(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    assert await queueing.receive() == []
    flush = harness.store.flush
    batches: list[Batch] = []

    async def answer_lost(batch: Batch) -> FlushResult:
        monkeypatch.setattr(harness.store, "flush", flush)
        batches.append(batch)
        if not late:
            await flush(batch)
        raise StoreUnavailable("its answer was lost")

    monkeypatch.setattr(harness.store, "flush", answer_lost)
    (sent,) = await queueing.queues.send([order("1")], None)
    assert isinstance(sent, StoreUnavailable)
    if late:  # the store is slower than the node
        assert await queueing.receive() == []
        await flush(batches[0])
        await queueing.queues.send([QueueMessage("bills", "", "2", b"")], None)

    assert await queueing.ids() == ["1"]


async def test_a_group_with_too_much_undone_gets_nothing_new_until_some_is_done(harness: Harness) -> None:
    harness.settings = msgspec.structs.replace(harness.settings, queue_undone_max=64)
    await harness.restart()
    queueing = Queueing(harness)
    await queueing.send(*(order(f"{number}") for number in range(200)))

    found = await queueing.receive(200)
    assert 64 <= len(found) < 200
    assert await queueing.receive(200) == []
    await queueing.ack(*found)
    assert len(await queueing.receive(200)) >= 64


def _held_bytes(queueing: Queueing) -> int:
    served = queueing.queues.serving._subscriptions.values()
    return sum(cursor.held_bytes for one in served for cursor in one.cursors.values())


async def test_what_waits_behind_others_of_its_group_is_not_all_in_memory(harness: Harness) -> None:
    harness.settings = msgspec.structs.replace(harness.settings, queue_held_bytes_max=1)
    await harness.restart()
    queueing = Queueing(harness)
    ids = [f"{number}" for number in range(12)]
    await queueing.send(*(QueueMessage(TOPIC, "", id_, bytes(1024 * 1024), message_group="g") for id_ in ids))

    for id_ in ids:
        (one,) = await queueing.receive(12)
        assert one.message.message_id == id_
        assert _held_bytes(queueing) <= PAGE_BYTES_MAX
        await queueing.ack(one)


async def test_bodies_beyond_what_is_given_out_are_not_read(queueing: Queueing) -> None:
    await queueing.send(*(QueueMessage(TOPIC, "", f"{number}", bytes(512 * 1024)) for number in range(32)))

    found = await queueing.receive(32, bytes_max=1024 * 1024)

    assert [one.message.message_id for one in found] == ["0", "1"]
    assert _held_bytes(queueing) <= PAGE_BYTES_MAX


async def test_where_memory_holds_enough_large_messages_are_given_out_one_by_one(harness: Harness) -> None:
    harness.settings = msgspec.structs.replace(harness.settings, queue_held_bytes_max=1)
    await harness.restart()
    queueing = Queueing(harness)
    await queueing.send(*(QueueMessage(TOPIC, "", f"{number}", bytes(512 * 1024)) for number in range(16)))
    await queueing.receive(1)  # the rest of its page is in memory

    found = await queueing.receive(16)

    assert 0 < sum(len(one.message.body) for one in found) <= PAGE_BYTES_MAX


async def test_one_message_that_is_never_done_stops_no_others(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("stuck"))
    await queueing.receive(invisible_ms=10_000_000)
    for start in range(0, 300, 100):
        await queueing.send(*(order(f"{number}") for number in range(start, start + 100)))
        await asyncio.gather(*(queueing.ack(one) for one in await queueing.receive(100)))

    (progress,) = await harness.store.queue_progress(GROUP, TOPIC)
    assert progress.next_number == 0
    assert len(progress.unfinished) < 40
    await harness.restart()
    assert await queueing.ids() == ["stuck"]


async def test_lag_and_deliveries_are_counted(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(*(order(f"{number}") for number in range(3)))
    one, *_ = await queueing.receive(2, invisible_ms=1_000)
    await queueing.send(order("3"))
    assert harness.coordinator.gauges().queues == (QueueGauge(GROUP, TOPIC, 4, 1 + 1),)
    await queueing.ack(one)
    harness.clock.advance(1_500)
    await queueing.receive()

    gauges = harness.coordinator.gauges()
    assert (gauges.queues[0].lag, gauges.redelivered) == (3, 1)


async def test_what_is_read_while_the_node_loses_its_slot_is_read_anew(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queueing.send(order("1"))
    await queueing.receive(topic="bills")
    reading, going_on = queueing.hold_pages(monkeypatch)
    receiving = asyncio.ensure_future(queueing.receiving())
    await asyncio.wait_for(reading.wait(), PATIENCE_S)
    queueing.queues.serving.forget(StoreError("fenced"))
    going_on.set()

    found = await asyncio.wait_for(receiving, PATIENCE_S)

    await queueing.ack(*found)
    assert [one.attempt for one in found] == [1]
    assert await queueing.ids() == []


async def test_a_late_acknowledgement_counts_until_the_message_is_given_out_again(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=1_000)
    harness.clock.advance(1_500)
    await queueing.send(order("2"))
    reading, going_on = queueing.hold_pages(monkeypatch)
    receiving = asyncio.ensure_future(queueing.ids())
    await asyncio.wait_for(reading.wait(), PATIENCE_S)
    await queueing.ack(first)
    going_on.set()

    assert await asyncio.wait_for(receiving, PATIENCE_S) == ["2"]


async def test_a_stop_ends_the_polls(harness: Harness, queueing: Queueing) -> None:
    waiting = asyncio.ensure_future(queueing.receiving(wait_ms=3_600_000))
    await queueing.waiting()

    await harness.coordinator.stop()

    with pytest.raises(Exception, match="shutting down"):
        await asyncio.wait_for(waiting, PATIENCE_S)


async def test_cleaning_waits_for_the_groups_and_a_new_group_begins_behind_it(
    harness: Harness, queueing: Queueing
) -> None:
    await queueing.send(order("1"), order("2"))
    (first,) = await queueing.receive(1)
    await queueing.ack(first)
    harness.clock.advance(10_000)
    assert await harness.store.purge_queues(harness.clock.now_ms(), 100) == 1

    found = await queueing.queues.receive(
        "",
        "late",
        TOPIC,
        expression="*",
        limit=9,
        invisible_ms=1_000,
        wait_ms=0,
        client_id="c",
        auto_renew=False,
    )
    assert [one.message.message_id for one in found] == ["2"]
