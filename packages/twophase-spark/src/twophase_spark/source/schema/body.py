"""The columns that stand in a message's body.

A body that cannot be read (or is of a newer form) gives nulls, beside the columns of the row itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from twophase.core.message import Message
from twophase_spark.garbage import collecting_nothing
from twophase_spark.readers.bodies import Calls, calls_of, decoded
from twophase_spark.source.schema.tables import BRANCH, IN_BODY

NAMES = frozenset(column.name for column in IN_BODY)
_TYPES = {column.name: column.type for column in IN_BODY}
_IN_BRANCHES = frozenset({"branches", "payloads"})
_READ: dict[str, Callable[[Message], Any]] = {
    "check_url": attrgetter("check_url"),
    "protocol": attrgetter("protocol"),
    "delay_ms": attrgetter("options.delay_ms"),
}


def columns_of(bodies: pa.Array, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return the named columns of these bodies.

    >>> from twophase.core.message import Branch, encode
    >>> body = encode(Message("g", (Branch("http://b/in", b"{}"),)))
    >>> columns_of(pa.array([body, b"?"]), ["branches"])["branches"].to_pylist()
    [[{'branch_id': '01', 'url': 'http://b/in', 'payload_bytes': 2}], None]
    """
    with collecting_nothing():
        return _columns_of(bodies.to_pylist(), [name for name in names if name in NAMES])


def _columns_of(bodies: list[bytes], columns_: Sequence[str]) -> dict[str, pa.Array]:
    messages = decoded(bodies)
    columns = {
        name: pa.array([None if message is None else read(message) for message in messages], _TYPES[name])
        for name, read in _READ.items()
        if name in columns_
    }
    if _IN_BRANCHES.intersection(columns_):
        calls = calls_of(messages)
        if "branches" in columns_:
            columns["branches"] = _described(calls)
        if "payloads" in columns_:
            payloads = pa.array([branch.payload for branch in calls.branches], pa.binary())
            columns["payloads"] = calls.lists(payloads, _TYPES["payloads"])
    return columns


def _described(calls: Calls) -> pa.Array:
    sizes = [len(branch.payload) for branch in calls.branches]
    values = (calls.ids, [branch.url for branch in calls.branches], sizes)
    columns = [pa.array(column, field.type) for column, field in zip(values, BRANCH, strict=True)]
    return calls.lists(pa.StructArray.from_arrays(columns, fields=list(BRANCH)), _TYPES["branches"])
