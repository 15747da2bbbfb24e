"""Messages to topics.

The tests show which subscribers are called under which branch id, and what a change of a topic means for earlier
messages.
"""

from __future__ import annotations

import asyncio
import binascii
import gc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, Harness, message
from twophase.coordinator import topics as module
from twophase.coordinator.operator import Act
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core import failpoint, limits
from twophase.core.errors import (
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    StoreUnavailable,
    TopicNotFound,
    TopicRefused,
    TwophaseError,
)
from twophase.core.lifecycle import State
from twophase.core.message import Branch, encode_branches
from twophase.core.options import Durability
from twophase.core.topic import late_id
from twophase.destinations.base import Answer
from twophase.stores.rows import Subscriber, Topics

ONE, TWO, THREE = "http://b/1", "http://b/2", "http://c/3"
RATES = "topic://rates"
BROKEN = Answer(500, b"no")


def ids(harness: Harness) -> list[tuple[str, str]]:
    """Return the calls in their order: (branch id, address)."""
    return [(dict(call.query)["branch_id"], call.url) for call in harness.destination.calls]


async def subscribe(harness: Harness, *urls: str, name: str = "rates") -> None:
    for url in urls:
        await harness.coordinator.topics.subscribe(name, url)


async def test_every_subscriber_is_called_in_order_with_dtms_ids(harness: Harness) -> None:
    await subscribe(harness, ONE, TWO)
    await subscribe(harness, THREE, name="one")

    reply = await harness.submit(message("g", RATES, IN, "topic://one"))

    assert reply.error is None
    await harness.until_state("g", State.SUCCEEDED)
    assert ids(harness) == [("01-01", ONE), ("01-02", TWO), ("02", IN), ("03", THREE)]
    view = await harness.coordinator.query("g")
    assert view is not None
    assert (view.done, view.message.branches[0].url) == (0b1111, RATES)
    assert view.message.branches[0].subscribers == (ONE, TWO)


async def test_concurrent_calls_reach_every_subscriber(harness: Harness) -> None:
    await subscribe(harness, ONE, TWO, THREE)

    await harness.submit(message("g", RATES, concurrent=True))

    await harness.until_state("g", State.SUCCEEDED)
    assert sorted(ids(harness)) == [("01-01", ONE), ("01-02", TWO), ("01-03", THREE)]


async def test_a_subscriber_that_has_succeeded_is_not_called_again(harness: Harness) -> None:
    await subscribe(harness, ONE, TWO)
    harness.destination.script[TWO].append(BROKEN)
    await harness.submit(message("g", RATES))
    await harness.settled()

    await harness.restart()
    harness.clock.advance(2_000)

    await harness.until_state("g", State.SUCCEEDED)
    assert ids(harness) == [("01-01", ONE), ("01-02", TWO), ("01-02", TWO)]
    view = await harness.coordinator.query("g")
    assert view is not None
    assert [(one.branch_id, one.target) for one in view.log] == [("01-02", TWO)]


async def test_wait_result_waits_for_every_subscriber(harness: Harness) -> None:
    await subscribe(harness, ONE, TWO)
    harness.destination.script[TWO].append(BROKEN)

    reply = await harness.submit(message("g", RATES, wait_result=True))

    assert isinstance(reply.error, TwophaseError)
    assert harness.destination.urls() == [ONE, TWO]


async def test_messages_of_before_are_not_changed_by_a_subscription(harness: Harness) -> None:
    await subscribe(harness, ONE)
    await harness.prepare(message("g", RATES))
    await subscribe(harness, TWO)
    await harness.coordinator.topics.unsubscribe("rates", ONE)

    await harness.submit(message("g", RATES))

    await harness.until_state("g", State.SUCCEEDED)
    assert ids(harness) == [("01", ONE)]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_prepared_message_is_submitted_though_its_topic_has_gone(harness: Harness, restarts: bool) -> None:
    await subscribe(harness, ONE, TWO)
    assert (await harness.prepare(message("g", RATES))).error is None
    await harness.coordinator.topics.delete("rates")
    if restarts:
        await harness.restart()

    assert (await harness.prepare(message("g", RATES))).error is None
    assert (await harness.submit(message("g", RATES))).error is None

    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [ONE, TWO]


