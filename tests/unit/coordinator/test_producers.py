"""Questions over producers' own connections: who is asked, and what counts."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import QUICK, Harness, message, set_back
from tests.unit.coordinator.queueing import Asked, Queueing, order
from twophase.coordinator.queues import Decision
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.core.lifecycle import State

MakeHarness = Callable[..., Awaitable[Harness]]
SETTINGS = CoordinatorSettings(delivery=QUICK, check_back=QUICK)


@pytest.fixture
def queueing(harness: Harness) -> Queueing:
    return Queueing(harness)


async def asked(harness: Harness, client: Asked, questions: int = 1) -> None:
    """Wait until the client has been asked so often."""
    await until(lambda: len(client.questions) == questions)


async def test_an_orphan_is_asked_about_when_it_is_due_and_committed(harness: Harness, queueing: Queueing) -> None:
    client = Asked("a")
    queueing.queues.attach(client)
    id_ = await queueing.half(order("1", tag="t"))
    harness.clock.advance(900)
    assert client.questions == []
    harness.clock.advance(200)

    await asked(harness, client)
    (question,) = client.questions
    assert (question.transaction_id, question.asked) == (id_, 0)
    assert (question.message.message_id, question.message.body, question.message.tag) == ("1", b"body of 1", "t")
    await queueing.end(id_, Decision.COMMIT, checked=True)

    assert await queueing.ids() == ["1"]
    view = await harness.coordinator.query(id_)
    assert view is not None
    assert view.decided_by == "check-back"


async def test_the_client_that_sent_it_is_asked_and_another_when_it_is_gone(
    harness: Harness, queueing: Queueing
) -> None:
    own, other = Asked("a"), Asked("b")
    queueing.queues.attach(other)
    detach = queueing.queues.attach(own)
    await queueing.half(order("1"), client_id="a")
    harness.clock.advance(1_100)
    await asked(harness, own)
    assert other.questions == []

    detach()
    await queueing.half(order("2"), client_id="a")
    harness.clock.advance(1_100)
    await asked(harness, other)
    assert len(own.questions) == 1


async def test_one_that_does_not_answer_is_followed_by_another(harness: Harness, queueing: Queueing) -> None:
    silent, other = Asked("a"), Asked("b")
    queueing.queues.attach(silent)
    queueing.queues.attach(other)
    id_ = await queueing.half(order("1"), client_id="a")
    harness.clock.advance(1_100)
    await asked(harness, silent)
    harness.clock.advance(harness.settings.producer_answer_ms - 1_000)
    assert other.questions == []

    harness.clock.advance(1_100)

    await asked(harness, other)
    assert other.questions[0].asked == 0, "only an answer counts"
    await queueing.end(id_, Decision.ROLLBACK, checked=True)
    assert await harness.state(id_) is State.FAILED


async def test_all_messages_of_one_that_does_not_answer_go_to_another_at_once(
    harness: Harness, queueing: Queueing
) -> None:
    silent, other = Asked("a"), Asked("b")
    queueing.queues.attach(silent)
    queueing.queues.attach(other)
    for number in range(10):
        await queueing.half(order(f"{number}"), client_id="a")
    harness.clock.advance(1_100)
    await asked(harness, silent, 10)

    harness.clock.advance(harness.settings.producer_answer_ms + 100)

    await asked(harness, other, 10)
    assert len(silent.questions) == 10


async def test_each_of_several_is_asked_before_one_that_did_not_answer(harness: Harness, queueing: Queueing) -> None:
    clients = [Asked(id_) for id_ in "abc"]
    for client in clients:
        queueing.queues.attach(client)
    await queueing.half(order("1"), client_id="a")
    harness.clock.advance(1_100)
    for turn, client in [(1, one) for one in clients] + [(2, one) for one in clients]:
        await asked(harness, client, turn)
        harness.clock.advance(harness.settings.producer_answer_ms + 100)


async def test_nobody_there_is_no_try_and_the_next_to_attach_is_asked_at_once(
    harness: Harness, queueing: Queueing
) -> None:
    ids = [await queueing.half(order(f"{number}")) for number in range(3)]
    for _ in range(100):
        harness.clock.advance(60_000)
    await until(lambda: harness.store.under_way == 0)

    client = Asked("late")
    queueing.queues.attach(client)

    await asked(harness, client, 3)
    assert {question.transaction_id for question in client.questions} == set(ids)
    assert {question.asked for question in client.questions} == {0}
    assert harness.watcher.parked_messages == []


async def test_a_client_of_another_name_is_not_asked(harness: Harness, queueing: Queueing) -> None:
    stranger = Asked("a", frozenset({"others"}))
    queueing.queues.attach(stranger)
    await queueing.half(order("1"), client_id="a")

    harness.clock.advance(120_000)

    assert stranger.questions == []


async def test_unknown_is_asked_again_later_and_counts(harness: Harness, queueing: Queueing) -> None:
    client = Asked("a")
    queueing.queues.attach(client)
    id_ = await queueing.half(order("1"))
    for answers in range(3):
        harness.clock.advance(61_000)
        await asked(harness, client, answers + 1)
        assert client.questions[-1].asked == answers
        await queueing.end(id_, Decision.UNKNOWN, checked=True)

    assert await harness.state(id_) is State.PREPARED


async def test_an_unknown_that_nobody_asked_for_changes_nothing(harness: Harness, queueing: Queueing) -> None:
    id_ = await queueing.half(order("1"))
    batches = len(harness.store.batches)

    await queueing.end(id_, Decision.UNKNOWN)

    assert len(harness.store.batches) == batches


async def test_an_answer_of_unknown_to_no_question_is_no_try(make_harness: MakeHarness) -> None:
    harness = await make_harness(msgspec.structs.replace(SETTINGS, producer_checks_max=2))
    queueing, client = Queueing(harness), Asked("a")
    queueing.queues.attach(client)
    id_ = await queueing.half(order("1"))
    for _ in range(3):
        await queueing.end(id_, Decision.UNKNOWN, checked=True)
    harness.clock.advance(61_000)
    await asked(harness, client, 1)
    for _ in range(3):
        await queueing.end(id_, Decision.UNKNOWN, checked=True)  # the first one answers

    assert harness.watcher.parked_messages == []
    harness.clock.advance(61_000)
    await asked(harness, client, 2)
    assert [question.asked for question in client.questions] == [0, 1]


async def test_answers_of_unknown_at_the_same_time_are_one_try(make_harness: MakeHarness) -> None:
    harness = await make_harness(msgspec.structs.replace(SETTINGS, producer_checks_max=3))
    queueing, client = Queueing(harness), Asked("a")
    queueing.queues.attach(client)
    id_ = await queueing.half(order("1"))
    for answers in range(2):
        harness.clock.advance(61_000)
        await asked(harness, client, answers + 1)
        await asyncio.gather(*(queueing.end(id_, Decision.UNKNOWN, checked=True) for _ in range(20)))

    assert harness.watcher.parked_messages == []
    harness.clock.advance(61_000)
    await asked(harness, client, 3)
    assert [question.asked for question in client.questions] == [0, 1, 2]


async def test_a_message_answered_unknown_too_often_is_parked_with_an_alert_and_never_given_up(
    make_harness: MakeHarness,
) -> None:
    harness = await make_harness(msgspec.structs.replace(SETTINGS, producer_checks_max=3))
    queueing, client = Queueing(harness), Asked("a")
    queueing.queues.attach(client)
    id_ = await queueing.half(order("1"))
    for answers in range(3):
        harness.clock.advance(61_000)
        await asked(harness, client, answers + 1)
        await queueing.end(id_, Decision.UNKNOWN, checked=True)

    assert [gid for gid, _ in harness.watcher.parked_messages] == [id_]
    await until(lambda: len(harness.hook.calls) == 1)
    harness.clock.advance(3_600_000)
    assert len(client.questions) == 3

    await queueing.end(id_, Decision.COMMIT)
    assert await queueing.ids() == ["1"]


async def test_a_client_has_a_bounded_number_of_questions_and_gets_more_as_it_answers(
    make_harness: MakeHarness,
) -> None:
    harness = await make_harness(msgspec.structs.replace(SETTINGS, producer_asked_max=2))
    queueing, client = Queueing(harness), Asked("a")
    queueing.queues.attach(client)
    ids = [await queueing.half(order(f"{number}")) for number in range(6)]
    harness.clock.advance(1_100)

    for answered in range(6):
        await asked(harness, client, min(6, answered + 2))
        await queueing.end(client.questions[answered].transaction_id, Decision.COMMIT, checked=True)

    assert {question.transaction_id for question in client.questions} == set(ids)
    assert len(await queueing.ids()) == 6


class Looked(dict[str, Any]):
    """Counts the entries that are looked at one after the other."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.looks += 1
            yield key

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()


