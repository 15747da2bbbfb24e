"""Messages' bodies, decoded a batch at a time, for the audit and for the source.

One decode a message and then whole columns: Python's work per row is kept to attribute reads, because a read spends its
time here. None stands for a body that cannot be read, or has a newer form.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from twophase.core import message as codec
from twophase.core.message import Branch, Message
from twophase.core.topic import TOPIC_PREFIX, expansion_of

_IDS = [f"{number:02d}" for number in range(1, 128)]
_TOPIC = TOPIC_PREFIX.encode()


def decoded(bodies: Sequence[Any]) -> list[Message | None]:
    """Return the message in each body.

    >>> decoded([b"?"])
    [None]
    """
    try:
        return list(map(codec.decode, bodies))
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError):
        return [_decoded_or_none(body) for body in bodies]


def _decoded_or_none(body: Any) -> Message | None:
    try:
        return codec.decode(bytes(body))
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError):
        return None


class Calls(msgspec.Struct):
    """The calls of many messages end to end.

    `offsets`: where each message's begin, null for one that was unreadable; a null offset makes the list null.
    """

    offsets: list[int | None]
    ids: list[str]
    branches: list[Branch]

    def lists(self, flat: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return one list a message, of values that stand for the calls end to end."""
        return pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32()), flat, type=kind)


def calls_of(bodies: Sequence[Any], messages: Sequence[Message | None]) -> Calls:
    """Return the calls of the messages in these bodies.

    A topic's branch is as many calls as it had subscribers, with the ids under which they are called.

    >>> message = Message("g", (Branch("http://b/in"),))
    >>> calls_of([codec.encode(message)], [message])
    Calls(offsets=[0, 1], ids=['01'], branches=[Branch(url='http://b/in', payload=b'', subscribers=None)])
    """
    is_plain = None not in messages and _TOPIC not in b"".join(bodies)  # what was decoded is bytes
    if is_plain:
        return _plain_calls([message.branches for message in messages if message is not None])
    calls = Calls([], [], [])
    for message in messages:
        if message is None:
            calls.offsets.append(None)
            continue
        calls.offsets.append(len(calls.branches))
        expansion = expansion_of(message.branches)
        if expansion is not None:
            calls.branches += expansion.branches
            calls.ids += expansion.ids
        else:
            calls.branches += message.branches
            calls.ids += _IDS[: len(message.branches)]
    calls.offsets.append(len(calls.branches))
    return calls


def _plain_calls(branches: list[tuple[Branch, ...]]) -> Calls:
    """Return the same for a batch without topics and unreadable bodies.

    Nearly all batches are so; it works column by column.
    """
    counts = list(map(len, branches))
    flat = list(itertools.chain.from_iterable(branches))
    one_each = len(flat) == len(branches) and all(counts)
    ids = _IDS[:1] * len(flat) if one_each else [branch_id for count in counts for branch_id in _IDS[:count]]
    return Calls([0, *itertools.accumulate(counts)], ids, flat)