async def test_check_back_durability_calls_the_subscribers_of_prepare(harness: Harness) -> None:
    await subscribe(harness, ONE, TWO)
    said = message("g", RATES, durability=Durability.CHECK_BACK)
    await harness.prepare(said)
    await harness.coordinator.topics.delete("rates")
    await harness.submit(said)

    await harness.until_state("g", State.SUCCEEDED)
    assert ids(harness) == [("01-01", ONE), ("01-02", TWO)]


async def test_a_body_of_a_subscription_is_each_subscribers(harness: Harness) -> None:
    await subscribe(harness, ONE, TWO)
    await harness.submit(message("g", RATES, payload=b'{"rate":1}'))

    await harness.until_state("g", State.SUCCEEDED)
    assert {call.payload for call in harness.destination.calls} == {b'{"rate":1}'}


@pytest.mark.parametrize("prepared", [False, True])
async def test_a_topic_without_subscribers_is_not_found(harness: Harness, prepared: bool) -> None:
    await subscribe(harness, ONE, name="empty")
    await harness.coordinator.topics.unsubscribe("empty", ONE)
    ask = harness.prepare if prepared else harness.submit

    for number, topic in enumerate(("nosuch", "empty")):
        reply = await ask(message(f"g{number}", IN, f"topic://{topic}"))
        assert isinstance(reply.error, TopicNotFound)
        assert (str(reply.error.message), f"topic://{topic}" in reply.error.remedy) == ("topic not found", True)
        assert await harness.state(f"g{number}") is None

    assert harness.coordinator.gauges().active == 0, "nothing of it stays in memory"
    await subscribe(harness, ONE, name="nosuch")
    assert (await ask(message("g0", IN, "topic://nosuch"))).error is None


async def test_a_refusal_leaves_those_who_wait_behind_it_alone(harness: Harness) -> None:
    harness.coordinator.abort("g", lambda _reply: None)  # looks the gid up, and the next ones wait for it
    refused, accepted = harness.submit_soon(message("g", "topic://nosuch")), harness.submit_soon(message("g", IN))

    assert isinstance((await refused).error, TopicNotFound)
    assert (await accepted).error is None
    await harness.until_state("g", State.SUCCEEDED)


async def test_63_calls_are_the_most(harness: Harness) -> None:
    await subscribe(harness, *(f"http://b/{number}" for number in range(62)))

    assert (await harness.submit(message("g", RATES, IN))).error is None
    await harness.until_state("g", State.SUCCEEDED)
    assert len(harness.destination.calls) == 63

    reply = await harness.submit(message("h", RATES, IN, IN))
    assert isinstance(reply.error, LimitExceeded)
    assert "64" in reply.error.message
    assert await harness.state("h") is None


async def test_a_late_branch_to_a_topic_is_expanded_when_it_comes(harness: Harness) -> None:
    await subscribe(harness, ONE, TWO)
    await harness.prepare(message("g", IN, RATES, open=True))
    await harness.coordinator.topics.unsubscribe("rates", ONE)
    await subscribe(harness, THREE)

    await harness.submit(message("g", IN, RATES, RATES, open=True))

    await harness.until_state("g", State.SUCCEEDED)
    assert ids(harness) == [("01", IN), ("02-01", ONE), ("02-02", TWO), ("03-01", TWO), ("03-02", THREE)]


