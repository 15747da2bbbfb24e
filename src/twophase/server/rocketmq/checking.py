"""The check of names and messages, and the engine's form of a message."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from twophase.coordinator.queues import Delivered, Question
from twophase.core.limits import BODY_BYTES_MAX, DELAY_MS_MAX
from twophase.core.queue_api import CHECK_AFTER_MS_MAX
from twophase.core.queue_message import DEAD_LETTERS, QueueMessage
from twophase.rocketmq_wire.codes import Code, DigestType, Encoding, MessageType
from twophase.rocketmq_wire.values import Delivery, Digest, Resource, WireMessage
from twophase.server.rocketmq.refusals import Refused

BODY_MAX: Final = BODY_BYTES_MAX.value
PROPERTIES_MAX: Final = 128
PROPERTY_BYTES_MAX: Final = 16 * 1024
GROUP_BYTES_MAX: Final = 64
_TOPICS_MAX: Final = 1024
"""Topics whose names are not looked at again."""
_UTF8_BYTES_MAX: Final = 4
"""Bytes of one character."""
_TOPIC: Final = re.compile(rf"(?:{DEAD_LETTERS})?[%|a-zA-Z0-9_-]{{1,127}}")
"""The dead letters of every group have a name, too."""
_GROUP: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_NAMESPACE: Final = re.compile(r"[%|a-zA-Z0-9_-]{0,127}")
_ID: Final = re.compile(r"[\x21-\x7e]{1,255}")
_CONTROL: Final = re.compile(r"[\x00-\x02]")
_BORN_MS_MAX: Final = 253_402_300_799_999
"""The last moment that protobuf's Timestamp can name."""
_KINDS: Final[dict[int, str]] = {
    MessageType.NORMAL: "normal",
    MessageType.FIFO: "fifo",
    MessageType.DELAY: "delay",
    MessageType.TRANSACTION: "transaction",
}
TYPES: Final = {kind: number for number, kind in _KINDS.items()}
_ENCODINGS: Final[dict[int, str]] = {
    Encoding.UNSPECIFIED: "identity",
    Encoding.IDENTITY: "identity",
    Encoding.GZIP: "gzip",
}
_DIGESTS: Final[dict[int, Callable[[bytes], str]]] = {
    DigestType.CRC32: lambda body: f"{zlib.crc32(body):X}",
    DigestType.MD5: lambda body: hashlib.md5(body, usedforsecurity=False).hexdigest(),
    DigestType.SHA1: lambda body: hashlib.sha1(body, usedforsecurity=False).hexdigest(),
}


@lru_cache(_TOPICS_MAX)
def topic_in(resource: Resource) -> Resource:
    """Return a topic whose name is one; raises Refused."""
    return _named(resource, _TOPIC, Code.ILLEGAL_TOPIC, "topic")


def group_in(resource: Resource) -> Resource:
    """Return a group of consumers whose name is one; raises Refused."""
    return _named(resource, _GROUP, Code.ILLEGAL_CONSUMER_GROUP, "group")


def _named(resource: Resource, form: re.Pattern[str], code: Code, what: str) -> Resource:
    if not form.fullmatch(resource.name) or not _NAMESPACE.fullmatch(resource.namespace):
        shown = f"{resource.namespace[:64]}/{resource.name[:64]}" if resource.namespace else resource.name[:64]
        raise Refused(code, f"{what}: {shown!r} is not 1 to 127 letters, digits, %, |, _ and -.")
    return resource


def message_in(message: WireMessage, now_ms: int) -> QueueMessage:
    """Return what the engine keeps of a message.

    Raises:
        Refused: it cannot be one, by the rules of RocketMQ's interface.
    """
    topic = topic_in(message.topic)
    if not _ID.fullmatch(message.message_id):
        raise Refused(Code.ILLEGAL_MESSAGE_ID, "message_id: 1 to 255 printable characters are needed.")
    _require_body(message)
    _require_properties(message)
    kind, deliver_at_ms = _kind_of(message, now_ms)
    return QueueMessage(
        topic.name,
        topic.namespace,
        message.message_id,
        message.body,
        kind,
        message.tag or "",
        message.keys,
        message.properties,
        message.message_group or "",
        deliver_at_ms,
        min(max(message.born_ms, 0), _BORN_MS_MAX),
        message.born_host,
        _ENCODINGS[message.encoding],
        message.trace_context,
    )


def _require_body(message: WireMessage) -> None:
    if not message.body:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "body: it is empty.")
    if len(message.body) > BODY_MAX:
        raise Refused(
            Code.MESSAGE_BODY_TOO_LARGE, f"body: it has {len(message.body)} bytes, at most {BODY_MAX} are allowed."
        )
    if message.encoding not in _ENCODINGS:
        raise Refused(Code.MESSAGE_CORRUPTED, f"body_encoding: {message.encoding} is neither IDENTITY nor GZIP.")
    if message.digest is not None and not _matches(message.digest, message.body):
        raise Refused(Code.MESSAGE_CORRUPTED, "body_digest: it is not the body's.")


