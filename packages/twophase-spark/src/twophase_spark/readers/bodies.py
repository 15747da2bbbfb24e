"""Messages' bodies, decoded a batch at a time, for the audit and for the source.

One decode a message and then whole columns: Python's work per row is kept to attribute reads, because a read spends its
time here. None stands for a body that cannot be read, or has a newer form.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from twophase.core import message as codec
from twophase.core.message import Branch, Message
from twophase.core.topic import expansion_of, fans_out

_IDS = [f"{number:02d}" for number in range(1, 128)]
_SUBSCRIBERS = operator.attrgetter("subscribers")


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


def calls_of(messages: Sequence[Message | None]) -> Calls:
    """Return the calls of these messages, with the addresses that are called.

    A topic's branch is as many calls as it had subscribers, a redirected one goes where the operator sent it. One that
    was done before the move from dtm keeps its own address: its effect is there.

    >>> redirected, done = Branch("http://old/in", b"", ("http://b/in",)), Branch("http://c/in", b"", ("",))
    >>> calls = calls_of([Message("g", (redirected, done))])
    >>> [(id_, branch.url) for id_, branch in zip(calls.ids, calls.branches)]
    [('01', 'http://b/in'), ('02', 'http://c/in')]
    """
    if None not in messages:
        branches = [message.branches for message in messages if message is not None]
        flat = list(itertools.chain.from_iterable(branches))
        if {None}.issuperset(map(_SUBSCRIBERS, flat)):
            return _plain_calls(branches, flat)
    calls = Calls([], [], [])
    for message in messages:
        if message is None:
            calls.offsets.append(None)
            continue
        calls.offsets.append(len(calls.branches))
        if fans_out(message.branches):
            expansion = expansion_of([_addressed(branch) for branch in message.branches])
            assert expansion is not None, "it fans out"
            calls.branches += expansion.branches
            calls.ids += expansion.ids
        else:
            calls.branches += message.branches
            calls.ids += _IDS[: len(message.branches)]
    calls.offsets.append(len(calls.branches))
    return calls


def _addressed(branch: Branch) -> Branch:
    """Return a branch whose calls all have an address.

    An empty one stands for a call that was done before the move (ADR 0016).
    """
    if branch.subscribers is None or "" not in branch.subscribers:
        return branch
    return Branch(branch.url, branch.payload, tuple([url or branch.url for url in branch.subscribers]))


def _plain_calls(branches: list[tuple[Branch, ...]], flat: list[Branch]) -> Calls:
    """Return the same where each branch is one call to its own address.

    Nearly all batches are so; it works column by column. `flat`: the branches of all messages.
    """
    counts = list(map(len, branches))
    one_each = len(flat) == len(branches) and all(counts)
    ids = _IDS[:1] * len(flat) if one_each else [branch_id for count in counts for branch_id in _IDS[:count]]
    return Calls([0, *itertools.accumulate(counts)], ids, flat)
