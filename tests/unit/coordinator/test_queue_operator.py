"""Operators see, make, change, remove and reset topics and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.support.items import MADE
from tests.support.waiting import until
from tests.unit.coordinator.harness import PATIENCE_S, Harness
from tests.unit.coordinator.queueing import GROUP, NAME, TOPIC, Asked, Queueing, order
from twophase.coordinator.operator import Act
from twophase.coordinator.queues import Decision, QueueMessage
from twophase.coordinator.queues.halves import HALVES
from twophase.coordinator.queues.letters import Edit
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.audit_log import Actor, AuditEntry, AuditSearch
from twophase.core.errors import (
    InvalidRequest,
    QueueInUse,
    QueueNotFound,
    ReceiptStale,
    StoreError,
    StoreUnavailable,
    WrongMessageKind,
)
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message
from twophase.core.queue_operating import (
    DefineGroup,
    DefineTopic,
    RedriveLetters,
    RemoveRequest,
    ResetRequest,
    ShownLag,
    ShownReset,
    ShownWait,
)

ACT = Act("eve", "spring cleaning", actor=Actor("desk", "::1"))
DEFINED = DefineTopic(queues=3, kinds=["normal"])
REMOVED, ANYHOW = RemoveRequest(), RemoveRequest(override=True)


@pytest.fixture
def queueing(harness: Harness) -> Queueing:
    return Queueing(harness)


def operator(queueing: Queueing) -> Any:
    return queueing.harness.coordinator.queue_operator


async def lag(queueing: Queueing) -> ShownLag:
    """Return the group's position in the one queue of its topic."""
    (found,) = (await operator(queueing).group(GROUP, lambda _: True, "")).group.lags
    assert isinstance(found, ShownLag)
    return found


async def acts(harness: Harness) -> list[tuple[str, str, str]]:
    """Return (act, target, reason) of operators' acts in the audit log, oldest first."""
    rows = (await harness.store.audit_search(AuditSearch(), 0, 100)).rows
    return [(row.act, row.target, row.reason) for row in reversed(rows) if row.reason != "made by its first use"]


async def test_the_position_of_a_group_is_shown_as_it_is_in_memory_and_in_the_store(
    harness: Harness, queueing: Queueing
) -> None:
    began_ms = harness.clock.now_ms()
    await queueing.send(*(order(f"{number}") for number in range(4)))
    harness.clock.advance(5_000)
    await queueing.send(*(order(f"a{number}", kind="fifo", message_group="a") for number in range(3)))
    first, second, *_ = await queueing.receive(5)
    await queueing.ack(second)

    shown = await lag(queueing)

    assert shown == ShownLag(GROUP, TOPIC, 0, 0, 7, 6, began_ms, 4, 2, harness.clock.now_ms())
    await queueing.ack(first)
    shown = await lag(queueing)
    assert (shown.next_number, shown.lag, shown.oldest_ms) == (2, 5, began_ms)

    await harness.restart()
    shown = await lag(Queueing(harness))
    assert (shown.next_number, shown.lag, shown.in_flight, shown.behind, shown.asked_ms) == (2, 5, 0, 0, 0)
    topic = (await operator(queueing).topic(TOPIC, "")).topic
    assert (topic.name, topic.queues, topic.lags) == (TOPIC, 1, [shown])
    assert [(part.queue, part.first, part.end, part.oldest_ms) for part in topic.parts] == [(0, 0, 7, began_ms)]


async def test_topics_and_groups_come_in_pages_by_name(queueing: Queueing) -> None:
    for name in ("c", "a", "b"):
        await operator(queueing).define_topic(name, DefineTopic(), ACT)
        await operator(queueing).define_group(name, DefineGroup(), ACT)

    page = await operator(queueing).topics("", 2, lambda name: name != "b", "")
    assert ([topic.name for topic in page.topics], page.position) == (["a", "c"], "")
    page = await operator(queueing).groups("", 2, lambda _: True, "")
    assert ([group.name for group in page.groups], page.position) == (["a", "b"], "b")
    page = await operator(queueing).groups("b", 2, lambda _: True, "")
    assert ([group.name for group in page.groups], page.position) == (["c"], "")


