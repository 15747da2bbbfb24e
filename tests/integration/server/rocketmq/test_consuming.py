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
from twophase.rocketmq_wire.codes import ClientType, Code, Filter
from twophase.rocketmq_wire.descriptors import kind


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
