"""The entries of queues that a decided message brings.

Keeps I1 and I2 for queues: `actions` gives them to the flush that decides, which writes both or nothing. A branch whose
address is not to be understood is left out, as no consumer could get it; its delivery fails, visibly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twophase.core.errors import InvalidRequest
from twophase.core.message import Message
from twophase.core.queue_message import QUEUE_PREFIX, full_name, message_of, queue_of
from twophase.stores.queue_rows import Append

_ONE: Final = (1, 1)


def appends_of(message: Message, queue_counts: Mapping[str, tuple[int, int]]) -> tuple[Append, ...]:
    """Return an entry for each branch of a message that goes to a queue.

    Messages of one message group are in one queue, and others are spread.

    Arguments:
        queue_counts: the queues of each topic that has more than one: all, and those of its message groups.
    """
    entries: list[Append] = []
    for index, branch in enumerate(message.branches):
        if not branch.url.startswith(QUEUE_PREFIX) or branch.subscribers is not None:
            continue
        try:
            queued = message_of(branch.url, b"")
        except InvalidRequest:
            continue
        name = full_name(queued.namespace, queued.topic)
        queues, of_groups = queue_counts.get(name, _ONE)
        group = queued.message_group
        queue = queue_of(group, of_groups) if group else queue_of(message.gid, queues)
        entries.append(Append(name, queue, index))
    return tuple(entries)


def is_delayed(message: Message) -> bool:
    """Return True for a message whose branches wait for a time after the decision."""
    return bool(message.options.delay_ms or message.options.not_before_ms)


def waits_for_its_time(message: Message) -> bool:
    """Return True for a delayed message with nothing but queues.

    It is appended when it is due.
    """
    return is_delayed(message) and len(appends_of(message, {})) == len(message.branches)


def all_done(message: Message) -> int:
    """Return `done` of a message whose branches are all in queues."""
    return (1 << len(message.branches)) - 1