async def test_the_questions_that_are_open_make_no_other_one_slower(harness: Harness, queueing: Queueing) -> None:
    open_ = queueing.queues._producers._asked = Looked()
    clients = [Asked(f"client-{number}") for number in range(13)]
    for client in clients:
        queueing.queues.attach(client)
    for number in range(200):
        await queueing.half(order(f"{number}"))
    harness.clock.advance(1_100)

    await until(lambda: sum(len(client.questions) for client in clients) == 200)

    assert len(open_) == 200
    assert open_.looks <= 2 * 200


async def test_questions_from_before_the_clock_was_set_back_keep_no_client_from_others(
    harness: Harness, queueing: Queueing
) -> None:
    client = Asked("a")
    queueing.queues.attach(client)
    for number in range(SETTINGS.producer_asked_max):
        await queueing.half(order(f"{number}"))
    harness.clock.advance(1_100)
    await asked(harness, client, SETTINGS.producer_asked_max)
    set_back(harness.clock, 3_600_000)

    await queueing.half(order("new"))
    for _ in range(20):
        harness.clock.advance(61_000)
        await asyncio.sleep(0.01)

    await until(lambda: any(one.message.message_id == "new" for one in client.questions))


async def test_a_client_that_cannot_take_a_question_leaves_it_to_another(harness: Harness, queueing: Queueing) -> None:
    full, other = Asked("a", room=0), Asked("b")
    queueing.queues.attach(full)
    queueing.queues.attach(other)
    await queueing.half(order("1"), client_id="a")

    harness.clock.advance(1_100)

    await asked(harness, other)