async def test_a_late_branch_from_the_check_back_is_expanded(harness: Harness) -> None:
    await subscribe(harness, ONE, TWO)
    added = binascii.b2a_base64(encode_branches((Branch(RATES, b"{}", ("http://evil/",)),))).decode()
    body = msgspec.json.encode({"branches": added})
    harness.destination.script[CHECK].append(Answer(200, body, "committed"))
    await harness.prepare(message("g", IN, open=True))

    harness.clock.advance(35_064)

    await harness.until_state("g", State.SUCCEEDED)
    assert ids(harness)[1:] == [("01", IN), ("02-01", ONE), ("02-02", TWO)]


async def test_a_late_branch_to_an_unknown_topic_is_tried_until_it_has_a_subscriber(harness: Harness) -> None:
    await harness.prepare(message("g", IN, open=True))
    assert (await harness.submit(message("g", IN, RATES, open=True))).error is None
    await harness.settled()
    assert await harness.state("g") is State.SUBMITTED
    view = await harness.coordinator.query("g")
    assert view is not None
    assert [(one.branch_id, one.target, "topic not found" in one.error) for one in view.log] == [("02", RATES, True)]

    await harness.restart()
    harness.destination.script[TWO].append(BROKEN)
    await subscribe(harness, ONE, TWO)
    harness.clock.advance(2_000)
    await harness.settled()
    await harness.coordinator.topics.unsubscribe("rates", ONE)
    harness.clock.advance(4_000)

    await harness.until_state("g", State.SUCCEEDED)
    one, two = late_id("02", ONE), late_id("02", TWO)
    assert ids(harness) == [("01", IN), (one, ONE), (two, TWO), (two, TWO)]


async def test_late_subscribers_that_there_is_no_room_for_are_called_all_the_same(harness: Harness) -> None:
    await subscribe(harness, *(f"http://b/{number}" for number in range(40)))
    await harness.prepare(message("g", RATES, open=True))
    assert (await harness.submit(message("g", RATES, RATES, open=True))).error is None

    await harness.until_state("g", State.SUCCEEDED)
    assert len(harness.destination.calls) == 80
    assert len(set(ids(harness))) == 80


async def test_late_subscribers_of_a_slow_destination_are_waited_for(harness: Harness) -> None:
    await harness.prepare(message("g", IN, open=True))
    await harness.submit(message("g", IN, RATES, open=True))
    await harness.settled()
    harness.destination.hold(TWO)
    harness.destination.script[THREE].append(BROKEN)
    await subscribe(harness, ONE, TWO, THREE)
    harness.clock.advance(2_000)
    await until(lambda: len(harness.destination.calls) == 4)
    assert await harness.state("g") is State.SUBMITTED

    harness.destination.release(TWO)
    await harness.settled()
    assert await harness.state("g") is State.SUBMITTED, "one of them has failed"
    harness.clock.advance(4_000)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_late_subscribers_answer_after_a_stop_is_recorded_and_not_applied(harness: Harness) -> None:
    await harness.prepare(message("g", IN, open=True))
    await harness.submit(message("g", IN, RATES, open=True))
    await harness.settled()
    harness.destination.hold(ONE)
    await subscribe(harness, ONE)
    harness.clock.advance(2_000)
    await until(lambda: ONE in harness.destination.urls())

    assert (await harness.coordinator.operator.stop("g", Act("eve"))).error is None
    harness.destination.release(ONE)
    await harness.coordinator.drain(5_000)

    view = await harness.coordinator.query("g")
    assert view is not None
    assert view.state is State.FAILED
    assert [(one.branch_id, one.target, one.status, one.error) for one in view.log if one.target == ONE] == [
        (late_id("02", ONE), ONE, 200, "succeeded arrived late, the message was failed")
    ]