async def test_a_topic_with_messages_that_nobody_has_made_is_shown(harness: Harness, queueing: Queueing) -> None:
    await harness.submit(Message("g", (Branch("queue://bills", b"{}"),)))
    # As of a version before, which made a topic when a client of queues named it.
    (made,) = await harness.store.queue_definitions()
    await harness.store.change_queue(made, None, MADE)

    (topic,) = (await operator(queueing).topics("", 10, lambda _: True, "")).topics
    assert (topic.name, topic.is_defined, topic.queues) == ("bills", False, 1)
    with pytest.raises(QueueNotFound):
        await operator(queueing).topic("nosuch", "")
    with pytest.raises(QueueNotFound):
        await operator(queueing).group("nosuch", lambda _: True, "")


async def test_a_topic_is_made_and_changed_and_counts_at_once(harness: Harness, queueing: Queueing) -> None:
    dry = await operator(queueing).define_topic(TOPIC, msgspec.structs.replace(DEFINED, dry_run=True), ACT)
    assert (dry.before, await harness.store.queue_definitions()) == ("", [])

    made = await operator(queueing).define_topic(TOPIC, DEFINED, ACT)
    again = await operator(queueing).define_topic(TOPIC, DEFINED, ACT)

    assert (made.before, made.after) == ("", dry.after)
    assert (again.before, again.after) == (made.after, made.after)
    assert await acts(harness) == [("define-topic", TOPIC, "eve: spring cleaning")]
    (refused,) = await queueing.queues.send([order("1", kind="fifo")], None)
    assert isinstance(refused, WrongMessageKind)
    assert len({one.queue for one in await queueing.send(*(order(f"{number}") for number in range(50)))}) == 3
    await harness.restart()
    assert (await Queueing(harness).queues.topic("", TOPIC)).queues == 3


@pytest.mark.parametrize(
    "wrong",
    [
        DefineTopic(queues=0),
        DefineTopic(queues=65),
        DefineTopic(kinds=[]),
        DefineTopic(kinds=["odd"]),
        DefineTopic(retention_ms=1_000),
        DefineTopic(retention_ms=2**60),
    ],
)
async def test_settings_that_cannot_be_are_refused(queueing: Queueing, wrong: DefineTopic) -> None:
    with pytest.raises(InvalidRequest):
        await operator(queueing).define_topic(TOPIC, wrong, ACT)


@pytest.mark.parametrize(
    "wrong", [DefineGroup(attempts_max=-1), DefineGroup(backoff_ms=[]), DefineGroup(backoff_ms=[0])]
)
async def test_settings_of_a_group_that_cannot_be_are_refused(queueing: Queueing, wrong: DefineGroup) -> None:
    with pytest.raises(InvalidRequest):
        await operator(queueing).define_group(GROUP, wrong, ACT)


async def test_the_bounds_of_a_group_count_from_the_next_delivery(queueing: Queueing) -> None:
    await operator(queueing).define_group(GROUP, DefineGroup(attempts_max=1, backoff_ms=[7]), ACT)
    info = await queueing.queues.group("", GROUP)
    assert (info.attempts_max, info.pause_ms(1), info.pause_ms(9)) == (1, 7, 7)

    await operator(queueing).define_group(GROUP, DefineGroup(attempts_max=2), ACT)
    info = await queueing.queues.group("", GROUP)
    assert (info.attempts_max, info.backoff_ms) == (2, (7,))


async def test_the_number_of_queues_grows_under_consumers_and_never_falls(queueing: Queueing) -> None:
    await queueing.send(order("1"))
    waiting = asyncio.ensure_future(queueing.receiving(1, wait_ms=3_600_000))
    (first,) = await asyncio.wait_for(waiting, PATIENCE_S)
    await operator(queueing).define_topic(TOPIC, DefineTopic(queues=4), ACT)
    with pytest.raises(InvalidRequest, match="can only grow"):
        await operator(queueing).define_topic(TOPIC, DefineTopic(queues=3), ACT)

    sent = await queueing.send(*(order(f"new{number}") for number in range(40)))

    assert {one.queue for one in sent} == {0, 1, 2, 3}
    await queueing.ack(first)
    ids = await queueing.ids(100)
    assert sorted(ids) == sorted(f"new{number}" for number in range(40))


