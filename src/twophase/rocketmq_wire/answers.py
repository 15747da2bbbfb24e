"""Answers to RocketMQ's clients: plain values to bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from twophase.rocketmq_wire.codes import DigestType
from twophase.rocketmq_wire.descriptors import kind
from twophase.rocketmq_wire.values import (
    ClientSettings,
    Delivery,
    Endpoints,
    Queue,
    Receipt,
    Resource,
    SendResult,
    ServerSettings,
    Status,
    WireMessage,
)

_STORE_HOST = "twophase"
_STATUSES_MAX = 64
"""Statuses that are kept as they are sent: nearly every answer has the same one."""


@lru_cache(_STATUSES_MAX)
def encode_status(answer: str, status: Status) -> bytes:
    """Return an answer that has only a status.

    `answer`: the name of its type.
    """
    return _bytes(kind(answer)(status=_status(status)))


def encode_route(status: Status, queues: Iterable[Queue]) -> bytes:
    """Return a QueryRouteResponse."""
    return _bytes(kind("QueryRouteResponse")(status=_status(status), message_queues=map(_queue, queues)))


def encode_assignment(status: Status, queues: Iterable[Queue]) -> bytes:
    """Return a QueryAssignmentResponse."""
    assignments = [kind("Assignment")(message_queue=_queue(queue)) for queue in queues]
    return _bytes(kind("QueryAssignmentResponse")(status=_status(status), assignments=assignments))


def encode_sent(status: Status, results: Iterable[SendResult]) -> bytes:
    """Return a SendMessageResponse with an entry for each message."""
    entry = kind("SendResultEntry")
    entries = [
        entry(
            status=_status(result.status),
            message_id=result.message_id,
            transaction_id=result.transaction_id,
            offset=result.offset,
            recall_handle=result.recall_handle,
        )
        for result in results
    ]
    return _bytes(kind("SendMessageResponse")(status=_status(status), entries=entries))


def encode_recalled(message_id: str) -> bytes:
    """Return a RecallMessageResponse of a message that was recalled."""
    return _bytes(kind("RecallMessageResponse")(status=_status(Status(20000)), message_id=message_id))


def encode_received_status(status: Status) -> bytes:
    """Return the ReceiveMessageResponse with the status, which begins the stream."""
    return _bytes(kind("ReceiveMessageResponse")(status=_status(status)))


def encode_delivery(message: WireMessage, delivery: Delivery) -> bytes:
    """Return the ReceiveMessageResponse with a message."""
    return _bytes(kind("ReceiveMessageResponse")(message=_delivered(message, delivery)))


def encode_delivered_at(now_ms: int) -> bytes:
    """Return the ReceiveMessageResponse with the time of delivery, the last one."""
    return _bytes(kind("ReceiveMessageResponse")(delivery_timestamp=_timestamp(now_ms)))


def encode_acknowledged(status: Status, entries: Iterable[tuple[Receipt, Status]]) -> bytes:
    """Return an AckMessageResponse with an entry for each receipt."""
    entry = kind("AckMessageResultEntry")
    answered = [
        entry(message_id=receipt.message_id, receipt_handle=receipt.handle, status=_status(one))
        for receipt, one in entries
    ]
    return _bytes(kind("AckMessageResponse")(status=_status(status), entries=answered))


def encode_extended(status: Status, handle: str) -> bytes:
    """Return a ChangeInvisibleDurationResponse with the receipt that is valid now."""
    return _bytes(kind("ChangeInvisibleDurationResponse")(status=_status(status), receipt_handle=handle))


def encode_settings(settings: ClientSettings, server: ServerSettings) -> bytes:
    """Return the TelemetryCommand that answers a client's settings.

    It has the client's own, with the server's part.
    """
    answer = kind("Settings").FromString(settings.raw)
    answer.metric.on = False
    answer.metric.ClearField("endpoints")
    policy = answer.backoff_policy
    policy.Clear()
    if settings.subscribes:
        policy.max_attempts = server.consume_attempts
        policy.customized_backoff.next.extend(map(_duration, server.redelivery_ms))
        subscription = answer.subscription
        subscription.fifo = server.fifo
        subscription.receive_batch_size = server.batch
        subscription.long_polling_timeout.CopyFrom(_duration(server.wait_ms))
    else:
        policy.max_attempts = server.send_attempts
        backoff = policy.exponential_backoff
        backoff.initial.CopyFrom(_duration(server.backoff_first_ms))
        backoff.max.CopyFrom(_duration(server.backoff_cap_ms))
        backoff.multiplier = 2
        answer.publishing.max_body_size = server.body_bytes_max
        answer.publishing.validate_message_type = True
    return _bytes(kind("TelemetryCommand")(status=_status(Status(20000)), settings=answer))


def encode_telemetry_status(status: Status) -> bytes:
    """Return the TelemetryCommand that refuses a client's."""
    return _bytes(kind("TelemetryCommand")(status=_status(status)))


