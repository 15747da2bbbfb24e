"""The limit of topics and groups.

Dead letters get past it, and one owner makes a share of them at most.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from tests.support.items import MADE
from tests.unit.coordinator.harness import PATIENCE_S, Harness, message
from tests.unit.coordinator.queueing import GROUP, TOPIC, Queueing, order
from tests.unit.coordinator.test_queue_operator_nodes import ACT
from twophase.core.errors import StoreUnavailable, TooManyTopics
from twophase.core.lifecycle import State
from twophase.core.limits import TOPICS_MAX
from twophase.core.queue_operating import DefineGroup
from twophase.stores.queue_rows import Definition


@pytest.fixture
def queueing(harness: Harness) -> Queueing:
    return Queueing(harness)


class Named:
    """An owner, by its name alone."""

    def __init__(self, name: str) -> None:
        self.name = name


def limit(monkeypatch: pytest.MonkeyPatch, topics: int) -> None:
    least = msgspec.structs.replace(TOPICS_MAX, value=topics)
    monkeypatch.setattr("twophase.coordinator.queues.definitions.TOPICS_MAX", least)


async def given_out_too_often(harness: Harness, queueing: Queueing) -> None:
    """Let a consumer take a message once more than its group allows."""
    await harness.store.define_queue(Definition("group", GROUP, '{"attempts_max":1,"backoff_ms":[10]}'), MADE)
    await queueing.send(order("bad"))
    assert await queueing.ids(invisible_ms=1_000) == ["bad"]
    harness.clock.advance(1_500)
    assert await queueing.receive() == []


async def test_dead_letters_of_a_group_have_room_beyond_the_limit(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 2)
    await given_out_too_often(harness, queueing)
    await asyncio.wait_for(asyncio.gather(*queueing.queues._burials), PATIENCE_S)

    letters = harness.coordinator.queue_operator.letters(GROUP, 0, 10, lambda _: True, "", with_bodies=False)
    assert [letter.message_id for letter in (await letters).letters] == ["bad"]
    for refused in (queueing.queues.topic("", "another"), queueing.queues.topic("", "%DLQ%nobody")):
        with pytest.raises(TooManyTopics):
            await refused
    reasons = [queueing.queues.why_not(f"queue://{name}") for name in (TOPIC, f"%25DLQ%25{GROUP}", "another")]
    assert reasons[:2] == [None, None]
    assert "the most that there may be" in str(reasons[2]), "no message goes where no group could ask for it"


async def test_a_burial_that_fails_is_reported(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(harness.watcher, "burial_failed", lambda *told: reported.set_result(told))

    async def away(*_: Any) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(queueing.queues, "_bury", away)
    await given_out_too_often(harness, queueing)

    group, code, what = await asyncio.wait_for(reported, PATIENCE_S)
    assert (group, code) == (GROUP, StoreUnavailable.code)
    assert what.startswith("away")


async def test_an_owner_makes_a_share_of_all_by_first_use(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 20)
    eve: Any = Named("eve")
    queues = queueing.queues
    for number in range(2):
        await queues.group("", f"group-{number}", eve)

    for refused in (queues.group("", "group-2", eve), queues.topic("", "topic", eve)):
        with pytest.raises(TooManyTopics, match="'eve' has made 2"):
            await refused
    asked: dict[str, Any] = {"expression": "*", "limit": 1, "invisible_ms": 1_000, "wait_ms": 0, "client_id": "c"}
    await queues.topic("", TOPIC)
    with pytest.raises(TooManyTopics):
        await queues.receive("", "group-2", TOPIC, auto_renew=False, caller=eve, **asked)
    (sent,) = await queues.send([msgspec.structs.replace(order("1"), topic="new")], eve)
    assert isinstance(sent, TooManyTopics)

    await queues.group("", "group-1", eve)
    bob: Any = Named("bob")
    await queues.group("", "group-2", bob)


async def test_a_client_leaves_as_many_rows_as_it_makes_topics_and_groups(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 20)
    eve: Any = Named("eve")
    for number in range(50):
        for make in (queueing.queues.topic, queueing.queues.group):
            with contextlib.suppress(TooManyTopics):
                await make("", f"name-{number}", eve, "10.0.0.7")

    rows = await harness.store.audit_chain(0, 1_000)
    assert [(row.who, row.peer, row.act, row.target) for row in rows] == [
        ("eve", "10.0.0.7", "define-topic", "name-0"),
        ("eve", "10.0.0.7", "define-group", "name-0"),
    ]


async def test_topics_that_messages_name_by_address_are_made_with_a_row_and_count(
    harness: Harness, queueing: Queueing, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 20)
    eve: Any = Named("eve")
    eve.take_room = lambda _: True
    replies = [
        await asyncio.wait_for(
            harness.prepare_soon(message(gid, f"queue://{gid}", "queue://shared?tag=1"), eve), PATIENCE_S
        )
        for gid in ("a", "b", "c")
    ]
    assert [type(reply.error) for reply in replies] == [type(None), TooManyTopics, TooManyTopics]
    assert replies[1].state is State.ABSENT
    assert await harness.coordinator.query("b") is None

    rows = await harness.store.audit_chain(0, 1_000)
    assert [(row.who, row.act, row.target) for row in rows] == [
        ("eve", "define-topic", "a"),
        ("eve", "define-topic", "shared"),
    ]
    again = message("a", "queue://a", "queue://shared?tag=1")
    assert (await asyncio.wait_for(harness.prepare_soon(again, eve), PATIENCE_S)).error is None
    assert (await harness.submit(again)).error is None
    assert [span.topic for span in await harness.store.queue_spans()] == ["a", "shared"]


async def test_a_stranger_of_a_message_that_is_refused_is_told_of_none(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 1)
    await harness.coordinator.queues.topic("", "full")
    refused = harness.submit_soon(message("g", "queue://new", check_url=""))
    abort = asyncio.ensure_future(harness.abort("g"))
    assert isinstance((await asyncio.wait_for(refused, PATIENCE_S)).error, TooManyTopics)
    assert (await asyncio.wait_for(abort, PATIENCE_S)).state is State.ABSENT


async def test_a_topic_of_dead_letters_is_a_row(harness: Harness, queueing: Queueing) -> None:
    await given_out_too_often(harness, queueing)
    await asyncio.wait_for(asyncio.gather(*queueing.queues._burials), PATIENCE_S)

    rows = [row for row in await harness.store.audit_chain(0, 1_000) if row.act == "define-topic"]
    assert [(row.target, row.who) for row in rows] == [(TOPIC, ""), (f"%DLQ%{GROUP}", "")]


async def test_the_share_outlives_a_change_and_a_restart(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 10)
    eve: Any = Named("eve")
    await harness.coordinator.queues.group("", "group", eve)
    await harness.coordinator.queue_operator.define_group("group", DefineGroup(attempts_max=3), ACT)
    await harness.restart()

    with pytest.raises(TooManyTopics):
        await harness.coordinator.queues.group("", "another", eve)
    await harness.coordinator.queue_operator.define_group("another", DefineGroup(attempts_max=3), ACT)
    await harness.coordinator.queues.group("", "another", eve)
