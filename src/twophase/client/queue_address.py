"""The address of a queue, with the attributes that consumers see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twophase.client.draft import checked_url
from twophase.core.errors import InvalidRequest
from twophase.core.queue_message import QueueMessage, address_of, full_name


def queue_address(
    topic: str,
    *,
    tag: str = "",
    keys: Iterable[str] = (),
    message_group: str = "",
    properties: Mapping[str, str] | None = None,
    namespace: str = "",
    message_id: str = "",
) -> str:
    """Return the address of a queue, as `Message.add` takes it.

    Arguments:
        topic: 1 to 127 letters, digits, `%`, `|`, `_` and `-`.
        tag: by which consumers choose; without blanks and `|`.
        keys: by which people look for the message.
        message_group: the messages of one group are delivered one by one, in order.
        properties: names and values for consumers.
        namespace: of the topic.
        message_id: the consumers' name for the message; its gid by default.

    Raises:
        InvalidRequest: a name that cannot be one, or a value that is no text. LimitExceeded: the address is too long.

    >>> queue_address("orders", tag="paid", keys=["7"], properties={"shop": "7"})
    'queue://orders?tag=paid&key=7&p.shop=7'
    >>> queue_address("orders", tag="paid", message_group="order-7", namespace="eu")
    'queue://eu/orders?kind=fifo&tag=paid&group=order-7'
    """
    full_name(namespace, topic)
    if isinstance(keys, str):
        raise InvalidRequest(f"keys is {keys!r}; give a list of texts.")
    keys, pairs = tuple(keys), tuple((properties or {}).items())
    for name, value in (
        ("tag", tag),
        ("message_group", message_group or ""),
        ("message_id", message_id or ""),
        *(("keys", key) for key in keys),
        *(("properties", text) for pair in pairs for text in pair),
    ):
        if not isinstance(value, str):
            raise InvalidRequest(f"{name} has {value!r}, which is no text; write str(…).")
    if "|" in tag or any(character.isspace() for character in tag):
        raise InvalidRequest(f"tag {tag!r} has a blank or |, so no consumer could name it.")
    message = QueueMessage(
        topic,
        namespace,
        message_id,
        b"",
        "fifo" if message_group else "normal",
        tag,
        keys,
        pairs,
        message_group,
    )
    return checked_url("queue", address_of(message))
