"""Consumers: leases, receipts, order and dead letters."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from tests.support.items import MADE
from tests.unit.coordinator.harness import PATIENCE_S, Harness
from tests.unit.coordinator.queueing import GROUP, TOPIC, Asked, Queueing, order
from twophase.coordinator.queues.receipts import place_of
from twophase.core.errors import InvalidRequest, QueueNotFound, ReceiptInvalid, ReceiptStale, StoreUnavailable
from twophase.core.queue_message import gid_of, queue_of
from twophase.stores.queue_rows import Definition


@pytest.fixture
def queueing(harness: Harness) -> Queueing:
    return Queueing(harness)


async def test_what_is_acknowledged_is_given_out_no_more(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(*(order(f"{number}") for number in range(5)))
    await queueing.ack(*await queueing.receive(3))

    harness.clock.advance(60_000)

    assert await queueing.ids() == ["3", "4"]


async def test_each_message_is_with_one_consumer_at_a_time(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(*(order(f"{number}") for number in range(100)))

    found = await asyncio.gather(*(queueing.ids(7) for _ in range(20)))

    assert sorted(id_ for ids in found for id_ in ids) == sorted(f"{number}" for number in range(100))


async def test_each_group_has_its_own_progress(queueing: Queueing) -> None:
    await queueing.send(order("1"))
    await queueing.ack(*await queueing.receive())

    assert await queueing.ids(group="shipping") == ["1"]


async def test_a_message_whose_time_is_over_is_given_out_again(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=10_000)
    harness.clock.advance(9_000)
    assert await queueing.receive() == []
    harness.clock.advance(1_500)

    (second,) = await queueing.receive(invisible_ms=10_000)

    assert (first.attempt, second.attempt, second.message) == (1, 2, first.message)
    with pytest.raises(ReceiptStale):
        await queueing.ack(first)
    await queueing.ack(second)
    with pytest.raises(ReceiptStale):
        await queueing.ack(second)


async def test_a_consumer_that_extends_keeps_its_message_under_another_receipt(
    harness: Harness, queueing: Queueing
) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=10_000)
    harness.clock.advance(9_000)
    handle = await queueing.queues.extend("", GROUP, TOPIC, first.handle, 10_000)
    harness.clock.advance(9_000)

    assert await queueing.receive() == []
    assert handle != first.handle
    await queueing.queues.ack("", GROUP, TOPIC, handle)
    with pytest.raises(ReceiptStale):
        await queueing.ack(first)
    harness.clock.advance(60_000)
    assert await queueing.receive() == []


async def test_a_consumer_that_extends_by_its_first_receipt_again_keeps_its_message(
    harness: Harness, queueing: Queueing
) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive(invisible_ms=10_000)
    for _ in range(3):
        handle = await queueing.queues.extend("", GROUP, TOPIC, first.handle, 10_000)
        harness.clock.advance(9_000)
        assert await queueing.receive() == []

    harness.clock.advance(1_000)

    assert await queueing.ids() == ["1"]
    with pytest.raises(ReceiptStale):
        await queueing.queues.ack("", GROUP, TOPIC, handle)


@pytest.mark.parametrize("handle", ["", "garbage", "a-b-c-d-e", "x-y-1-1", "é-y-1-1-é"])
async def test_a_receipt_that_nothing_made_is_invalid(queueing: Queueing, handle: str) -> None:
    with pytest.raises(ReceiptInvalid):
        await queueing.queues.ack("", GROUP, TOPIC, handle)


@pytest.mark.parametrize("place", ["y", place_of(GROUP, TOPIC)])
async def test_a_receipt_with_the_form_of_one_is_stale(queueing: Queueing, place: str) -> None:
    with pytest.raises(ReceiptStale) as caught:
        await queueing.queues.ack("", GROUP, TOPIC, f"é-{place}-1-1-1")
    assert not caught.value.is_superseded


async def test_a_refused_message_comes_after_its_pause(harness: Harness, queueing: Queueing) -> None:
    group = await queueing.queues.group("", GROUP)
    await queueing.send(order("1"))
    for attempt in range(1, 4):
        (delivered,) = await queueing.receive(wait_ms=1_000)
        assert delivered.attempt == attempt
        await queueing.queues.extend("", GROUP, TOPIC, delivered.handle, group.pause_ms(attempt))
        harness.clock.advance(group.pause_ms(attempt) - 100)
        assert await queueing.receive() == []
        harness.clock.advance(200)


async def test_a_consumer_that_waits_is_woken_by_an_append(queueing: Queueing) -> None:
    waiting = asyncio.ensure_future(queueing.receiving(wait_ms=3_600_000))
    await queueing.waiting()
    await queueing.send(order("1"))

    assert [one.message.message_id for one in await asyncio.wait_for(waiting, PATIENCE_S)] == ["1"]


async def test_a_consumer_that_waits_is_woken_by_a_time_that_is_over(harness: Harness, queueing: Queueing) -> None:
    harness.clock.runs = True
    await queueing.send(order("1"))
    await queueing.receive(invisible_ms=50)

    (again,) = await queueing.receive(wait_ms=3_600_000)

    assert again.attempt == 2


async def test_a_poll_that_finds_nothing_ends_in_time(harness: Harness, queueing: Queueing) -> None:
    harness.clock.runs = True
    assert await queueing.receive(wait_ms=50) == []


async def test_a_cancelled_poll_takes_nothing_and_leaves_its_turn_to_another(queueing: Queueing) -> None:
    waiting = [asyncio.ensure_future(queueing.receiving(1, wait_ms=3_600_000)) for _ in range(10)]
    await queueing.waiting(10)
    sent = asyncio.ensure_future(queueing.send(order("1")))
    while not any(one.done() for one in waiting):
        for one in waiting[:-1]:
            one.cancel()
        await asyncio.sleep(0)
    await sent
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait(waiting[:-1])

    took = [one.result() for one in waiting if one.done() and not one.cancelled()]
    took += [] if waiting[-1].done() else [await asyncio.wait_for(waiting[-1], PATIENCE_S)]
    assert [delivered.message.message_id for one in took for delivered in one] == ["1"]


@pytest.mark.parametrize("how", ["cancelled", "the store fails"])
async def test_a_consumer_that_ends_while_it_reads_leaves_its_turn_to_another(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    await queueing.send(order("0"))
    await queueing.ack(*await queueing.receive(invisible_ms=3_600_000))  # no lease ends, and wakes anybody
    waiting = []
    for polls in (1, 2):
        waiting.append(asyncio.ensure_future(queueing.receiving(1, wait_ms=3_600_000)))
        await queueing.waiting(polls)
    reads, go_on = asyncio.Event(), asyncio.Event()

    async def held(*_: object) -> object:
        monkeypatch.undo()
        reads.set()
        await go_on.wait()
        raise StoreUnavailable

    monkeypatch.setattr(harness.store, "queue_page", held)
    await queueing.send(order("1"))
    await asyncio.wait_for(reads.wait(), PATIENCE_S)

    if how == "cancelled":
        waiting[0].cancel()
    go_on.set()

    (one,) = await asyncio.wait_for(waiting[1], PATIENCE_S)
    assert one.message.message_id == "1"
    with contextlib.suppress(asyncio.CancelledError, StoreUnavailable):
        await waiting[0]


async def test_a_group_gets_the_tags_it_wants_and_the_rest_is_done(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(*(order(f"{tag}{number}", tag=tag) for number in range(3) for tag in ("a", "b", "c")))

    found = await queueing.receive(expression="a || c")
    assert {one.message.tag for one in found} == {"a", "c"}
    assert len(found) == 6
    await queueing.ack(*found)
    await harness.restart()

    assert await queueing.receive() == []
    for wrong in ("a >", "a||", "||"):
        with pytest.raises(InvalidRequest):
            await queueing.receive(expression=wrong)


async def test_a_message_group_that_is_behind_holds_up_no_other_message(queueing: Queueing) -> None:
    await queueing.send(*(order(f"a{number}", kind="fifo", message_group="a") for number in range(700)))
    await queueing.send(order("other"))

    first, other = await queueing.receive()

    assert (first.message.message_id, other.message.message_id) == ("a0", "other")
    (gauge,) = queueing.queues.serving.gauges()
    assert (gauge.lag, gauge.in_flight, gauge.behind) == (701, 2, 699)
    seen = [first]
    while len(seen) < 700:
        await queueing.ack(seen[-1])
        seen += await queueing.receive()
    assert [one.message.message_id for one in seen] == [f"a{number}" for number in range(700)]


async def test_messages_of_a_message_group_come_one_by_one_in_order(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(
        *(order(f"{group}{number}", kind="fifo", message_group=group) for number in range(3) for group in ("a", "b"))
    )
    seen: list[str] = []
    for _ in range(3):
        found = await queueing.receive()
        assert {one.message.message_group for one in found} == {"a", "b"}
        assert await queueing.receive() == []
        seen += [one.message.message_id for one in found]
        await queueing.ack(*found)

    assert seen == ["a0", "b0", "a1", "b1", "a2", "b2"]


async def test_the_first_of_a_message_group_is_given_out_again_before_the_next(
    harness: Harness, queueing: Queueing
) -> None:
    await queueing.send(*(order(f"{number}", kind="fifo", message_group="a") for number in range(2)))
    await queueing.receive(invisible_ms=1_000)
    harness.clock.advance(1_500)

    (again,) = await queueing.receive()
    assert (again.message.message_id, again.attempt) == ("0", 2)
    await queueing.ack(again)
    assert await queueing.ids() == ["1"]


async def test_messages_of_one_message_group_are_in_one_queue(harness: Harness, queueing: Queueing) -> None:
    await harness.store.define_queue(Definition("topic", TOPIC, '{"queues":4}'), MADE)

    sent = await queueing.send(*(order(f"{n}", kind="fifo", message_group=f"g{n % 8}") for n in range(80)))

    by_group = [{one.queue for one in sent[group::8]} for group in range(8)]
    assert all(len(queues) == 1 for queues in by_group)
    assert len(set.union(*by_group)) > 1
    assert len(await queueing.receive(100)) == 8


async def test_a_consumer_that_waits_is_woken_by_an_entry_of_a_new_queue(queueing: Queueing) -> None:
    waiting = asyncio.ensure_future(queueing.receiving(wait_ms=3_600_000))
    await queueing.waiting()
    queueing.queues.definitions.take(Definition("topic", TOPIC, '{"queues":4}'))
    id_ = next(name for name in map(str, range(100)) if queue_of(gid_of("", TOPIC, name), 4) != 0)

    await queueing.send(order(id_))

    assert [one.message.message_id for one in await asyncio.wait_for(waiting, PATIENCE_S)] == [id_]


@pytest.mark.parametrize("is_served", [False, True])
async def test_entries_in_more_queues_than_the_definition_knows_are_given_out(
    queueing: Queueing, is_served: bool
) -> None:
    if is_served:
        assert await queueing.receive() == []
    sent = [f"{number}" for number in range(12)]
    queueing.queues.definitions._counts[TOPIC] = 4, 4  # so does a node that has not read of the topic's removal yet
    await queueing.send(*map(order, sent))

    assert sorted(await queueing.ids(100)) == sorted(sent)


async def test_what_was_given_out_too_often_goes_into_the_dead_letters(harness: Harness, queueing: Queueing) -> None:
    await harness.store.define_queue(Definition("group", GROUP, '{"attempts_max":2,"backoff_ms":[10]}'), MADE)
    await queueing.send(order("bad", tag="t"), order("good"))
    for _ in range(2):
        found = await queueing.receive(invisible_ms=1_000)
        await queueing.ack(*(one for one in found if one.message.message_id == "good"))
        harness.clock.advance(1_500)

    assert await queueing.receive() == []
    (letter,) = await queueing.receive(topic=f"%DLQ%{GROUP}", wait_ms=PATIENCE_S * 1_000)

    assert (letter.message.message_id, letter.message.body, letter.message.tag) == ("bad", b"body of bad", "t")
    assert dict(letter.message.properties)["DLQ_ORIGIN_TOPIC"] == TOPIC
    harness.clock.advance(120_000)
    assert await queueing.receive() == []


async def test_a_consumer_may_give_a_message_up(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("bad"))
    (delivered,) = await queueing.receive()

    await queueing.queues.dead_letter("", GROUP, TOPIC, delivered.handle)

    harness.clock.advance(120_000)
    assert await queueing.receive() == []
    assert await queueing.ids(topic=f"%DLQ%{GROUP}") == ["bad"]


async def test_dead_letters_need_no_topic_that_was_made_before(harness: Harness) -> None:
    harness.settings = msgspec.structs.replace(harness.settings, queues_made_on_use=False)
    await harness.store.define_queue(Definition("topic", TOPIC, "{}"), MADE)
    await harness.store.define_queue(Definition("group", GROUP, "{}"), MADE)
    await harness.restart()
    queueing = Queueing(harness)
    await queueing.send(order("bad"))
    (delivered,) = await queueing.receive()

    await queueing.queues.dead_letter("", GROUP, TOPIC, delivered.handle)

    assert await queueing.ids(topic=f"%DLQ%{GROUP}") == ["bad"]


@pytest.mark.parametrize("name", ["a%DLQ%billing", "%DLQ%nobody", "%DLQ%", "%DLQ%shop/billing"])
async def test_no_other_names_are_made_on_use_where_the_setting_is_off(harness: Harness, name: str) -> None:
    harness.settings = msgspec.structs.replace(harness.settings, queues_made_on_use=False)
    await harness.store.define_queue(Definition("group", GROUP, "{}"), MADE)
    await harness.restart()
    queues = harness.coordinator.queues
    namespace, _, own = name.rpartition("/")

    with pytest.raises((QueueNotFound, InvalidRequest)):
        await queues.topic(namespace, own)
    with pytest.raises((QueueNotFound, InvalidRequest)):
        await queues.group(namespace, own)
    assert queues.why_not(f"queue://{name}") is not None
    assert queues.why_not(f"queue://%DLQ%{GROUP}") is None


async def test_what_an_attached_client_holds_too_long_is_a_failed_delivery(
    harness: Harness, queueing: Queueing
) -> None:
    """A handler that hangs, or an acknowledgement that was lost."""
    harness.settings = msgspec.structs.replace(harness.settings, queue_hold_ms=60_000)
    await harness.restart()
    queueing.queues.attach(Asked("c"))
    await queueing.send(order("1"))
    (first,) = await queueing.receive(auto_renew=True, client_id="c")
    harness.clock.advance(59_999)
    assert await queueing.receive() == []
    harness.clock.advance(1)

    (again,) = await queueing.receive(auto_renew=True, client_id="other")

    assert again.attempt == 2
    with pytest.raises(ReceiptStale):
        await queueing.ack(first)


async def test_a_consumer_that_waits_gets_what_another_holds_too_long(harness: Harness, queueing: Queueing) -> None:
    harness.settings = msgspec.structs.replace(harness.settings, queue_hold_ms=50)
    await harness.restart()
    queueing.queues.attach(Asked("c"))
    await queueing.send(order("1"))
    await queueing.receive(auto_renew=True, client_id="c")
    waiting = asyncio.ensure_future(queueing.receiving(wait_ms=3_600_000))
    await queueing.waiting()

    harness.clock.advance(50)

    (again,) = await asyncio.wait_for(waiting, PATIENCE_S)
    assert again.attempt == 2


async def test_what_attached_clients_hold_too_long_again_and_again_becomes_a_dead_letter(
    harness: Harness, queueing: Queueing
) -> None:
    queueing.queues.attach(Asked("c"))
    await harness.store.define_queue(Definition("group", GROUP, '{"attempts_max":2,"backoff_ms":[10]}'), MADE)
    await queueing.send(order("1"))
    for attempt in (1, 2):
        assert [one.attempt for one in await queueing.receive(auto_renew=True, client_id="c")] == [attempt]
        harness.clock.advance(harness.settings.queue_hold_ms)

    assert await queueing.receive(auto_renew=True, client_id="c") == []

    assert await queueing.ids(topic=f"%DLQ%{GROUP}", wait_ms=PATIENCE_S * 1_000) == ["1"]


async def test_what_an_attached_client_extended_is_not_given_to_others_when_it_leaves(queueing: Queueing) -> None:
    detach = queueing.queues.attach(Asked("c"))
    await queueing.send(order("1"))
    (first,) = await queueing.receive(auto_renew=True, client_id="c")
    await queueing.queues.extend("", GROUP, TOPIC, first.handle, 30_000)

    detach()

    assert await queueing.receive() == []


async def test_what_a_client_has_as_long_as_it_is_attached_waits_when_it_leaves(
    harness: Harness, queueing: Queueing
) -> None:
    detach = queueing.queues.attach(Asked("c"))
    await queueing.send(order("1"))
    await queueing.receive(auto_renew=True, client_id="c")
    harness.clock.advance(3_600_000)
    waiting = asyncio.ensure_future(queueing.receiving(wait_ms=3_600_000))
    await queueing.waiting()
    assert not waiting.done()

    detach()

    (again,) = await asyncio.wait_for(waiting, PATIENCE_S)
    assert again.attempt == 2


async def test_a_client_that_is_attached_no_more_may_acknowledge_what_nobody_has_got_since(queueing: Queueing) -> None:
    detach = queueing.queues.attach(Asked("c"))
    await queueing.send(order("1"), order("2"))
    one, two = await queueing.receive(auto_renew=True, client_id="c")

    detach()
    await queueing.ack(one)
    (again,) = await queueing.receive()

    assert again.message.message_id == "2"
    with pytest.raises(ReceiptStale):
        await queueing.ack(two)
    await queueing.ack(again)
    assert await queueing.ids() == []


async def test_a_client_that_attached_anew_keeps_what_it_has(harness: Harness, queueing: Queueing) -> None:
    earlier = queueing.queues.attach(Asked("c"))
    await queueing.send(order("1"))
    await queueing.receive(auto_renew=True, client_id="c")
    queueing.queues.attach(Asked("c"))

    earlier()

    assert await queueing.receive() == []
