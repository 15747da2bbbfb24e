"""Receives, receipts, long polls and leases over RocketMQ's protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.rocketmq_port import Serving
from tests.support.rocketmq_wire import (
    GROUP,
    PATIENCE_S,
    TOPIC,
    Wire,
    message,
    packed,
    resource,
    seconds,
)
from twophase.core.errors import Overloaded
from twophase.rocketmq_wire.codes import ClientType, Code, Filter
from twophase.rocketmq_wire.descriptors import kind
from twophase.server.identity.caller import UNLIMITED
from twophase.server.rocketmq.caller import Client


async def test_the_dead_letters_of_every_group_can_be_named(wire: Wire) -> None:
    assert await wire.code("QueryRoute", topic=resource("%DLQ%" + 127 * "g")) == Code.OK
    assert await wire.code("QueryRoute", topic=resource("%DLQ%" + 128 * "g")) == Code.ILLEGAL_TOPIC


async def test_a_group_that_is_not_made_is_not_found(server: Serving, wire: Wire) -> None:
    subscription = kind("Subscription")(group=resource(GROUP))
    settings = kind("Settings")(client_type=ClientType.SIMPLE_CONSUMER, subscription=subscription)
    stream = wire.telemetry()
    async with asyncio.timeout(PATIENCE_S):
        server.queues.makes = False
        await stream.write(packed("TelemetryCommand", settings=settings))
        assert (await stream.read()).status.code == Code.CONSUMER_GROUP_NOT_FOUND
        server.queues.makes = True
        await stream.write(packed("TelemetryCommand", settings=settings))
        answer = await stream.read()
    assert answer.settings.backoff_policy.max_attempts == 17
    assert answer.settings.subscription.receive_batch_size == 32


async def test_a_group_without_a_limit_has_the_largest_number_for_clients(server: Serving, wire: Wire) -> None:
    """They take 0 as no delivery at all, and give a message up when it fails first."""
    server.queues.attempts_max = 0
    subscription = kind("Subscription")(group=resource(GROUP))
    stream = wire.telemetry()
    async with asyncio.timeout(PATIENCE_S):
        await stream.write(
            packed(
                "TelemetryCommand",
                settings=kind("Settings")(client_type=ClientType.PUSH_CONSUMER, subscription=subscription),
            )
        )
        answer = await stream.read()
    assert answer.settings.backoff_policy.max_attempts == 2**31 - 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": resource("")}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": None}, Code.ILLEGAL_TOPIC),
        ({"batch_size": 0}, Code.BAD_REQUEST),
        ({"invisible_duration": seconds(9)}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": None}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"filter_expression": kind("FilterExpression")(type=Filter.SQL)}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({}, Code.MESSAGE_NOT_FOUND),
    ],
)
async def test_a_receive_that_brings_nothing_has_a_status_and_a_time(wire: Wire, fields: Any, code: Code) -> None:
    status, time = await wire.receive(**fields)
    assert status.status.code == code
    assert time.WhichOneof("content") == "delivery_timestamp"


class _Reader:
    """A call that notes the bytes that count in the budget."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.kept: list[int] = []
        self.sent = 0

    def keep(self, size: int) -> bool:
        self.kept.append(size)
        return size <= self.room

    async def send(self, _answer: bytes) -> None:
        self.sent += 1


async def _receive(server: Serving, call: Any) -> None:
    assert server.port is not None
    client = Client("me", b"JAVA", "", "", UNLIMITED, 0, "", server.port._sessions, server.port._peculiarities)
    queue = kind("MessageQueue")(topic=resource(TOPIC))
    asked = {"group": resource(GROUP), "message_queue": queue, "batch_size": 2, "invisible_duration": seconds(30)}
    await server.port._consuming.receive(client, packed("ReceiveMessageRequest", **asked), call)


