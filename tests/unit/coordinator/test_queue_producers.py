"""Sends, half messages and decisions.

What is committed is in its queue, once, in the flush that decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.support.items import MADE
from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, PATIENCE_S, Harness
from tests.unit.coordinator.nodes import Nodes
from tests.unit.coordinator.queueing import TOPIC, Queueing, order
from twophase.coordinator.operator import Act
from twophase.coordinator.queues import Decision, QueueMessage
from twophase.core.errors import (
    ContentConflict,
    ContraryDecision,
    InvalidRequest,
    QueueNotFound,
    StateConflict,
    UnknownMessage,
    WrongMessageKind,
)
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message
from twophase.core.options import Durability, Options
from twophase.core.redirect import Redirection
from twophase.stores.batch import Complete, Decide, Finish
from twophase.stores.queue_rows import Definition


@pytest.fixture
def queueing(harness: Harness) -> Queueing:
    return Queueing(harness)


async def test_a_sent_message_is_durable_and_received_with_all_its_attributes(queueing: Queueing) -> None:
    message = order(
        "1",
        tag="paid",
        keys=("k1", "k 2"),
        properties=(("shop", "ä&="), ("empty", "")),
        born_ms=7,
        born_host="h",
        encoding="gzip",
        trace_context="00-1",
    )

    (sent,) = await queueing.send(message)
    (delivered,) = await queueing.receive()

    assert delivered.message == message
    assert (delivered.queue, delivered.offset, delivered.attempt) == (sent.queue, sent.offset, 1) == (0, 0, 1)
    assert delivered.transaction_id == sent.transaction_id


async def test_a_send_is_one_change_in_one_flush(harness: Harness, queueing: Queueing) -> None:
    sent = await queueing.send(*(order(f"{number}") for number in range(20)))

    assert [one.offset for one in sent] == list(range(20))
    (batch,) = harness.store.batches
    assert {type(item) for item in batch.items} == {Complete}


async def test_a_repeated_send_appends_nothing_and_names_the_first(queueing: Queueing) -> None:
    first = await queueing.send(order("1"), order("2"))

    again = await queueing.send(order("2"), msgspec.structs.replace(order("1"), born_ms=5), order("3"))

    assert again[:2] == [first[1], first[0]]
    assert await queueing.ids() == ["1", "2", "3"]


async def test_messages_of_different_topics_and_namespaces_are_different(queueing: Queueing) -> None:
    others = [QueueMessage(topic, space, "1", b"") for topic, space in (("orders", "shop"), ("bills", ""))]

    sent = await queueing.send(order("1"), *others)

    assert len({one.transaction_id for one in sent}) == 3
    assert [one.offset for one in sent] == [0, 0, 0]
    assert await queueing.ids() == ["1"]


async def test_a_half_message_is_seen_when_it_is_committed_and_not_before(harness: Harness, queueing: Queueing) -> None:
    id_ = await queueing.half(order("1"))
    assert await queueing.ids() == []

    await queueing.end(id_, Decision.COMMIT)

    assert await queueing.ids() == ["1"]
    assert await harness.state(id_) is State.SUCCEEDED
    (item,) = harness.store.batches[-1].items
    assert isinstance(item, Finish)
    assert item.decided_by == "submit"


async def test_a_half_message_that_is_rolled_back_is_never_seen(harness: Harness, queueing: Queueing) -> None:
    id_ = await queueing.half(order("1"))

    await queueing.end(id_, Decision.ROLLBACK)

    assert await queueing.ids() == []
    assert await harness.state(id_) is State.FAILED


async def test_a_decision_may_be_repeated_and_the_contrary_is_refused(harness: Harness, queueing: Queueing) -> None:
    committed, rolled_back = await queueing.half(order("1")), await queueing.half(order("2"))
    for _ in range(3):
        await queueing.end(committed, Decision.COMMIT)
        await queueing.end(rolled_back, Decision.ROLLBACK)

    with pytest.raises(ContraryDecision):
        await queueing.end(committed, Decision.ROLLBACK)
    with pytest.raises(ContraryDecision):
        await queueing.end(rolled_back, Decision.COMMIT, checked=True)

    assert await queueing.ids() == ["1"]
    assert [gid for gid, _ in harness.watcher.incidents] == [committed, rolled_back]


async def test_a_late_commit_after_a_committing_answer_appends_once(queueing: Queueing) -> None:
    id_ = await queueing.half(order("1"))

    await asyncio.gather(
        queueing.end(id_, Decision.COMMIT, checked=True),
        queueing.end(id_, Decision.COMMIT),
        queueing.end(id_, Decision.COMMIT, checked=True),
    )

    assert await queueing.ids() == ["1"]


async def test_a_repeated_half_is_the_same_message_whatever_became_of_it(queueing: Queueing) -> None:
    id_ = await queueing.half(order("1"))
    assert await queueing.half(msgspec.structs.replace(order("1"), born_ms=9), client_id="b") == id_
    await queueing.end(id_, Decision.COMMIT)
    assert await queueing.half(order("1")) == id_

    assert await queueing.ids() == ["1"]


@pytest.mark.parametrize(
    "other",
    [
        {"body": b"another"},
        {"tag": "another"},
        {"keys": ("k",)},
        {"properties": (("a", "1"), ("b", "3"))},
    ],
)
async def test_an_id_that_stands_for_another_message_is_refused_and_nothing_is_lost_without_a_word(
    queueing: Queueing, other: dict[str, Any]
) -> None:
    first = order("1", properties=(("a", "1"), ("b", "2")))
    again = msgspec.structs.replace(first, properties=(("b", "2"), ("a", "1")), born_ms=8, born_host="h")
    another = msgspec.structs.replace(again, **other)

    (sent,) = await queueing.send(first)
    assert await queueing.send(again) == [sent]
    (refused,) = await queueing.queues.send([another], None)
    assert isinstance(refused, ContentConflict)
    with pytest.raises(ContentConflict, match="stands for another message"):
        await queueing.half(first)  # of another kind

    half = msgspec.structs.replace(first, message_id="2")
    id_ = await queueing.half(half)
    for decision in (None, Decision.COMMIT, Decision.COMMIT):
        if decision is not None:
            await queueing.end(id_, decision)
        assert await queueing.half(msgspec.structs.replace(again, message_id="2")) == id_
        with pytest.raises(ContentConflict, match="stands for another message"):
            await queueing.half(msgspec.structs.replace(another, message_id="2"))
    assert await queueing.ids() == ["1", "2"]


async def test_a_decision_may_name_the_topic_and_names_the_right_one(harness: Harness, queueing: Queueing) -> None:
    id_ = await queueing.half(order("1"))
    decided: dict[str, Any] = {"checked": False, "client_id": "a", "caller": None}

    for wrong in (("", "bills"), ("shop", TOPIC)):
        for decision in (Decision.COMMIT, Decision.ROLLBACK):
            with pytest.raises(UnknownMessage):
                await queueing.queues.end(id_, decision, topic=wrong, **decided)
    assert await harness.state(id_) is State.PREPARED
    await queueing.queues.end(id_, Decision.COMMIT, topic=("", TOPIC), **decided)
    assert await queueing.ids() == ["1"]


async def test_a_recall_names_the_topic_of_its_message(harness: Harness, queueing: Queueing) -> None:
    (sent,) = await queueing.send(order("1", kind="delay", deliver_at_ms=harness.clock.now_ms() + 5_000))

    with pytest.raises(UnknownMessage):
        await queueing.queues.recall("", "bills", sent.transaction_id, None)
    await queueing.queues.recall("", TOPIC, sent.transaction_id, None)


@pytest.mark.parametrize("decided", [False, True])
async def test_a_half_of_other_producers_is_refused_and_not_taken_for_a_repetition(
    queueing: Queueing, *, decided: bool
) -> None:
    half = await queueing.half(order("1"), client_id="a")
    if decided:
        await queueing.end(half, Decision.COMMIT)

    with pytest.raises(ContentConflict):
        await queueing.half(order("1"), client_id="a", producers="bills-service")

    assert await queueing.half(order("1"), client_id="b") == half
    assert await queueing.half(order("1"), client_id="b", producers=TOPIC) == half, "a group that is not named yet"


async def test_a_normal_message_does_not_decide_a_half_one_of_its_id(queueing: Queueing) -> None:
    await queueing.half(order("1"))

    (refused,) = await queueing.queues.send([order("1")], None)

    assert isinstance(refused, ContentConflict)
    assert await queueing.ids() == []


async def test_a_half_message_is_decided_at_any_node_and_once(nodes: Nodes) -> None:
    a, b = nodes.a.coordinator.queues, nodes.b.coordinator.queues
    message = order("1", kind="transaction")
    half: dict[str, Any] = {"producers": "p", "client_id": "c", "check_after_ms": None, "caller": None}
    decided: dict[str, Any] = {"checked": False, "client_id": "c", "caller": None}
    id_ = await asyncio.wait_for(a.half(message, **half), PATIENCE_S)
    assert await asyncio.wait_for(b.half(message, **half), PATIENCE_S) == id_

    for queues in (b, a, b):
        await asyncio.wait_for(queues.end(id_, Decision.COMMIT, **decided), PATIENCE_S)
    with pytest.raises(ContraryDecision):
        await asyncio.wait_for(a.end(id_, Decision.ROLLBACK, **decided), PATIENCE_S)

    entries = await a._store.queue_page(TOPIC, 0, 0, 10)
    assert [(entry.number, entry.gid) for entry in entries] == [(0, id_)]


async def test_only_messages_of_queues_are_decided_here(harness: Harness, queueing: Queueing) -> None:
    await harness.prepare(Message("another", (Branch(IN),), CHECK))

    for id_ in ("another", "queue-unknown"):
        with pytest.raises(UnknownMessage):
            await queueing.end(id_, Decision.COMMIT)
        with pytest.raises(UnknownMessage):
            await queueing.end(id_, Decision.ROLLBACK)
    assert await harness.state("another") is State.PREPARED


async def test_a_commit_survives_a_crash_and_is_not_repeated(harness: Harness, queueing: Queueing) -> None:
    id_ = await queueing.half(order("1"))
    await queueing.end(id_, Decision.COMMIT)

    await harness.restart()
    await queueing.end(id_, Decision.COMMIT)

    assert await queueing.ids() == ["1"]


async def test_a_queue_beside_a_branch_is_appended_with_the_decision_and_the_branch_is_called(
    harness: Harness, queueing: Queueing
) -> None:
    harness.destination.hold(IN)
    await harness.prepare(Message("g", (Branch("queue://orders?tag=paid", b"body"), Branch(IN)), CHECK))
    assert (await harness.submit(Message("g", ()))).error is None

    (delivered,) = await queueing.receive()
    assert (delivered.message.body, delivered.message.message_id) == (b"body", "g")
    assert any(isinstance(item, Decide) for item in harness.store.batches[1].items)

    await until(lambda: bool(harness.destination.held[IN]))
    harness.destination.release(IN)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN]
    assert await queueing.ids() == []


async def test_a_plain_message_with_a_queue_and_a_branch_is_appended_at_once(
    harness: Harness, queueing: Queueing
) -> None:
    await harness.submit(Message("g", (Branch(IN), Branch("queue://orders", b"1"), Branch("queue://bills", b"2"))))

    assert [one.message.body for one in await queueing.receive()] == [b"1"]
    assert [one.message.body for one in await queueing.receive(topic="bills")] == [b"2"]
    await harness.until_state("g", State.SUCCEEDED)


async def test_branches_that_came_late_are_appended_too(harness: Harness, queueing: Queueing) -> None:
    await harness.prepare(Message("g", (), CHECK, Options(open=True)))

    await harness.submit(Message("g", (Branch("queue://orders", b"late"),), CHECK))

    assert [one.message.body for one in await queueing.receive()] == [b"late"]
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == []


async def test_a_commit_with_check_back_durability_is_stored_before_it_is_seen(
    harness: Harness, queueing: Queueing
) -> None:
    early = Options(durability=Durability.CHECK_BACK)
    await harness.prepare(Message("g", (Branch("queue://orders", b""),), CHECK, early))
    harness.store.open.clear()

    submitted = harness.submit_soon(Message("g", ()))
    await until(lambda: harness.store.held_flushes == 1)
    assert not submitted.done()
    assert await queueing.ids() == []
    harness.store.open.set()

    assert (await submitted).error is None
    assert await queueing.ids() == ["g"]


async def test_a_delayed_message_is_seen_when_it_is_due(harness: Harness, queueing: Queueing) -> None:
    due_ms = harness.clock.now_ms() + 5_000
    sent, _ = await queueing.send(order("late", kind="delay", deliver_at_ms=due_ms), order("now"))
    assert sent.offset == -1
    assert await queueing.ids() == ["now"]

    harness.clock.advance(4_900)
    assert await queueing.ids() == []
    harness.clock.advance(200)

    assert await queueing.ids(wait_ms=1_000) == ["late"]
    assert await harness.state(sent.transaction_id) is State.SUCCEEDED


async def test_a_delay_survives_a_restart(harness: Harness, queueing: Queueing) -> None:
    await queueing.send(order("late", kind="delay", deliver_at_ms=harness.clock.now_ms() + 5_000))
    await harness.restart()

    harness.clock.advance(5_100)

    assert await queueing.ids(wait_ms=1_000) == ["late"]


async def test_a_delayed_message_can_be_recalled_until_it_is_due(harness: Harness, queueing: Queueing) -> None:
    soon_ms = harness.clock.now_ms() + 5_000
    one, other = await queueing.send(*(order(id_, kind="delay", deliver_at_ms=soon_ms) for id_ in ("1", "2")))

    for _ in range(2):  # the first answer may be lost
        await queueing.queues.recall("", TOPIC, one.transaction_id, None)
    harness.clock.advance(5_100)

    assert await queueing.ids(wait_ms=1_000) == ["2"]
    assert await harness.state(one.transaction_id) is State.FAILED
    with pytest.raises(StateConflict):
        await queueing.queues.recall("", TOPIC, other.transaction_id, None)
    with pytest.raises(UnknownMessage):
        await queueing.queues.recall("", TOPIC, "queue-unknown", None)


@pytest.mark.parametrize("late", ["a delay", "a queue", "another branch"])
async def test_a_submit_that_would_delay_a_queue_beside_another_branch_is_refused(
    harness: Harness, queueing: Queueing, late: str
) -> None:
    queue, other, delay = Branch("queue://orders"), Branch(IN), Options(delay_ms=5_000, open=True)
    known = {"a delay": (queue, other), "a queue": (other,), "another branch": (queue,)}[late]
    prepared = Options(open=True) if late == "a delay" else delay
    await harness.prepare(Message("g", known, CHECK, prepared))

    refused = await harness.submit(Message("g", (*known, *({queue, other} - {*known})), CHECK, delay))

    assert isinstance(refused.error, InvalidRequest)
    assert (await harness.state("g"), await queueing.ids()) == (State.PREPARED, [])
    assert (await harness.abort("g")).error is None


async def test_a_message_with_other_branches_is_not_recalled(harness: Harness, queueing: Queueing) -> None:
    branches = (Branch("queue://orders"), Branch(IN))
    await harness.submit(Message("queue-mine", branches, options=Options(delay_ms=5_000)))

    with pytest.raises(StateConflict):
        await queueing.queues.recall("", TOPIC, "queue-mine", None)


async def test_no_branch_is_redirected_to_a_queue_or_from_one(harness: Harness) -> None:
    await harness.prepare(Message("g", (Branch("queue://orders", b""), Branch(IN)), CHECK))

    for branch, to in (("01", IN), ("02", "queue://orders")):
        wanted = Redirection(to, branch_id=branch)
        with pytest.raises(InvalidRequest):
            await harness.coordinator.operator.redirect("g", wanted, Act("eve", "moved"), lambda *_: None)


async def test_a_queue_commits_nobody_s_transaction(harness: Harness) -> None:
    await harness.prepare(Message("g", (Branch(IN),), "queue://orders"))

    harness.clock.advance(3_600_000)

    await until(lambda: bool(harness.watcher.not_done_attempts))
    assert await harness.state("g") is State.PREPARED


async def test_a_branch_that_was_not_appended_is_not_done(harness: Harness) -> None:
    await harness.submit(Message("g", (Branch("QUEUE://orders"),)))

    await until(lambda: bool(harness.watcher.not_done_attempts))
    assert await harness.state("g") is State.SUBMITTED


async def test_a_queue_subscribes_to_no_topic(harness: Harness) -> None:
    with pytest.raises(InvalidRequest):
        await harness.coordinator.topics.subscribe("news", "queue://orders")


async def test_topics_take_the_kinds_that_they_are_made_for(harness: Harness, queueing: Queueing) -> None:
    await harness.store.define_queue(Definition("topic", TOPIC, '{"kinds":["normal"],"queues":3}'), MADE)

    assert (await queueing.queues.topic("", TOPIC)).queues == 3
    with pytest.raises(WrongMessageKind):
        await queueing.half(order("1"))
    (refused, sent) = await queueing.queues.send([order("1", kind="fifo", message_group="g"), order("2")], None)
    assert isinstance(refused, WrongMessageKind)
    assert sent.offset == 0


async def test_topics_are_made_on_first_use_only_where_the_setting_says_so(
    make_harness: Callable[..., Awaitable[Harness]], harness: Harness
) -> None:
    settings = msgspec.structs.replace(harness.settings, queues_made_on_use=False)
    await harness.coordinator.stop()
    closed = Queueing(await make_harness(settings))
    with pytest.raises(QueueNotFound):
        await closed.half(order("1"))
    await closed.harness.store.define_queue(Definition("topic", TOPIC, "{}"), MADE)
    assert (await closed.send(order("1")))[0].offset == 0


async def test_a_message_without_an_id_is_refused(queueing: Queueing) -> None:
    (refused,) = await queueing.queues.send([order("")], None)

    assert isinstance(refused, InvalidRequest)
    with pytest.raises(InvalidRequest):
        await queueing.half(order(""))


async def test_an_address_that_no_consumer_could_get_stops_no_queue(harness: Harness, queueing: Queueing) -> None:
    harness.store.open.set()
    await harness.submit(Message("g", (Branch("queue://orders?at=soon", b""),)))
    await queueing.send(order("1"))

    assert await queueing.ids() == ["1"]
    assert await harness.state("g") is State.SUBMITTED


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä", "x" * 256])
async def test_a_name_that_no_topic_has_is_refused(queueing: Queueing, name: str) -> None:
    with pytest.raises(InvalidRequest):
        await queueing.queues.topic("", name)
