"""A message of a queue as consumers, and producers that are asked, see it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from twophase.client.queues.payloads import plain, read_as
from twophase.core.queue_api import OneDelivery, OneQuestion
from twophase.core.queue_message import message_of

P = TypeVar("P")


class Queued(msgspec.Struct, kw_only=True, eq=False, dict=True, weakref=True):
    """The part that `Received` and `Half` share."""

    topic: str
    namespace: str
    message_id: str
    transaction_id: str
    """The message's gid at the coordinator, as `twophase explain` takes it."""
    tag: str
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    raw: bytes
    """The body as it was sent."""
    encoding: str = "identity"

    @functools.cached_property
    def body(self) -> bytes:
        """The body; plain, where the producer has compressed it.

        Raises:
            PayloadUnreadable: it is not what its encoding says.
        """
        return plain(self.raw, self.encoding)

    def decode(self, kind: type[P]) -> P:
        """Return the body as a value of a type.

        Arguments:
            kind: `bytes`, `str`, or what JSON is read as: a dataclass, a msgspec Struct, a pydantic model, `dict`, …

        Raises:
            PayloadUnreadable: it is no such value.
        """
        return read_as(self.body, kind)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic} {self.message_id}>"  # no body: it would be in logs


class Received(Queued, kw_only=True, eq=False):
    """A message that a consumer has for the time of its lease."""

    group: str
    """The group of consumers."""
    attempt: int
    """Deliveries of it to the group, this one included."""
    message_group: str
    """The messages of one are delivered one by one."""
    queue: int
    offset: int
    stored_at: datetime
    """The time at which it was in its queue, by the coordinator's store."""
    receipt: str
    """The name of this delivery; another one after an extension."""


class Half(Queued, kw_only=True, eq=False):
    """A message whose local transaction decides whether it is sent."""

    asked: int = 0
    """The number of checks that were answered before with unknown."""


def received(one: OneDelivery, group: str) -> Received:
    """Return a message from the wire.

    Raises:
        InvalidRequest: its address is of a later version.
    """
    message = message_of(one.address, one.body)
    return Received(
        topic=message.topic,
        namespace=message.namespace,
        message_id=message.message_id or one.transaction_id,
        transaction_id=one.transaction_id,
        tag=message.tag,
        keys=message.keys,
        properties=_frozen(message.properties),
        raw=one.body,
        encoding=message.encoding,
        group=group,
        attempt=one.attempt,
        message_group=message.message_group,
        queue=one.queue,
        offset=one.offset,
        stored_at=datetime.fromtimestamp(one.stored_ms / 1000, UTC),
        receipt=one.receipt,
    )


def half(address: str, body: bytes, transaction_id: str, asked: int = 0) -> Half:
    """Return a half message, by its address and body."""
    message = message_of(address, body)
    return Half(
        topic=message.topic,
        namespace=message.namespace,
        message_id=message.message_id,
        transaction_id=transaction_id,
        tag=message.tag,
        keys=message.keys,
        properties=_frozen(message.properties),
        raw=body,
        encoding=message.encoding,
        asked=asked,
    )


def asked_about(question: OneQuestion) -> Half:
    """Return the half message of a question."""
    return half(question.address, question.body, question.transaction_id, question.asked)


def _frozen(pairs: Any) -> Mapping[str, str]:
    return MappingProxyType(dict(pairs))