async def test_messages_of_a_message_group_overtake_none_when_the_topic_gets_more_queues(queueing: Queueing) -> None:
    await operator(queueing).define_topic("bills", DefineTopic(queues=3), ACT)
    await queueing.send(*in_groups("early"))
    for topic, queues in (TOPIC, 4), ("bills", 8), ("bills", 9):
        await operator(queueing).define_topic(topic, DefineTopic(queues=queues), ACT)

    sent = await queueing.send(*in_groups("late"))

    assert {one.queue for one in sent} == {0}, "as before"
    seen: list[str] = []
    while found := await queueing.receive(100):
        seen += [one.message.message_id for one in found]
        await queueing.ack(*found)
    assert [seen.index(f"early{number}") < seen.index(f"late{number}") for number in range(20)] == [True] * 20
    sent = await queueing.send(*(msgspec.structs.replace(one, topic="bills") for one in in_groups("late")))
    assert {one.queue for one in sent} == {0, 1, 2}, "those with which the topic began"


def in_groups(when: str) -> list[QueueMessage]:
    """Return a message of each of twenty message groups."""
    return [order(f"{when}{number}", kind="fifo", message_group=f"g{number}") for number in range(20)]


async def test_messages_of_a_message_group_keep_their_order_when_their_topic_takes_no_more_of_them(
    queueing: Queueing,
) -> None:
    await queueing.send(*(order(id_, kind="fifo", message_group="g") for id_ in "12"))
    await operator(queueing).define_topic(TOPIC, DefineTopic(kinds=["normal"]), ACT)

    (first,) = await queueing.receive()
    assert first.message.message_id == "1"
    assert await queueing.receive() == []
    await queueing.ack(first)
    assert await queueing.ids() == ["2"]


async def test_a_removed_group_holds_up_no_cleaning(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("1"), order("2"))
    await queueing.ack(*await queueing.receive(1))
    with pytest.raises(QueueInUse, match="a consumer of group 'billing' has asked"):
        await operator(queueing).remove_group(GROUP, ANYHOW, ACT)
    harness.clock.advance(61_000)
    assert await harness.store.purge_queues(harness.clock.now_ms(), 100) == 1
    with pytest.raises(QueueInUse, match="1 of orders"):
        await operator(queueing).remove_group(GROUP, REMOVED, ACT)
    dry = await operator(queueing).remove_group(GROUP, RemoveRequest(dry_run=True), ACT)
    assert (dry.undone, dry.positions) == (1, 1)

    removed = await operator(queueing).remove_group(GROUP, ANYHOW, ACT)

    assert removed == dry
    assert (await acts(harness))[-1] == ("remove-group", GROUP, "eve: spring cleaning")
    assert await harness.store.purge_queues(harness.clock.now_ms(), 100) == 1
    with pytest.raises(QueueNotFound):
        await operator(queueing).group(GROUP, lambda _: True, "")


async def test_a_group_that_comes_again_begins_with_the_oldest_message(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("1"))
    await queueing.ack(*await queueing.receive())
    harness.clock.advance(61_000)
    await operator(queueing).remove_group(GROUP, REMOVED, ACT)

    assert await queueing.ids() == ["1"]