def _matches(digest: Digest, body: bytes) -> bool:
    """Return True for the body's digest.

    Some clients write a CRC32 with zeros before it.
    """
    made, checksum = _DIGESTS.get(digest.kind), digest.checksum.lower()
    if digest.kind == DigestType.CRC32:
        checksum = checksum.lstrip("0") or "0"
    return made is not None and made(body).lower() == checksum


def _require_properties(message: WireMessage) -> None:
    tag, group = message.tag, message.message_group
    if tag is not None and (not tag.strip() or "|" in tag or _CONTROL.search(tag)):
        raise Refused(Code.ILLEGAL_MESSAGE_TAG, "tag: it is blank, or has | or control characters.")
    if group is not None and (not group.strip() or len(group.encode()) > GROUP_BYTES_MAX or _CONTROL.search(group)):
        raise Refused(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"message_group: it is blank, has control characters or more than {GROUP_BYTES_MAX} bytes.",
        )
    for key in message.keys:
        if not key.strip() or _CONTROL.search(key):
            raise Refused(Code.ILLEGAL_MESSAGE_KEY, "keys: one is blank or has control characters.")
    for name, value in message.properties:
        if not name.strip() or _CONTROL.search(name) or _CONTROL.search(value):
            raise Refused(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "user_properties: a name is blank, or one has control characters."
            )
    if len(message.properties) > PROPERTIES_MAX:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE, f"user_properties: there are more than {PROPERTIES_MAX} of them."
        )
    texts = [tag or "", *message.keys, message.born_host, message.trace_context]
    texts += [text for pair in message.properties for text in pair]
    is_long = sum(map(len, texts)) > PROPERTY_BYTES_MAX // _UTF8_BYTES_MAX
    if is_long and sum(len(text.encode()) for text in texts) > PROPERTY_BYTES_MAX:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties: with tag, keys and trace they have more than {PROPERTY_BYTES_MAX} bytes.",
        )


def _kind_of(message: WireMessage, now_ms: int) -> tuple[str, int]:
    """Return the kind of a message, and when it is delivered: 0 for at once."""
    group, at_ms = message.message_group, message.deliver_at_ms
    implied = MessageType.FIFO if group else MessageType.DELAY if at_ms is not None else MessageType.NORMAL
    number = message.kind or implied
    kind = _KINDS.get(number)
    is_fitting = number == implied or (number == MessageType.TRANSACTION and implied is MessageType.NORMAL)
    if kind is None or not is_fitting or (group and at_ms is not None):
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "message_type: NORMAL and TRANSACTION have neither message_group nor delivery_timestamp, FIFO has the"
            " former alone, DELAY the latter; other types are not served.",
        )
    if at_ms is not None and at_ms > now_ms + DELAY_MS_MAX.value:
        raise Refused(
            Code.ILLEGAL_DELIVERY_TIME, f"delivery_timestamp: it is more than {DELAY_MS_MAX.value} ms from now."
        )
    return kind, max(at_ms or 0, 0)


def check_after_ms(message: WireMessage) -> int | None:
    """Return the time to the first question about a half message.

    None for the server's default.

    Raises:
        Refused: it is longer than an hour, or none at all.
    """
    after_ms = message.check_after_ms
    if after_ms is not None and not 0 < after_ms <= CHECK_AFTER_MS_MAX:
        raise Refused(
            Code.BAD_REQUEST,
            f"orphaned_transaction_recovery_duration: it is not between 1 and {CHECK_AFTER_MS_MAX} ms.",
        )
    return after_ms


def delivered(one: Delivered) -> tuple[WireMessage, Delivery]:
    """Return a message as a consumer receives it."""
    more = (("__transactionId__", one.transaction_id),) if one.message.kind == "transaction" else ()
    delivery = Delivery(one.handle, one.attempt, one.queue, one.offset, one.stored_ms, one.invisible_ms)
    return _wire_message(one.message, more), delivery


def asked(question: Question) -> tuple[WireMessage, Delivery]:
    """Return a half message as its producer is asked about it."""
    more = (
        ("__transactionId__", question.transaction_id),
        ("TRANSACTION_CHECK_TIMES", str(question.asked + 1)),
    )
    return _wire_message(question.message, more), Delivery("", 1, 0, 0, question.message.born_ms, 0)


def _wire_message(message: QueueMessage, more: tuple[tuple[str, str], ...]) -> WireMessage:
    return WireMessage(
        Resource(message.topic, message.namespace),
        message.message_id,
        message.body,
        TYPES[message.kind],
        Encoding.GZIP if message.encoding == "gzip" else Encoding.IDENTITY,
        message.tag,
        message.keys,
        message.properties + more,
        message.message_group,
        message.deliver_at_ms or None,
        message.born_ms,
        message.born_host,
        message.trace_context,
    )
