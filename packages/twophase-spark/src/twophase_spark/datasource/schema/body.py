"""The columns that stand in a message's body, decoded a batch at a time.

One decode a message and then whole columns: Python's work per row is kept to attribute reads, because a read spends its
time here. A body that cannot be read (or is of a newer form) gives nulls, beside the columns of the row itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from twophase.core import message as codec
from twophase.core.message import Branch, Message
from twophase.core.topic import TOPIC_PREFIX, expansion_of
from twophase_spark.datasource.schema.tables import BRANCH, IN_BODY
from twophase_spark.garbage import collecting_nothing

NAMES = frozenset(column.name for column in IN_BODY)
_TYPES = {column.name: column.type for column in IN_BODY}
_IDS = [f"{number:02d}" for number in range(1, 128)]
_IN_BRANCHES = frozenset({"branches", "payloads"})


def columns_of(bodies: pa.Array, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return the named columns of these bodies.

    >>> from twophase.core.message import Branch, encode
    >>> body = encode(Message("g", (Branch("http://b/in", b"{}"),)))
    >>> columns_of(pa.array([body, b"?"]), ["branches"])["branches"].to_pylist()
    [[{'branch_id': '01', 'url': 'http://b/in', 'payload_bytes': 2}], None]
    """
    with collecting_nothing():
        return _columns_of(bodies, [name for name in names if name in NAMES])


def _columns_of(bodies: pa.Array, columns_: Sequence[str]) -> dict[str, pa.Array]:
    messages = _decoded(bodies.to_pylist())
    columns = {name: make(messages) for name, make in _MAKE.items() if name in columns_}
    if _IN_BRANCHES.intersection(columns_):
        calls = _calls(messages, with_topics=_has_topics(bodies))
        if "branches" in columns_:
            columns["branches"] = calls.described()
        if "payloads" in columns_:
            columns["payloads"] = calls.payloads()
    return columns


def _has_topics(bodies: pa.Array) -> bool:
    import pyarrow.compute  # noqa: PLC0415 -- slow to import, and planning a read has no bodies

    compute: Any = pyarrow.compute  # its functions are made when it is imported; no type checker sees them
    return bool(compute.any(compute.match_substring(bodies, TOPIC_PREFIX)).as_py())


def _decoded(bodies: list[bytes]) -> list[Message | None]:
    try:
        return list(map(codec.decode, bodies))
    except (msgspec.DecodeError, msgspec.ValidationError):
        return [_decoded_or_none(body) for body in bodies]


def _decoded_or_none(body: bytes) -> Message | None:
    try:
        return codec.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


class _Calls(msgspec.Struct):
    """The calls of many messages end to end.

    `offsets`: where each message's begin, null for one that was unreadable; a null offset makes the list null.
    """

    offsets: list[int | None]
    ids: list[str]
    branches: list[Branch]

    def described(self) -> pa.Array:
        """Return one list of structs a message."""
        sizes = [len(branch.payload) for branch in self.branches]
        values = (self.ids, [branch.url for branch in self.branches], sizes)
        columns = [pa.array(column, field.type) for column, field in zip(values, BRANCH, strict=True)]
        return self._lists(pa.StructArray.from_arrays(columns, fields=list(BRANCH)), _TYPES["branches"])

    def payloads(self) -> pa.Array:
        """Return one list of payloads a message."""
        return self._lists(pa.array([branch.payload for branch in self.branches], pa.binary()), _TYPES["payloads"])

    def _lists(self, flat: pa.Array, kind: pa.DataType) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32()), flat, type=kind)


def _calls(messages: list[Message | None], *, with_topics: bool) -> _Calls:
    """Return the calls of messages.

    A topic's branch is as many calls as it had subscribers, with the ids under which they are called.
    """
    if not with_topics and None not in messages:
        return _plain_calls([message.branches for message in messages if message is not None])
    calls = _Calls([], [], [])
    for message in messages:
        if message is None:
            calls.offsets.append(None)
            continue
        calls.offsets.append(len(calls.branches))
        expansion = expansion_of(message.branches) if with_topics else None
        if expansion is not None:
            calls.branches += expansion.branches
            calls.ids += expansion.ids
        else:
            calls.branches += message.branches
            calls.ids += _IDS[: len(message.branches)]
    calls.offsets.append(len(calls.branches))
    return calls


def _plain_calls(branches: list[tuple[Branch, ...]]) -> _Calls:
    """Return the same for a batch without topics and unreadable bodies.

    Nearly all batches are so; it works column by column.
    """
    counts = list(map(len, branches))
    flat = list(itertools.chain.from_iterable(branches))
    one_each = len(flat) == len(branches) and all(counts)
    ids = _IDS[:1] * len(flat) if one_each else [branch_id for count in counts for branch_id in _IDS[:count]]
    return _Calls([0, *itertools.accumulate(counts)], ids, flat)


def _check_urls(messages: list[Message | None]) -> pa.Array:
    return pa.array([None if message is None else message.check_url for message in messages], _TYPES["check_url"])


def _protocols(messages: list[Message | None]) -> pa.Array:
    return pa.array([None if message is None else message.protocol for message in messages], _TYPES["protocol"])


def _delays(messages: list[Message | None]) -> pa.Array:
    return pa.array([None if message is None else message.options.delay_ms for message in messages], _TYPES["delay_ms"])


_MAKE: dict[str, Callable[[list[Message | None]], Any]] = {
    "check_url": _check_urls,
    "protocol": _protocols,
    "delay_ms": _delays,
}