def encode_question(message: WireMessage, delivery: Delivery, transaction_id: str) -> bytes:
    """Return the TelemetryCommand that asks a producer what became of a half message."""
    command = kind("RecoverOrphanedTransactionCommand")(
        message=_delivered(message, delivery), transaction_id=transaction_id
    )
    return _bytes(kind("TelemetryCommand")(recover_orphaned_transaction_command=command))


def _bytes(message: Any) -> bytes:
    raw: bytes = message.SerializeToString()
    return raw


@lru_cache(_STATUSES_MAX)
def _status(status: Status) -> Any:
    return kind("Status")(code=status.code, message=status.message)


def _resource(resource: Resource) -> Any:
    return kind("Resource")(name=resource.name, resource_namespace=resource.namespace)


def _endpoints(endpoints: Endpoints) -> Any:
    addresses = [kind("Address")(host=host, port=port) for host, port in endpoints.addresses]
    return kind("Endpoints")(scheme=endpoints.scheme, addresses=addresses)


def _queue(queue: Queue) -> Any:
    return kind("MessageQueue")(
        topic=_resource(queue.topic),
        id=queue.number,
        permission=queue.permission,
        broker=kind("Broker")(name=queue.broker, id=0, endpoints=_endpoints(queue.endpoints)),
        accept_message_types=queue.kinds,
    )


def _delivered(message: WireMessage, delivery: Delivery) -> Any:
    # The digest is of the body as it travels. Node's client takes no message without one.
    checksum = hashlib.md5(message.body, usedforsecurity=False).hexdigest().upper()
    system = kind("SystemProperties")(
        tag=message.tag or None,
        keys=message.keys,
        message_id=message.message_id,
        body_digest=kind("Digest")(type=DigestType.MD5, checksum=checksum),
        body_encoding=message.encoding,
        message_type=message.kind,
        born_timestamp=_timestamp(message.born_ms),
        born_host=message.born_host,
        store_timestamp=_timestamp(delivery.stored_ms),
        store_host=_STORE_HOST,
        receipt_handle=delivery.handle or None,
        queue_id=delivery.queue,
        queue_offset=delivery.offset,
        delivery_attempt=delivery.attempt,
        message_group=message.message_group or None,
        trace_context=message.trace_context or None,
    )
    if delivery.invisible_ms:
        system.invisible_duration.CopyFrom(_duration(delivery.invisible_ms))
    if message.deliver_at_ms:
        system.delivery_timestamp.CopyFrom(_timestamp(message.deliver_at_ms))
    return kind("Message")(
        topic=_resource(message.topic),
        user_properties=dict(message.properties),
        system_properties=system,
        body=message.body,
    )


def _timestamp(ms: int) -> Any:
    return kind("google.protobuf.Timestamp")(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def _duration(ms: int) -> Any:
    return kind("google.protobuf.Duration")(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
