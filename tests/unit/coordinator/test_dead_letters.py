"""Dead letters: shown, and sent to their group again, as they are or edited."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from tests.unit.coordinator.harness import Harness
from tests.unit.coordinator.queueing import GROUP, TOPIC, Queueing, order
from twophase.coordinator.operator import Act
from twophase.coordinator.queues.cursor import Dead
from twophase.coordinator.queues.letters import Edit
from twophase.coordinator.queues.repeats import gids_of_letter
from twophase.coordinator.queues.serving import Serving
from twophase.core.audit_log import Actor, AuditSearch
from twophase.core.errors import InvalidRequest, StoreUnavailable
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message
from twophase.core.queue_message import QueueMessage
from twophase.core.queue_operating import DefineTopic, RedriveLetters, RemoveRequest, ResetRequest

ACT = Act("eve", "the currency was wrong", actor=Actor("desk", "::1"))
AS_IT_IS = Edit()
LETTERS = f"%DLQ%{GROUP}"


@pytest.fixture
def queueing(harness: Harness) -> Queueing:
    return Queueing(harness)


async def bury(queueing: Queueing, *ids: str, **fields: Any) -> None:
    """Send messages, and give them up."""
    await queueing.send(*(order(id_, **fields) for id_ in ids))
    for one in await queueing.receive(len(ids)):
        await queueing.queues.dead_letter("", GROUP, TOPIC, one.handle)


async def redrive(queueing: Queueing, numbers: list[int], edit: Edit = AS_IT_IS, **more: Any) -> list[tuple[str, str]]:
    """Return (result, why) of each letter."""
    asked = RedriveLetters(numbers=numbers, **more)
    found = await queueing.harness.coordinator.queue_operator.redrive(
        GROUP, asked, edit, ACT, lambda topic: topic != "forbidden"
    )
    return [(one.result, one.why) for one in found.letters]


async def give_up(queueing: Queueing, topic: str = TOPIC, reason: str = "") -> None:
    """Give up everything that the group has not done of a topic."""
    for one in await queueing.receive(topic=topic):
        await queueing.queues.dead_letter("", GROUP, topic, one.handle, reason)


def first_gid(gid: str, message_id: str, number: int = 0) -> str:
    """Return the usual gid of the letter of an entry."""
    letter = QueueMessage(f"%DLQ%{GROUP}", "", message_id, b"")
    return next(gids_of_letter(letter, gid, TOPIC, 0, number))


async def page(queueing: Queueing, position: int = 0, limit: int = 10, *, with_bodies: bool = False) -> Any:
    operator = queueing.harness.coordinator.queue_operator
    return await operator.letters(GROUP, position, limit, lambda _: True, "", with_bodies=with_bodies)


async def test_letters_are_shown_in_pages(harness: Harness, queueing: Queueing) -> None:
    await bury(queueing, "1", "2", "3", tag="paid", keys=("7",), properties=(("shop", "7"),))

    first = await page(queueing, 0, 2)
    (third,) = (await page(queueing, first.position, 2, with_bodies=True)).letters

    assert ([one.message_id for one in first.letters], first.position) == (["1", "2"], 2)
    assert (third.number, third.topic, third.message_id, third.stored_ms) == (2, TOPIC, "3", harness.clock.now_ms())
    assert (third.tag, third.keys, third.properties, third.redriven) == ("paid", ["7"], {"shop": "7"}, False)
    assert (third.body, third.body_bytes, first.letters[0].body) == ("body of 3", 9, "")


async def test_a_redriven_letter_goes_to_its_group_alone_and_once(queueing: Queueing) -> None:
    await bury(queueing, "1")
    assert await queueing.ids(group="shipping") == ["1"]
    assert await redrive(queueing, [0], dry_run=True) == [("would be sent", "")]
    assert await queueing.ids() == []

    assert await redrive(queueing, [0, 5]) == [("sent", ""), ("refused", "there is no such letter")]
    assert await redrive(queueing, [0]) == [("sent before", "")]

    (again,) = await queueing.receive()
    assert (again.message.message_id, again.message.body, again.attempt) == ("1", b"body of 1", 1)
    assert again.message.properties == ()
    assert await queueing.ids(group="shipping") == []
    (letter,) = (await page(queueing)).letters
    assert letter.redriven


async def test_many_large_letters_are_not_in_memory_together(queueing: Queueing) -> None:
    numbers = list[int]()
    for id_ in range(12):
        await queueing.send(msgspec.structs.replace(order(str(id_)), body=bytes(1_000_000)))
        await give_up(queueing)
        numbers += [one.number for one in (await page(queueing, numbers[-1] + 1 if numbers else 0)).letters]
    tracemalloc.start()
    try:
        results = await redrive(queueing, numbers, dry_run=True)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [result for result, _ in results] == ["would be sent"] * 12
    assert most < 6_000_000


async def test_a_letter_that_fails_again_is_a_letter_again(queueing: Queueing) -> None:
    await bury(queueing, "1")
    await redrive(queueing, [0])
    (again,) = await queueing.receive()

    await queueing.queues.dead_letter("", GROUP, TOPIC, again.handle)

    assert [one.message_id for one in (await page(queueing)).letters] == ["1", "1"]
    assert await redrive(queueing, [1]) == [("sent", "")]


@pytest.mark.parametrize("is_removed", [False, True])
async def test_what_is_given_up_again_after_a_reset_is_a_letter_that_can_be_sent_again(
    queueing: Queueing, *, is_removed: bool
) -> None:
    operator = queueing.harness.coordinator.queue_operator
    await bury(queueing, "1")
    for turn in range(2):
        if is_removed:
            await operator.remove_topic(LETTERS, RemoveRequest(override=True), ACT)
        else:
            await redrive(queueing, [turn])
        await operator.reset(GROUP, ResetRequest(topic=TOPIC, to="earliest"), ACT)

        (again,) = await queueing.receive(1)
        await queueing.queues.dead_letter("", GROUP, TOPIC, again.handle)

    letters = (await page(queueing)).letters
    assert [one.message_id for one in letters if not one.redriven] == ["1"]
    assert await redrive(queueing, [letters[-1].number]) == [("sent", "")]


async def test_what_is_given_up_again_after_a_reset_is_the_letter_that_waits(queueing: Queueing) -> None:
    await bury(queueing, "1")
    asked = ResetRequest(topic=TOPIC, to="earliest")
    await queueing.harness.coordinator.queue_operator.reset(GROUP, asked, ACT)

    await give_up(queueing)

    assert [one.message_id for one in (await page(queueing)).letters] == ["1"]


@pytest.mark.parametrize(
    "steps",
    [
        ("queue://orders", "queue://orders"),
        ("queue://orders?id=17", "queue://bills?id=17"),
        ("queue://orders", "queue://bills"),
        ("queue://orders?id=1", "queue://orders?id=2"),
    ],
)
async def test_each_entry_of_one_message_is_a_letter_of_its_own(
    harness: Harness, queueing: Queueing, steps: tuple[str, str]
) -> None:
    await harness.submit(Message("two", tuple(Branch(url, str(index).encode()) for index, url in enumerate(steps))))

    for topic in sorted({step[8:].partition("?")[0] for step in steps}):
        await give_up(queueing, topic)

    letters = (await page(queueing, with_bodies=True)).letters
    assert sorted(one.body for one in letters) == ["0", "1"]
    assert await queueing.receive(topic=TOPIC) == await queueing.receive(topic="bills") == []


async def test_equal_entries_of_one_message_are_two_letters(harness: Harness, queueing: Queueing) -> None:
    await harness.submit(Message("two", (Branch("queue://orders", b"the same"), Branch("queue://orders", b"the same"))))

    await give_up(queueing)

    assert [one.body for one in (await page(queueing, with_bodies=True)).letters] == ["the same", "the same"]
    assert await queueing.receive() == []


async def test_entries_that_one_message_sent_to_the_letters_are_redriven_each(
    harness: Harness, queueing: Queueing
) -> None:
    letters = f"queue://%25DLQ%25{GROUP}"
    await harness.submit(Message("two", (Branch(letters, b"0"), Branch(letters, b"1"))))

    assert await redrive(queueing, [0, 1], Edit(topic=TOPIC)) == [("sent", ""), ("sent", "")]
    assert await redrive(queueing, [0, 1], Edit(topic=TOPIC)) == [("sent before", "")] * 2

    assert sorted(one.message.body for one in await queueing.receive()) == [b"0", b"1"]


@pytest.mark.parametrize("state", [State.PREPARED, State.FAILED, State.SUBMITTED, State.SUCCEEDED])
async def test_a_gid_that_names_another_message_costs_no_letter(
    harness: Harness, queueing: Queueing, state: State
) -> None:
    (sent,) = await queueing.send(order("1"))
    squatter = Message(first_gid(sent.transaction_id, "1"), (Branch("http://b/in", b"x"),), "http://b/check")
    if state is State.SUCCEEDED:
        squatter = msgspec.structs.replace(squatter, branches=(Branch("", b"x"),), check_url="")
    await (harness.prepare if state in {State.PREPARED, State.FAILED} else harness.submit)(squatter)
    if state is State.FAILED:
        await harness.abort(squatter.gid)

    await give_up(queueing)
    await give_up(queueing)

    (letter,) = (await page(queueing, with_bodies=True)).letters
    assert (letter.body, letter.gid == squatter.gid) == ("body of 1", False)
    assert await queueing.receive() == []


@pytest.mark.parametrize("is_taken", [False, True])
async def test_a_burial_that_was_not_marked_makes_no_second_letter(
    harness: Harness, queueing: Queueing, *, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sent,) = await queueing.send(order("1"))
    if is_taken:
        await harness.submit(Message(first_gid(sent.transaction_id, "1"), (Branch("", b"x"),)))

    async def lost(_self: Serving, _dead: Dead) -> None:
        raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(Serving, "buried", lost)
        with pytest.raises(StoreUnavailable):
            await give_up(queueing, reason="the first reason")
    await harness.restart()
    await give_up(queueing, reason="another one")

    (letter,) = (await page(queueing)).letters
    assert letter.properties == {"DLQ_REASON": "the first reason"}
    assert await queueing.receive() == []


async def test_a_redriven_letter_that_fails_again_is_shown_to_every_group(queueing: Queueing) -> None:
    await bury(queueing, "1")
    assert len(await queueing.receive(group="desk", topic=LETTERS)) == 1
    await redrive(queueing, [0])
    (again,) = await queueing.receive()

    await queueing.queues.dead_letter("", GROUP, TOPIC, again.handle)

    assert [one.message.message_id for one in await queueing.receive(group="desk", topic=LETTERS)] == ["1"]
    assert [one.message.message_id for one in await queueing.receive(group="ops", topic=LETTERS)] == ["1", "1"]


async def test_the_reason_of_a_letter_is_that_of_its_last_failure(queueing: Queueing) -> None:
    await queueing.send(order("1"))
    (first,) = await queueing.receive()
    await queueing.queues.dead_letter("", GROUP, TOPIC, first.handle, "no article")
    await redrive(queueing, [0])
    (again,) = await queueing.receive()

    await queueing.queues.dead_letter("", GROUP, TOPIC, again.handle)

    assert [one.properties for one in (await page(queueing)).letters] == [{"DLQ_REASON": "no article"}, {}]


async def test_a_letter_that_its_own_group_reads_and_gives_up_keeps_its_origin(queueing: Queueing) -> None:
    await bury(queueing, "1")
    (letter,) = await queueing.receive(topic=LETTERS)

    await queueing.queues.dead_letter("", GROUP, LETTERS, letter.handle, "no article")

    letters = (await page(queueing)).letters
    assert [(one.topic, one.message_id, one.properties.get("DLQ_REASON")) for one in letters] == [
        (TOPIC, "1", None),
        (TOPIC, "1", "no article"),
    ]
    assert await redrive(queueing, [1]) == [("sent", "")]
    assert await queueing.ids() == ["1"]


async def test_dead_letters_are_in_one_queue(queueing: Queueing) -> None:
    operator = queueing.harness.coordinator.queue_operator
    for name in (LETTERS, f"shop/{LETTERS}"):
        with pytest.raises(InvalidRequest, match="dead letters"):
            await operator.define_topic(name, DefineTopic(queues=2), ACT)
        assert (await operator.define_topic(name, DefineTopic(queues=1), ACT)).after
    assert (await operator.define_topic(f"not{LETTERS}", DefineTopic(queues=2), ACT)).after


async def test_the_group_with_the_longest_name_has_dead_letters(queueing: Queueing) -> None:
    group = "g" * 255
    await queueing.send(order("1"))
    (one,) = await queueing.receive(group=group)

    await queueing.queues.dead_letter("", group, TOPIC, one.handle)

    assert await queueing.ids(topic=f"%DLQ%{group}") == ["1"]


async def test_letters_that_an_earlier_version_has_put_into_several_queues_are_listed_and_redriven(
    harness: Harness, queueing: Queueing
) -> None:
    counts = harness.coordinator.queues.definitions._counts
    counts[LETTERS] = 4, 4
    ids = [f"{number}" for number in range(12)]
    await bury(queueing, *ids)
    del counts[LETTERS]

    position, numbers, shown = 0, list[int](), list[str]()
    while not shown or position:
        letters = await page(queueing, position, 3)
        numbers += [one.number for one in letters.letters]
        shown += [one.message_id for one in letters.letters]
        position = letters.position

    assert sorted(shown) == sorted(ids)
    assert len(set(numbers)) == 12
    assert len({number >> 40 for number in numbers}) > 1
    assert await redrive(queueing, numbers) == [("sent", "")] * 12
    assert await redrive(queueing, [2**61]) == [("refused", "there is no such letter")]
    assert sorted(await queueing.ids(100)) == sorted(ids)


async def test_an_edit_changes_body_tag_and_properties_and_is_recorded_without_the_bodies(
    harness: Harness, queueing: Queueing
) -> None:
    properties = (("currency", "DM"), ("shop", "7"), ("debug", "1"))
    await bury(queueing, "1", tag="paid", encoding="gzip", properties=properties)
    edit = Edit("", b"in euro", "fixed", {"currency": "EUR"}, frozenset({"debug"}))

    assert await redrive(queueing, [0], edit) == [("sent", "")]

    (again,) = await queueing.receive()
    message: QueueMessage = again.message
    assert (message.body, message.tag, message.encoding) == (b"in euro", "fixed", "identity")
    assert dict(message.properties) == {"shop": "7", "currency": "EUR"}
    (row,) = (await harness.store.audit_search(AuditSearch(act="redrive-letter"), 0, 10)).rows
    assert (row.who, row.act, row.after) == ("desk", "redrive-letter", "succeeded")
    assert row.reason.startswith("eve: the currency was wrong; letter 0 of billing goes to orders as queue-")
    assert "body 9 bytes, " in row.reason
    assert "tag 'paid' replaced by 'fixed'" in row.reason
    assert "properties changed: currency, debug" in row.reason
    assert "in euro" not in row.reason


async def test_a_message_that_was_sent_to_the_letters_directly_needs_a_topic(queueing: Queueing) -> None:
    await queueing.send(QueueMessage(f"%DLQ%{GROUP}", "", "1", b"{}"))
    assert await redrive(queueing, [0]) == [("refused", "it has no property DLQ_ORIGIN_TOPIC: name the topic")]

    (refused,) = await redrive(queueing, [0], Edit(topic="forbidden"))
    assert refused == ("refused", "the token's messages may not go to this topic")
    assert await redrive(queueing, [0], Edit(topic="bills")) == [("sent", "")]
    assert await queueing.ids(topic="bills") == ["1"]


@pytest.mark.parametrize(
    ("numbers", "edit"),
    [
        ([], AS_IT_IS),
        (list(range(101)), AS_IT_IS),
        ([2**62], AS_IT_IS),
        ([0, 1], Edit(body=b"")),
        ([0], Edit(topic="my orders")),
        ([0], Edit(set_properties={str(number): "x" for number in range(129)})),
        ([0], Edit(tag="x" * 20_000)),
    ],
)
async def test_a_redrive_that_cannot_be_is_refused(queueing: Queueing, numbers: list[int], edit: Edit) -> None:
    with pytest.raises(InvalidRequest):
        await redrive(queueing, numbers, edit)