async def test_a_crash_may_be_set_between_a_late_subscribers_call_and_its_record(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.prepare(message("g", IN, open=True))
    await harness.submit(message("g", IN, RATES, open=True))
    await harness.settled()
    reached: list[str] = []
    monkeypatch.setattr(failpoint, "ARMED", True)
    monkeypatch.setattr(failpoint, "reach", reached.append)
    await subscribe(harness, ONE)
    harness.clock.advance(2_000)
    await harness.until_state("g", State.SUCCEEDED)
    calls = [name for name in reached if name.endswith("branch_call")]
    assert calls == ["coordinator.before_branch_call", "coordinator.after_branch_call"]


async def test_changes_are_refused_in_dtms_words(harness: Harness) -> None:
    topics = harness.coordinator.topics
    refusals = {
        "empty topic": topics.subscribe("", ONE),
        "empty url": topics.subscribe("rates", ""),
        "no such a topic": topics.unsubscribe("rates", ONE),
        "storage: NotFound": topics.delete("rates"),
    }
    for text, change in refusals.items():
        with pytest.raises(TopicRefused) as caught:
            await change
        assert caught.value.message == text

    await topics.subscribe("rates", ONE)
    for text, change in {
        "this url exists": topics.subscribe("rates", ONE, "again"),
        "no such an url ": topics.unsubscribe("rates", TWO),
        "empty url": topics.unsubscribe("rates", ""),
        "empty topic": topics.unsubscribe("", ONE),
    }.items():
        with pytest.raises(TopicRefused) as caught:
            await change
        assert caught.value.message == text

    await topics.unsubscribe("rates", ONE)
    with pytest.raises(TopicRefused, match="this topic is empty"):
        await topics.unsubscribe("rates", ONE)
    assert (await topics.refresh()).by_name["rates"].version == 2, "what was refused counts for nothing"


@pytest.mark.parametrize(
    ("name", "url", "remark"),
    [
        ("rates", "nowhere", ""),
        ("rates", RATES, ""),
        ("rates", "ftp://b/in", ""),
        ("rates", f"http://b/{'x' * 2048}", ""),
        ("rates", ONE, "x" * 513),
        ("rates", ONE, "bank B\x1b[2J"),
        ("rates", ONE, "\u202edesrever"),
        ("x" * 129, ONE, ""),
        ("a\0b", ONE, ""),
    ],
)
async def test_what_cannot_be_called_or_kept_is_refused(harness: Harness, name: str, url: str, remark: str) -> None:
    with pytest.raises(InvalidRequest):
        await harness.coordinator.topics.subscribe(name, url, remark)

    assert (await harness.coordinator.topics.refresh()).by_name == {}


async def test_a_topic_has_as_many_subscribers_as_a_message_has_calls(harness: Harness) -> None:
    await subscribe(harness, *(f"http://b/{number}" for number in range(63)))

    with pytest.raises(LimitExceeded, match="63"):
        await subscribe(harness, THREE)


async def test_topics_are_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    least = msgspec.structs.replace(limits.TOPICS_MAX, value=1)
    monkeypatch.setattr("twophase.coordinator.topic_changes.TOPICS_MAX", least)
    await subscribe(harness, ONE)
    await subscribe(harness, TWO)

    with pytest.raises(LimitExceeded, match="topics"):
        await subscribe(harness, ONE, name="another")


async def test_changes_at_once_all_come_through(harness: Harness) -> None:
    topics = harness.coordinator.topics
    await asyncio.gather(*(topics.subscribe("rates", f"http://b/{number}") for number in range(30)))

    rates = (await topics.refresh()).by_name["rates"]
    assert {one.url for one in rates.subscribers} == {f"http://b/{number}" for number in range(30)}
    assert rates.version == 30


async def test_a_change_whose_answer_was_lost_is_not_reported_as_a_failure(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    change: Any = harness.store.change_topic

    async def lost(revision: int, name: str, subscribers: list[Subscriber] | None, entry: object) -> bool:
        await change(revision, name, subscribers, entry)
        raise StoreUnavailable

    monkeypatch.setattr(harness.store, "change_topic", lost)
    topics = harness.coordinator.topics
    await topics.subscribe("rates", ONE)
    await topics.subscribe("rates", TWO)
    await topics.unsubscribe("rates", ONE)
    assert [one.url for one in (await topics.refresh()).by_name["rates"].subscribers] == [TWO]
    await topics.delete("rates")
    assert (await topics.refresh()).by_name == {}


async def test_a_change_whose_caller_has_gone_is_known_here(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, goes_on = asyncio.Event(), asyncio.Event()
    change = harness.store.change_topic

    async def slow(*args: Any) -> bool:
        done = await change(*args)
        stored.set()
        await goes_on.wait()
        return done

    await subscribe(harness, ONE)
    monkeypatch.setattr(harness.store, "change_topic", slow)
    changing = asyncio.create_task(subscribe(harness, TWO))
    await stored.wait()
    waiting = asyncio.create_task(subscribe(harness, THREE))
    await asyncio.sleep(0)
    for task in (changing, waiting):
        task.cancel()
    await asyncio.wait([changing, waiting])
    goes_on.set()
    topics = harness.coordinator.topics
    async with topics._store_is_asked:
        pass

    await harness.submit(message("g", RATES))

    await harness.until_state("g", State.SUCCEEDED)
    assert (changing.cancelled(), waiting.cancelled()) == (True, True)
    assert ids(harness) == [("01-01", ONE), ("01-02", TWO)], "who still waited has changed nothing"


async def test_a_refusal_whose_caller_has_gone_is_no_error_of_the_event_loop(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: noted.append(context))
    topics = harness.coordinator.topics
    asked, goes_on = asyncio.Event(), asyncio.Event()
    read = topics._read

    async def slow() -> Any:
        asked.set()
        await goes_on.wait()
        return await read()

    monkeypatch.setattr(topics, "_read", slow)
    deleting = asyncio.create_task(topics.delete("rates"))
    await asked.wait()
    deleting.cancel()
    await asyncio.wait([deleting])
    goes_on.set()
    async with topics._store_is_asked:
        pass
    topics._changing = None
    gc.collect()

    assert noted == []


async def test_a_change_that_is_always_too_late_is_refused_in_the_end(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def beaten(revision: int, name: str, subscribers: list[Subscriber] | None, entry: object) -> bool:
        return False

    monkeypatch.setattr(harness.store, "change_topic", beaten)
    with pytest.raises(Overloaded, match="nothing was changed"):
        await subscribe(harness, ONE)


async def test_a_database_that_stays_away_is_reported(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(revision: int, name: str, subscribers: list[Subscriber] | None, entry: object) -> bool:
        raise StoreUnavailable

    monkeypatch.setattr(harness.store, "change_topic", away)
    with pytest.raises(StoreUnavailable):
        await subscribe(harness, ONE)


async def test_topics_are_there_after_a_restart(harness: Harness) -> None:
    await subscribe(harness, ONE)
    await harness.restart()

    assert (await harness.submit(message("g", RATES))).error is None
    await harness.until_state("g", State.SUCCEEDED)


async def test_what_another_node_changes_is_used_within_the_interval(tmp_path: Path) -> None:
    harness = SharedRig(tmp_path, CoordinatorSettings(topics_interval_ms=20))
    await harness.coordinator.start()
    try:
        assert await harness.store.change_topic(0, "rates", [Subscriber(ONE)])
        await until(lambda: harness.coordinator.topics.subscribers(RATES, "http"))
    finally:
        await harness.coordinator.stop()


async def test_a_look_that_fails_is_repeated_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = SharedRig(tmp_path, CoordinatorSettings(topics_interval_ms=5))
    failures: list[str] = []
    monkeypatch.setattr(harness.watcher, "topics_failed", lambda code, what: failures.append(code))
    await harness.coordinator.start()
    ask = harness.store.topics
    try:

        async def away(known: int = -1) -> Topics | None:
            raise StoreUnavailable

        monkeypatch.setattr(harness.store, "topics", away)
        await until(lambda: len(failures) > 1)
        monkeypatch.setattr(harness.store, "topics", ask)
        assert await harness.store.change_topic(0, "rates", [Subscriber(ONE)])
        await until(lambda: harness.coordinator.topics.subscribers(RATES, "http") == (ONE,))
    finally:
        await harness.coordinator.stop()
    assert set(failures) == {StoreUnavailable.code}


async def test_topics_that_cannot_be_read_any_more_are_not_used_for_new_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node may have changed the subscribers since the last reading.

    Messages that name no topic, or were prepared before, continue.
    """
    monkeypatch.setattr(module, "AGE_MS_MAX", 30)
    harness = SharedRig(tmp_path, CoordinatorSettings(topics_interval_ms=5))
    await harness.coordinator.start()
    ask = harness.store.topics
    try:
        await subscribe(harness, ONE)
        assert (await harness.prepare(message("before", RATES))).error is None

        async def away(known: int = -1) -> Topics | None:
            raise StoreUnavailable

        monkeypatch.setattr(harness.store, "topics", away)
        await until(lambda: not harness.coordinator.topics.can_expand(message("g", RATES)))
        refused = (await harness.submit(message("g", RATES))).error
        assert isinstance(refused, StoreUnavailable)
        assert "nothing was stored" in refused.message
        assert await harness.coordinator.query("g") is None
        assert (await harness.submit(message("before", RATES))).error is None
        assert (await harness.submit(message("plain", IN))).error is None
        monkeypatch.setattr(harness.store, "topics", ask)
        await until(lambda: harness.coordinator.topics.can_expand(message("g", RATES)))
        assert (await harness.submit(message("g", RATES))).error is None
    finally:
        await harness.coordinator.stop()


async def test_where_no_other_node_changes_topics_they_never_are_too_old(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGE_MS_MAX", -10_000_000)
    await subscribe(harness, ONE)

    assert (await harness.submit(message("g", RATES))).error is None


class SharedRig(Harness):
    """A harness whose topics other nodes may change.

    The coordinator is built as for a shared store, although the store is not shared.
    """

    def __init__(self, folder: Path, settings: CoordinatorSettings) -> None:
        super().__init__(folder, settings)
        shared: Any = _Shared(self.store)
        self.coordinator.topics._store = shared


class _Shared:
    def __init__(self, store: object) -> None:
        self._store = store

    shared = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_grpc_addresses_without_a_scheme_are_called_by_messages_of_any_protocol(harness: Harness) -> None:
    topics = harness.coordinator.topics
    await harness.store.change_topic(0, "rates", [Subscriber("b:1/bank.Bank/In"), Subscriber(ONE)])
    await topics.refresh()

    assert topics.subscribers(RATES, "http") == ("grpc://b:1/bank.Bank/In", ONE)
    assert topics.subscribers(RATES, "grpc") == ("b:1/bank.Bank/In", ONE)


@pytest.mark.parametrize(
    ("gid", "headers", "named"),
    [("gïd", (), "gid has characters beyond ASCII"), ("g", (("tenant", "7\t"),), "branch_headers: 'tenant'")],
)
async def test_what_a_subscribers_call_could_not_carry_is_refused_before_it_is_stored(
    harness: Harness, gid: str, headers: tuple[tuple[str, str], ...], named: str
) -> None:
    await harness.store.change_topic(0, "rates", [Subscriber(ONE), Subscriber("b:1/bank.Bank/In")])
    await harness.store.change_topic(1, "plain", [Subscriber(ONE)])
    await harness.coordinator.topics.refresh()

    refused = (await harness.submit(message(gid, RATES, headers=headers))).error

    assert isinstance(refused, InvalidRequest)
    assert refused.message.startswith(named)
    assert "A subscriber of topic://rates is called so" in refused.message
    assert await harness.coordinator.query(gid) is None
    assert (await harness.submit(message(gid, "topic://plain", headers=headers))).error is None
