"""Sends, half messages and decisions over RocketMQ's protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.rocketmq_port import Serving
from tests.support.rocketmq_wire import (
    HALF,
    METHODS,
    STREAMS,
    TOPIC,
    Wire,
    message,
    packed,
    resource,
    seconds,
)
from twophase.rocketmq_wire.codes import Code, DigestType, Resolution, Source
from twophase.rocketmq_wire.descriptors import SERVICE, kind


def test_every_method_that_is_served_is_in_the_table(server: Serving) -> None:
    assert server.port is not None
    services = server.port._listener._services
    assert services is not None
    assert set(services._methods) == {f"/{SERVICE}/{method}" for method in METHODS}


WRONG: dict[str, tuple[Code, Callable[[], list[Any]]]] = {
    "none": (Code.MESSAGE_CORRUPTED, list),
    "no id": (Code.ILLEGAL_MESSAGE_ID, lambda: [message("")]),
    "no body": (Code.MESSAGE_BODY_EMPTY, lambda: [message(body=b"")]),
    "a long body": (Code.MESSAGE_BODY_TOO_LARGE, lambda: [message(body=b"x" * (4 * 1024 * 1024 + 1))]),
    "no topic": (Code.ILLEGAL_TOPIC, lambda: [message(topic="")]),
    "a topic with a blank": (Code.ILLEGAL_TOPIC, lambda: [message(topic="my orders")]),
    "two transactional": (Code.INTERNAL_SERVER_ERROR, lambda: [message("1", **HALF), message("2", **HALF)]),
    "a type that is not its": (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, lambda: [message(message_group="g")]),
    "an unknown type": (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, lambda: [message(message_type=5)]),
    "a half that is ordered": (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, lambda: [message(message_group="g", **HALF)]),
    "a tag of two": (Code.ILLEGAL_MESSAGE_TAG, lambda: [message(tag="a|b")]),
    "a blank key": (Code.ILLEGAL_MESSAGE_KEY, lambda: [message(keys=[" "])]),
    "a blank group": (Code.ILLEGAL_MESSAGE_GROUP, lambda: [message(message_type=2, message_group=" ")]),
    "a long group": (Code.ILLEGAL_MESSAGE_GROUP, lambda: [message(message_type=2, message_group="g" * 65)]),
    "a blank property": (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, lambda: [message(properties={" ": "x"})]),
    "many properties": (
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        lambda: [message(properties={str(number): "x" for number in range(129)})],
    ),
    "long properties": (Code.MESSAGE_PROPERTIES_TOO_LARGE, lambda: [message(properties={"a": "x" * 16384})]),
    "a digest that is not the body's": (
        Code.MESSAGE_CORRUPTED,
        lambda: [message(body_digest=kind("Digest")(type=2, checksum="00"))],
    ),
    "an unknown encoding": (Code.MESSAGE_CORRUPTED, lambda: [message(body_encoding=9)]),
    "a time far away": (
        Code.ILLEGAL_DELIVERY_TIME,
        lambda: [message(message_type=3, delivery_timestamp=kind("google.protobuf.Timestamp")(seconds=1 << 40))],
    ),
    "a long wait for the check": (
        Code.BAD_REQUEST,
        lambda: [message(orphaned_transaction_recovery_duration=seconds(3601), **HALF)],
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_message_that_cannot_be_one_is_refused_by_its_code(server: Serving, wire: Wire, wrong: str) -> None:
    code, messages = WRONG[wrong]
    assert await wire.code("SendMessage", messages=messages()) == code
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK
    assert server.queues.places(TOPIC) == ["{}"]


@pytest.mark.parametrize("checksum", ["001685F0", "1685f0"])
async def test_a_crc_that_begins_with_zeros_is_the_bodys_with_and_without_them(
    server: Serving, wire: Wire, checksum: str
) -> None:
    digest = kind("Digest")(type=DigestType.CRC32, checksum=checksum)
    assert await wire.code("SendMessage", messages=[message(body=b"x31", body_digest=digest)]) == Code.OK
    assert server.queues.places(TOPIC) == ["x31"]


@pytest.mark.parametrize("method", sorted(set(METHODS) - STREAMS))
async def test_bytes_that_are_no_message_are_refused_and_the_connection_lives(wire: Wire, method: str) -> None:
    answer = await wire.raw(method, b"\xff\xff\xff")
    assert answer.status.code == Code.BAD_REQUEST
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK


async def test_a_type_that_the_topic_does_not_take_is_refused(server: Serving, wire: Wire) -> None:
    server.queues.kinds[TOPIC] = frozenset({"transaction"})
    assert await wire.code("SendMessage", messages=[message()]) == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert await wire.code("SendMessage", messages=[message(**HALF)]) == Code.OK


async def test_one_of_several_messages_is_refused_alone(server: Serving, wire: Wire) -> None:
    answer = await wire.ask("SendMessage", messages=[message("1"), message("2", body=b""), message("3")])
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in answer.entries] == [Code.OK, Code.MESSAGE_BODY_EMPTY, Code.OK]
    assert [entry.message_id for entry in answer.entries] == ["1", "2", "3"]
    assert len(server.queues.places(TOPIC)) == 2


async def test_too_many_messages_in_one_call_are_refused_before_they_are_read(server: Serving, wire: Wire) -> None:
    for many in (257, 500_000):
        assert (await wire.raw("SendMessage", b"\x0a\x00" * many)).status.code == Code.BAD_REQUEST
    keys = packed("SendMessageRequest", messages=[message(keys=["k"] * 20_000)])
    assert (await wire.raw("SendMessage", keys)).status.code == Code.BAD_REQUEST
    assert server.queues.places(TOPIC) == []


async def test_a_half_message_that_is_sent_again_is_the_same_one(server: Serving, wire: Wire) -> None:
    first, again = [await wire.ask("SendMessage", messages=[message(**HALF)]) for _ in range(2)]
    assert first.entries[0].transaction_id == again.entries[0].transaction_id
    ending = {"topic": resource(TOPIC), "transaction_id": first.entries[0].transaction_id}
    assert await wire.code("EndTransaction", resolution=Resolution.COMMIT, **ending) == Code.OK
    assert server.queues.places(TOPIC) == ["{}"]


async def test_a_decision_about_no_message_is_refused(wire: Wire) -> None:
    ending = {"topic": resource(TOPIC), "resolution": Resolution.COMMIT}
    assert await wire.code("EndTransaction", transaction_id="queue-none", **ending) == Code.INVALID_TRANSACTION_ID
    assert await wire.code("EndTransaction", **ending) == Code.INVALID_TRANSACTION_ID
    ending["resolution"] = 9
    assert await wire.code("EndTransaction", transaction_id="queue-none", **ending) == Code.BAD_REQUEST


async def test_a_client_that_does_not_know_changes_nothing(server: Serving, wire: Wire) -> None:
    sent = await wire.ask("SendMessage", messages=[message(**HALF)])
    ending = {"topic": resource(TOPIC), "transaction_id": sent.entries[0].transaction_id}
    for source in Source:
        assert await wire.code("EndTransaction", source=source, **ending) == Code.OK
    assert [half.asked for half in server.queues.halves.values()] == [1]
    assert await wire.code("EndTransaction", resolution=Resolution.COMMIT, **ending) == Code.OK
