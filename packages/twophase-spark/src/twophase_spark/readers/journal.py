"""A coordinator's rows as the columns of `schemas.JOURNAL`.

They are those of the table, and the parts of each body. It works column by column: an audit of databases spends much of
its time here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pyarrow as pa

from twophase.core import message as codec
from twophase.core.message import Branch, Message
from twophase.core.topic import expansion_of
from twophase_spark.schemas import JOURNAL

IDENTITY_PARAMETER = "barrier"
STORED = ("gid", "state", "created_ms", "decided_ms", "finished_ms", "decided_by", "reason", "attempts", "parked")
"""Columns before the body in a row, in this order."""
_BRANCHES: pa.ListType = JOURNAL.field("branches").type
_IDS = [f"{number:02d}" for number in range(1, 128)]


def columns_of(rows: Iterable[Sequence[Any]]) -> list[Sequence[Any] | pa.Array]:
    """Return the columns of `JOURNAL`, of rows that hold `STORED` and the body.

    A body that cannot be read gives nulls.
    """
    *stored, parked, bodies = zip(*rows, strict=True)
    messages = _decoded(bodies)
    asked = [(None, None, None) if message is None else asked_at(message.check_url) for message in messages]
    return [
        *stored,
        list(map(bool, parked)),
        list(map(_delay_ms, messages, stored[STORED.index("created_ms")])),
        [None if message is None else bool(message.check_url) for message in messages],
        [origin for origin, _, _ in asked],
        [identity for _, identity, _ in asked],
        [address for _, _, address in asked],
        _branches(messages),
    ]


def _decoded(bodies: Sequence[Any]) -> list[Message | None]:
    try:
        return list(map(codec.decode, bodies))
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError):
        return [_decoded_or_none(body) for body in bodies]


def _decoded_or_none(body: Any) -> Message | None:
    try:
        return codec.decode(bytes(body))
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError):
        return None


def _delay_ms(message: Message | None, created_ms: Any) -> int:
    if message is None or not (message.options.delay_ms or message.options.not_before_ms):
        return 0
    return max(message.options.first_call_ms(created_ms) - created_ms, 0) if isinstance(created_ms, int) else 0


def _branches(messages: Sequence[Message | None]) -> pa.Array:
    offsets: list[int | None] = []
    ids: list[str] = []
    urls: list[str] = []
    for message in messages:
        if message is None:
            offsets.append(None)  # which makes the list null
            continue
        offsets.append(len(ids))
        names, branches = calls_of(message)
        ids += names
        urls += [branch.url for branch in branches]
    offsets.append(len(ids))
    fields = list(_BRANCHES.value_type)
    calls = pa.StructArray.from_arrays([pa.array(ids, pa.string()), pa.array(urls, pa.string())], fields=fields)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), calls, type=_BRANCHES)


def calls_of(message: Message) -> tuple[Sequence[str], Sequence[Branch]]:
    """Return ids and branches that the coordinator calls.

    Of a topic that was expanded they are each of its subscribers.

    >>> calls_of(Message("g", (Branch("http://b/in"),)))
    (['01'], (Branch(url='http://b/in', payload=b'', subscribers=None),))
    """
    expansion = expansion_of(message.branches)
    if expansion is not None:
        return expansion.ids, expansion.branches
    return _IDS[: len(message.branches)], message.branches


@functools.lru_cache(maxsize=4096)  # a producer has one address, or one for each database, and a million messages
def asked_at(check_url: str) -> tuple[str, str | None, str]:
    """Return the producer's host, its database's identity, and the check address.

    The address is without its query. None stands for the identity of a foreign producer's database.

    >>> asked_at("http://bank-a/check?barrier=7f3a"), asked_at("http://bank-a/check")
    (('bank-a', '7f3a', 'http://bank-a/check'), ('bank-a', None, 'http://bank-a/check'))
    """
    address = check_url.partition("?")[0]
    try:
        parts = urlsplit(check_url if "://" in check_url else f"//{check_url}")
        found = parse_qs(parts.query).get(IDENTITY_PARAMETER)
    except ValueError:
        return check_url, None, address
    return parts.netloc.rpartition("@")[2], found[-1] if found else None, address