async def test_a_topic_is_removed_only_when_nothing_needs_it(harness: Harness, queueing: Queueing) -> None:
    half = await queueing.half(order("half"))
    await queueing.send(order("1"))
    with pytest.raises(QueueInUse, match=f"message '{half}' goes to topic 'orders'"):
        await operator(queueing).remove_topic(TOPIC, ANYHOW, ACT)
    await harness.abort(half)
    with pytest.raises(QueueInUse, match="no group reads it"):
        await operator(queueing).remove_topic(TOPIC, REMOVED, ACT)
    await queueing.ack(*await queueing.receive())
    with pytest.raises(QueueInUse, match="a consumer of group"):
        await operator(queueing).remove_topic(TOPIC, ANYHOW, ACT)
    harness.clock.advance(61_000)

    removed = await operator(queueing).remove_topic(TOPIC, REMOVED, ACT)

    assert (removed.messages, removed.undone, removed.positions, removed.more) == (1, 0, 1, False)
    assert [act for act, _, _ in await acts(harness)] == ["empty-topic", "remove-topic"]
    assert await harness.store.queue_readers() == []
    with pytest.raises(QueueNotFound):
        await operator(queueing).topic(TOPIC, "")
    assert await queueing.send(order("2")) != []
    assert await queueing.ids() == ["2"]