async def test_messages_count_in_the_budget_until_each_has_left(server: Serving, wire: Wire) -> None:
    for number in "12":
        await wire.ask("SendMessage", messages=[message(number, bytes(100_000))])
    call = _Reader(1_000_000)

    await _receive(server, call)

    first, second, last = call.kept
    assert first > 200_000
    assert 100_000 < second < first
    assert (last, call.sent) == (0, 4)


async def test_messages_that_the_budget_has_no_room_for_are_given_back(server: Serving, wire: Wire) -> None:
    for number in "12":
        await wire.ask("SendMessage", messages=[message(number, bytes(100_000))])
    call = _Reader(150_000)

    with pytest.raises(Overloaded):
        await _receive(server, call)

    assert call.sent == 0
    found = [part.message.system_properties for part in await wire.receive() if part.message.body]
    assert [(one.message_id, one.delivery_attempt) for one in found] == [("1", 1), ("2", 1)]


async def test_receipts_that_are_stale_or_garbage(wire: Wire) -> None:
    await wire.ask("SendMessage", messages=[message()])
    status, delivery, _ = await wire.receive()
    assert status.status.code == Code.OK
    handle = delivery.message.system_properties.receipt_handle
    of = {"group": resource(GROUP), "topic": resource(TOPIC)}
    longer = await wire.ask("ChangeInvisibleDuration", receipt_handle=handle, invisible_duration=seconds(30), **of)
    assert longer.status.code == Code.OK
    assert longer.receipt_handle not in {"", handle}
    stale = await wire.ask("ChangeInvisibleDuration", receipt_handle=handle, invisible_duration=seconds(30), **of)
    assert (stale.status.code, stale.receipt_handle) == (Code.INVALID_RECEIPT_HANDLE, handle)
    entry = kind("AckMessageEntry")
    answer = await wire.ask(
        "AckMessage", entries=[entry(receipt_handle=handle), entry(receipt_handle="garbage", message_id="m")], **of
    )
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert [one.status.code for one in answer.entries] == [Code.OK, Code.INTERNAL_SERVER_ERROR]
    assert await wire.code("ForwardMessageToDeadLetterQueue", receipt_handle=handle, **of) == Code.OK
    garbage = {"receipt_handle": "garbage", **of}
    assert await wire.code("ForwardMessageToDeadLetterQueue", **garbage) == Code.INTERNAL_SERVER_ERROR
    assert await wire.code("AckMessage", entries=[entry(receipt_handle=longer.receipt_handle)], **of) == Code.OK


async def test_a_long_poll_ends_when_its_client_does(server: Serving, wire: Wire) -> None:
    polling = asyncio.ensure_future(wire.receive(long_polling_timeout=seconds(3600)))
    session = server.port and server.port._sessions
    assert session
    async with asyncio.timeout(PATIENCE_S):
        while not any(one._polls for one in session._known.values()):
            await asyncio.sleep(0.01)
        assert await wire.code("NotifyClientTermination") == Code.OK
        status, _ = await polling
    assert status.status.code == Code.MESSAGE_NOT_FOUND


async def test_long_polls_and_streams_end_when_the_server_does(server: Serving, wire: Wire) -> None:
    stream = await wire.settle()
    polling = asyncio.ensure_future(wire.receive(long_polling_timeout=seconds(3600)))
    assert server.port is not None
    async with asyncio.timeout(PATIENCE_S):
        while not any(one._polls for one in server.port._sessions._known.values()):
            await asyncio.sleep(0.01)
        await server.port.drain(PATIENCE_S)
        status, _ = await polling
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    assert status.status.code == Code.MESSAGE_NOT_FOUND
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_leases_of_a_stream_end_with_it(server: Serving, wire: Wire) -> None:
    await wire.ask("SendMessage", messages=[message()])
    other = Wire(server, **{"x-mq-client-id": "other"})
    await other.settle()
    assert len(await other.receive(auto_renew=True)) == 3
    assert len(await wire.receive()) == 2
    await other.close()
    status, delivery, _ = await wire.receive(long_polling_timeout=seconds(20))
    assert (status.status.code, delivery.message.system_properties.delivery_attempt) == (Code.OK, 2)
