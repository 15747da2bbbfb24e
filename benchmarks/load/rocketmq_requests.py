"""The requests of RocketMQ's clients, as bytes.

Those of a transaction are encoded once, with gaps for what is a message's own, so that they cost the generator little.
A message's number is its message id.
"""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Callable
from typing import Any, Final

from twophase.grpc_server.status import framed
from twophase.rocketmq_wire.codes import ClientType, DigestType, Encoding, Filter, MessageType, Resolution, Source
from twophase.rocketmq_wire.descriptors import kind

BODY: Final = b"." * 128
"""The body that the broker of the reference was measured with."""
BATCH: Final = 32
_ID: Final = "#" * 32
_MS: Final = 1_000_000


def message_id(number: int) -> bytes:
    """Return the message id of a number.

    >>> int(message_id(17))
    17
    """
    return b"%032d" % number


def half_of(topic: str, check_after_ms: int = 0) -> Callable[[int], bytes]:
    """Return the writer of a SendMessageRequest with a half message.

    Arguments:
        topic: where it goes.
        check_after_ms: the time to the question about it; 0 for the server's default.
    """
    system = kind("SystemProperties")(
        message_id=_ID,
        body_digest=kind("Digest")(type=DigestType.CRC32, checksum=f"{zlib.crc32(BODY):X}"),
        body_encoding=Encoding.IDENTITY,
        message_type=MessageType.TRANSACTION,
        born_timestamp=kind("google.protobuf.Timestamp")(seconds=int(time.time())),
        born_host="benchmark",
    )
    if check_after_ms:
        system.orphaned_transaction_recovery_duration.CopyFrom(_duration(check_after_ms))
    message = kind("Message")(topic=_resource(topic), system_properties=system, body=BODY)
    form = _form(kind("SendMessageRequest")(messages=[message]), _ID)
    return lambda number: form % message_id(number)


class Commit:
    """Writes the EndTransactionRequest that commits a message.

    Arguments:
        topic: where it goes.
        source: the client itself, or its answer to a question.
    """

    def __init__(self, topic: str, source: Source = Source.CLIENT) -> None:
        self._topic = topic
        self._source = source

    def __call__(self, number: int, transaction_id: str) -> bytes:
        """Return the request about one message."""
        return self._form(len(transaction_id)) % (message_id(number), transaction_id.encode())

    @functools.cached_property
    def _form(self) -> Callable[[int], bytes]:
        return functools.cache(self._of_length)

    def _of_length(self, length: int) -> bytes:
        gap = "@" * length
        request = kind("EndTransactionRequest")(
            topic=_resource(self._topic),
            message_id=_ID,
            transaction_id=gap,
            resolution=Resolution.COMMIT,
            source=self._source,
        )
        return _form(request, _ID, gap)


def producer_settings(topic: str) -> bytes:
    """Return the TelemetryCommand with which a producer begins its stream."""
    settings = kind("Settings")(client_type=ClientType.PRODUCER)
    settings.publishing.topics.append(_resource(topic))
    return _framed(kind("TelemetryCommand")(settings=settings))


def consumer_settings(group: str, topic: str) -> bytes:
    """Return the TelemetryCommand with which a push consumer begins its stream."""
    settings = kind("Settings")(client_type=ClientType.PUSH_CONSUMER)
    settings.subscription.group.CopyFrom(_resource(group))
    settings.subscription.subscriptions.append(
        kind("SubscriptionEntry")(topic=_resource(topic), expression=_everything())
    )
    return _framed(kind("TelemetryCommand")(settings=settings))


def route(topic: str) -> bytes:
    """Return a QueryRouteRequest."""
    return _framed(kind("QueryRouteRequest")(topic=_resource(topic)))


def assignment(group: str, topic: str) -> bytes:
    """Return a QueryAssignmentRequest."""
    return _framed(kind("QueryAssignmentRequest")(topic=_resource(topic), group=_resource(group)))


def heartbeat(group: str) -> bytes:
    """Return the HeartbeatRequest of a push consumer."""
    return _framed(kind("HeartbeatRequest")(group=_resource(group), client_type=ClientType.PUSH_CONSUMER))


def receive(group: str, topic: str, wait_ms: int) -> bytes:
    """Return the ReceiveMessageRequest of a push consumer."""
    return _framed(
        kind("ReceiveMessageRequest")(
            group=_resource(group),
            message_queue=kind("MessageQueue")(topic=_resource(topic)),
            filter_expression=_everything(),
            batch_size=BATCH,
            auto_renew=True,
            long_polling_timeout=_duration(wait_ms),
        )
    )


def acknowledgement(group: str, topic: str) -> Callable[[str, str], bytes]:
    """Return the writer of an AckMessageRequest.

    It takes a message id and a receipt handle.
    """
    request, entry = kind("AckMessageRequest"), kind("AckMessageEntry")
    ours, theirs = _resource(group), _resource(topic)

    def write(identity: str, handle: str) -> bytes:
        return _framed(request(group=ours, topic=theirs, entries=[entry(message_id=identity, receipt_handle=handle)]))

    return write


def _form(request: Any, *gaps: str) -> bytes:
    form = _framed(request).replace(b"%", b"%%")
    for gap in gaps:
        form = form.replace(gap.encode(), b"%b")
    return form


def _framed(request: Any) -> bytes:
    return framed(request.SerializeToString())


def _resource(name: str) -> Any:
    return kind("Resource")(name=name)


def _everything() -> Any:
    return kind("FilterExpression")(type=Filter.TAG, expression="*")


def _duration(ms: int) -> Any:
    return kind("google.protobuf.Duration")(seconds=ms // 1000, nanos=ms % 1000 * _MS)
