"""Names of messages that are used again: for the same message, or for another one.

Clients make message ids from the machine's address, the process and counters. Two containers may make the same ones;
then the second message is refused. Taken for a repetition of the first, it would be lost without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from twophase.coordinator.dispatch.producers import PRODUCER_PREFIX, names_in
from twophase.core.errors import ContentConflict
from twophase.core.message import Message
from twophase.core.queue_message import DEAD_LETTERS, QUEUE_PREFIX, QueueMessage, gid_of, message_of

REASON: Final = "DLQ_REASON"
"""The property of a dead letter with the reason for which a consumer gave it up."""
_GIDS_MAX: Final = 16
_BETWEEN: Final = "\0"
"""No gid and no name has it."""


def is_same(sent: QueueMessage, stored: Message, producers: str = "") -> bool:
    """Return True when a message of the coordinator is what is sent again.

    `producers`: those that answer for a half message, who must be the same. RocketMQ's producers may name their group
    in one call and not yet in another; until then their topic's name stands for it.
    """
    known = _queue_message_in(stored)
    if known is None or _compared(sent) != _compared(known):
        return False
    if not producers or not stored.check_url.startswith(PRODUCER_PREFIX):
        return True
    before, _ = names_in(stored.check_url)
    return before == producers or _is_topics(before, sent.topic) or _is_topics(producers, sent.topic)


def _is_topics(producers: str, topic: str) -> bool:
    """Return True for the name that a topic's producers have without a group."""
    return producers == topic or producers.endswith((f"/{topic}", f"|{topic}"))


def id_taken(sent: QueueMessage, gid: str) -> ContentConflict:
    """Return the refusal of a message whose id stands for another one."""
    return ContentConflict(
        f"message id {sent.message_id[:64]!r} of topic {sent.topic!r} stands for another message already.",
        gid=gid,
        remedy="Send it under another id. Producers with one address and one process number may make the same ids.",
    )


def gids_of_letter(letter: QueueMessage, gid: str, topic: str, queue: int, number: int) -> Iterator[str]:
    """Return the gids that a dead letter may have, the usual one first.

    The same entry of a queue has the same, so a burial that is repeated makes no second letter. Another one is needed
    where the usual one names another message, or a letter that is not there any more.

    Arguments:
        letter: what is buried.
        gid, topic, queue, number: of the entry that it is made of.

    >>> len(set(gids_of_letter(QueueMessage("%DLQ%billing", "", "1", b""), "g", "orders", 0, 7)))
    16
    """
    origin = _BETWEEN.join((gid, topic, str(queue), str(number)))
    for attempt in range(_GIDS_MAX):
        yield gid_of(letter.namespace, letter.topic, letter.message_id, f"{origin}{_BETWEEN}{attempt}")


def _queue_message_in(stored: Message) -> QueueMessage | None:
    """Return the message of a queue that is in a stored message; None for none."""
    found = [one for one in stored.branches if one.url.startswith(QUEUE_PREFIX)]
    return message_of(found[0].url, found[0].payload) if found else None


def is_of_topic(stored: Message, namespace: str, topic: str) -> bool:
    """Return True for the message of a queue that goes to this topic."""
    known = _queue_message_in(stored)
    return known is not None and (known.namespace, known.topic) == (namespace, topic)


def _compared(message: QueueMessage) -> QueueMessage:
    """Return the part of a message that a client repeats as it was.

    When and where it was born, and its trace, may be those of the repetition; the properties come in any order. A
    dead letter's reason may be another one: a burial that is repeated need not know the first.
    """
    properties = sorted(message.properties)
    if message.topic.startswith(DEAD_LETTERS):
        properties = [one for one in properties if one[0] != REASON]
    return msgspec.structs.replace(message, born_ms=0, born_host="", trace_context="", properties=tuple(properties))
