"""A coordinator's rows as the columns of `schemas.JOURNAL`.

They are those of the table, and the parts of each body. It works column by column: an audit of databases spends much of
its time here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

from twophase.core.address import IDENTITY_PARAMETER
from twophase.core.errors import InvalidRequest
from twophase.core.message import Branch, Message
from twophase.core.queue_message import QUEUE_PREFIX, message_of
from twophase_spark.readers.bodies import calls_of, decoded
from twophase_spark.schemas import JOURNAL

STORED = ("gid", "state", "created_ms", "decided_ms", "finished_ms", "decided_by", "reason", "attempts", "parked")
"""Columns before the entries and the body in a row, in this order."""
_QUEUE = QUEUE_PREFIX.encode()
_BRANCHES: pa.ListType = JOURNAL.field("branches").type
_CREATED = STORED.index("created_ms")


def columns_of(
    stored: Sequence[Sequence[Any] | pa.Array],
    entries: Sequence[str],
    cleaned: Sequence[Any] | pa.Array,
    bodies: Sequence[Any],
) -> list[Sequence[Any] | pa.Array]:
    """Return the columns of `JOURNAL` but the source.

    A body that cannot be read gives nulls.

    Arguments:
        stored: the columns of `STORED`.
        entries: the branches that stand in queues, with commas between them.
        cleaned: True where entries may have been removed.
        bodies: of the messages.
    """
    messages = decoded(bodies)
    asked = [(None, None, None) if message is None else asked_at(message.check_url) for message in messages]
    origins, identities, addresses = zip(*asked, strict=True)
    return [
        *stored,
        _delays_ms(messages, stored[_CREATED]),
        [None if message is None else bool(message.check_url) for message in messages],
        origins,
        identities,
        addresses,
        _branches(messages),
        _queued(bodies, messages),
        [sorted(map(int, places.split(","))) if places else [] for places in entries],
        cleaned,
    ]


def _queued(bodies: Sequence[Any], messages: Sequence[Message | None]) -> list[list[int] | None]:
    if None not in messages and _QUEUE not in b"".join(bodies):  # what was decoded is bytes
        return [[]] * len(messages)
    return [
        None if message is None else [place for place, branch in enumerate(message.branches) if _is_queued(branch)]
        for message in messages
    ]


def _is_queued(branch: Branch) -> bool:
    """Return True for a branch that the deciding flush appends."""
    if branch.subscribers is not None or not branch.url.startswith(QUEUE_PREFIX):
        return False
    try:
        message_of(branch.url, b"")
    except InvalidRequest:
        return False
    return True


def _delays_ms(messages: Sequence[Message | None], created_ms: Sequence[Any] | pa.Array) -> list[int]:
    delays = [0] * len(messages)
    for place, message in enumerate(messages):
        if message is not None and (message.options.delay_ms or message.options.not_before_ms):
            born_ms = created_ms[place].as_py() if isinstance(created_ms, pa.Array) else created_ms[place]
            if isinstance(born_ms, int):
                delays[place] = max(message.options.first_call_ms(born_ms) - born_ms, 0)
    return delays


def _branches(messages: Sequence[Message | None]) -> pa.Array:
    calls = calls_of(messages)
    urls = [branch.url for branch in calls.branches]
    columns = [pa.array(calls.ids, pa.string()), pa.array(urls, pa.string())]
    return calls.lists(pa.StructArray.from_arrays(columns, fields=list(_BRANCHES.value_type)), _BRANCHES)


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