async def test_a_message_that_comes_while_its_topic_is_removed_stays(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queueing.send(order("1"))
    await queueing.ack(*await queueing.receive())
    harness.clock.advance(61_000)
    append = harness.store.append_audit

    async def meanwhile(entries: Sequence[AuditEntry]) -> None:
        await append(entries)
        await queueing.send(order("late"))

    monkeypatch.setattr(harness.store, "append_audit", meanwhile)

    removed = await operator(queueing).remove_topic(TOPIC, REMOVED, ACT)

    assert (removed.messages, removed.more) == (1, True)
    with pytest.raises(QueueInUse, match="not done"):
        await operator(queueing).remove_topic(TOPIC, REMOVED, ACT)
    assert await queueing.ids() == ["late"]


async def test_a_large_topic_is_removed_in_several_requests(
    make_harness: Callable[..., Awaitable[Harness]],
) -> None:
    queueing = Queueing(await make_harness(CoordinatorSettings(purge_rows=1)))
    await queueing.send(*(order(f"{number}") for number in range(130)))

    first = await operator(queueing).remove_topic(TOPIC, ANYHOW, ACT)
    second = await operator(queueing).remove_topic(TOPIC, ANYHOW, ACT)

    assert (first.messages, first.more) == (100, True)
    assert (second.messages, second.more) == (30, False)


async def test_a_reset_to_a_time_says_what_it_repeats_and_skips(harness: Harness, queueing: Queueing) -> None:
    for number in range(10):
        await queueing.send(order(f"{number}"))
        harness.clock.advance(1_000)
    fifth_ms = harness.clock.now_ms() - 5_000
    await queueing.ack(*(await queueing.receive(8))[2:])
    to = ResetRequest(topic=TOPIC, to="time", at_ms=fifth_ms)

    dry = await operator(queueing).reset(GROUP, msgspec.structs.replace(to, dry_run=True), ACT)
    assert dry.queues == [ShownReset(0, 0, 5, repeated=3, skipped=2)]
    assert (await lag(queueing)).next_number == 0
    assert await operator(queueing).reset(GROUP, to, ACT) == dry

    assert (await lag(queueing)).lag == 5
    assert await queueing.ids(100) == ["5", "6", "7", "8", "9"]
    assert (await acts(harness))[-1] == ("reset-group", GROUP, "eve: spring cleaning")
    (row,) = (await harness.store.audit_search(AuditSearch(act="reset-group"), 0, 10)).rows
    assert (row.before, row.after) == ("orders: queue 0 at 0", "orders: queue 0 at 5")


@pytest.mark.parametrize(("to", "expected"), [("earliest", ["0", "1", "2"]), ("latest", [])])
async def test_a_reset_to_an_end(queueing: Queueing, to: str, expected: list[str]) -> None:
    await queueing.send(*(order(f"{number}") for number in range(3)))
    (first, *_) = await queueing.receive(2)
    await queueing.ack(first)

    await operator(queueing).reset(GROUP, ResetRequest(topic=TOPIC, to=to), ACT)

    assert await queueing.ids(100) == expected


async def test_receipts_from_before_a_reset_are_stale_and_waiting_consumers_go_on(queueing: Queueing) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive()
    waiting = asyncio.ensure_future(queueing.receiving(1, wait_ms=3_600_000))
    await queueing.waiting()

    await operator(queueing).reset(GROUP, ResetRequest(topic=TOPIC, to="earliest"), ACT)

    (again,) = await asyncio.wait_for(waiting, PATIENCE_S)
    assert again.message == first.message
    with pytest.raises(ReceiptStale):
        await queueing.ack(first)
    await queueing.ack(again)
    assert (await lag(queueing)).lag == 0


async def test_a_reset_keeps_what_was_acknowledged_when_the_store_fails(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queueing.send(order("1"), order("2"))
    (first,) = await queueing.receive(1)
    await queueing.ack(first)

    async def fail(*_: Any) -> None:
        raise StoreError("no space")

    monkeypatch.setattr(harness.store, "reset_queues", fail)
    with pytest.raises(StoreError):
        await operator(queueing).reset(GROUP, ResetRequest(topic=TOPIC, to="earliest"), ACT)

    assert await queueing.ids() == ["2"]


async def test_what_a_consumer_takes_while_a_reset_fails_is_given_out(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queueing.send(order("1"), order("2"))
    await queueing.receive(1)
    reading, going_on = queueing.hold_pages(monkeypatch)
    receiving = asyncio.ensure_future(queueing.receiving())
    await asyncio.wait_for(reading.wait(), PATIENCE_S)
    harness.store.failures.append(StoreUnavailable("no space"))
    harness.store.open.clear()
    resetting = asyncio.ensure_future(operator(queueing).reset(GROUP, ResetRequest(topic=TOPIC, to="earliest"), ACT))
    await until(lambda: not queueing.queues.serving.served())
    going_on.set()
    harness.store.open.set()

    with pytest.raises(StoreUnavailable):
        await resetting

    (found,) = await asyncio.wait_for(receiving, PATIENCE_S)
    assert found.message.message_id == "2"


@pytest.mark.parametrize(
    ("group", "asked", "error"),
    [
        ("nosuch", ResetRequest(topic=TOPIC, to="latest"), QueueNotFound),
        (GROUP, ResetRequest(topic="nosuch", to="latest"), QueueNotFound),
        (GROUP, ResetRequest(topic=TOPIC, to="yesterday"), InvalidRequest),
        (GROUP, ResetRequest(topic=TOPIC, to="latest", queue=7), InvalidRequest),
    ],
)
async def test_a_reset_that_cannot_be_is_refused(
    queueing: Queueing, group: str, asked: ResetRequest, error: type[Exception]
) -> None:
    await queueing.send(order("1"))
    await queueing.receive()
    with pytest.raises(error):
        await operator(queueing).reset(group, asked, ACT)


async def test_an_address_of_a_topic_that_is_not_made_on_use_is_refused(
    make_harness: Callable[..., Awaitable[Harness]],
) -> None:
    queueing = Queueing(await make_harness(CoordinatorSettings(queues_made_on_use=False)))
    definitions = queueing.queues.definitions
    await operator(queueing).define_topic(TOPIC, DefineTopic(kinds=["normal"]), ACT)

    assert definitions.why_not(f"queue://{TOPIC}?tag=paid") is None
    assert "there is no topic '%DLQ%billing'" in definitions.why_not("queue://%25DLQ%25billing")
    await operator(queueing).define_group("billing", DefineGroup(), ACT)
    assert definitions.why_not("queue://%25DLQ%25billing") is None
    assert "there is no topic 'nosuch'" in definitions.why_not("queue://nosuch")
    assert "and no message of kind 'fifo'" in definitions.why_not(f"queue://{TOPIC}?kind=fifo&group=a")
    assert definitions.why_not("queue://a b").startswith("bad_url: ")
    await operator(queueing).remove_topic(TOPIC, REMOVED, ACT)
    assert "there is no topic" in definitions.why_not(f"queue://{TOPIC}")


async def test_a_half_message_shows_why_nobody_has_decided(harness: Harness, queueing: Queueing) -> None:
    async def half() -> Any:
        (one,) = (await operator(queueing).halves(HALVES, "", 10, "")).halves
        return one

    gid = await queueing.half(order("1"))
    harness.clock.advance(1_500)
    await until(lambda: gid in queueing.queues._producers._waits_for)
    shown = await half()
    assert (shown.gid, shown.topic, shown.producers, shown.client_id) == (gid, TOPIC, NAME, "a")
    assert (shown.situation, shown.why) == ("away", f"no producer of {NAME!r} is connected to this node")
    assert harness.coordinator.gauges().halves == (1, 0, 0, 0, 0)

    client = Asked("a")
    queueing.queues.attach(client)
    assert (await half()).situation == "asked"
    await queueing.end(gid, Decision.UNKNOWN, checked=True)
    shown = await half()
    assert (shown.situation, shown.answers, shown.answered_ms) == ("waits", 1, harness.clock.now_ms())
    await harness.coordinator.operator.park(gid, ACT)
    assert (await half()).situation == "parked"
    await queueing.end(gid, Decision.COMMIT)
    assert (await operator(queueing).halves(HALVES, "", 10, "")).halves == []
    assert await harness.state(gid) is State.SUCCEEDED


async def test_a_message_shows_what_keeps_each_group_from_it(harness: Harness, queueing: Queueing) -> None:
    async def situation(gid: str) -> tuple[str, str]:
        view = await harness.coordinator.query(gid)
        (place,) = (await operator(queueing).situation(view)).places
        (group,) = place.groups
        return group.situation, group.why

    sent = await queueing.send(*(order(f"a{number}", kind="fifo", message_group="a") for number in range(3)))
    (first,) = await queueing.receive()

    assert (await situation(sent[0].transaction_id))[0] == "in progress"
    assert (await situation(sent[1].transaction_id))[0] == "waits behind its message group"
    await queueing.ack(first)
    assert await situation(sent[0].transaction_id) == ("done", "it is done")
    assert (await situation(sent[1].transaction_id))[0] == "waits"
    harness.clock.advance(61_000)
    assert (await situation(sent[1].transaction_id))[0] == "not asked for"
    await harness.restart()
    assert "1 messages before it are not done" in (await situation(sent[2].transaction_id))[1]


async def test_a_message_that_is_a_dead_letter_is_not_shown_as_done(harness: Harness, queueing: Queueing) -> None:
    async def shown() -> ShownWait:
        (place,) = (await operator(queueing).situation(await harness.coordinator.query(sent.transaction_id))).places
        found: ShownWait = next(group for group in place.groups if group.group == GROUP)
        return found

    async def situation() -> str:
        return (await shown()).situation

    (sent,) = await queueing.send(order("1"))
    (first,) = await queueing.receive()
    await queueing.queues.dead_letter("", GROUP, TOPIC, first.handle, "no such article")
    assert await situation() == "dead letter"
    await harness.restart()
    assert await situation() == "dead letter"
    (redriven,) = (
        await operator(queueing).redrive(GROUP, RedriveLetters(numbers=[0]), Edit(), ACT, lambda _: True)
    ).letters
    assert await situation() == "done"
    assert (await shown()).why.endswith(f"its dead letter was sent again: twophase explain {redriven.gid}")


async def test_a_message_shows_how_long_a_connected_consumer_may_keep_it(harness: Harness, queueing: Queueing) -> None:
    queueing.queues.attach(Asked("c"))
    (sent,) = await queueing.send(order("1"))
    await queueing.receive(auto_renew=True, client_id="c")
    harness.clock.advance(1_000_000)

    view = await harness.coordinator.query(sent.transaction_id)
    (place,) = (await operator(queueing).situation(view)).places
    (group,) = place.groups

    assert group.situation == "in progress"
    assert group.why == (
        "the consumer 'c' has it as long as it is connected, for 9800 s at most; it was given out 1 of 17 times"
    )