async def test_an_earlier_attach_of_a_client_takes_nothing_away_when_it_ends(
    harness: Harness, queueing: Queueing
) -> None:
    client = Asked("a")
    earlier = queueing.queues.attach(client)
    queueing.queues.attach(client)
    earlier()
    await queueing.half(order("1"))

    harness.clock.advance(1_100)

    await asked(harness, client)


async def test_a_restarted_coordinator_asks_again(harness: Harness, queueing: Queueing) -> None:
    client = Asked("a")
    queueing.queues.attach(client)
    id_ = await queueing.half(order("1"))
    harness.clock.advance(1_100)
    await asked(harness, client)

    await harness.restart()
    again = Asked("b")
    queueing.queues.attach(again)
    harness.clock.advance(61_000)

    await asked(harness, again)
    await queueing.end(id_, Decision.COMMIT, checked=True)
    assert await queueing.ids() == ["1"]


async def test_messages_that_wait_for_a_producer_leave_memory_when_it_is_full(make_harness: MakeHarness) -> None:
    harness = await make_harness(msgspec.structs.replace(SETTINGS, active_max=8))
    queueing = Queueing(harness)
    ids = {await queueing.half(order(f"of this test alone {number}")) for number in range(4)}
    harness.destination.hold("http://busy/in")
    for number in range(9):
        await harness.submit(message(f"g{number}", "http://busy/in"))
    harness.clock.advance(1_100)
    await until(lambda: not ids & {one.message.gid for one in harness.coordinator._memory.messages()})

    def gone() -> bool:
        gc.collect()
        return not [one for one in gc.get_objects() if type(one) is ActiveMessage and one.message.gid in ids]

    await until(gone)
