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

from twophase.core.message import Message
from twophase_spark.readers.bodies import calls_of, decoded
from twophase_spark.schemas import JOURNAL

IDENTITY_PARAMETER = "barrier"
STORED = ("gid", "state", "created_ms", "decided_ms", "finished_ms", "decided_by", "reason", "attempts", "parked")
"""Columns before the body in a row, in this order."""
_BRANCHES: pa.ListType = JOURNAL.field("branches").type
_CREATED = STORED.index("created_ms")


def columns_of(stored: Sequence[Sequence[Any] | pa.Array], bodies: Sequence[Any]) -> list[Sequence[Any] | pa.Array]:
    """Return the columns of `JOURNAL`, of those of `STORED` and the bodies.

    A body that cannot be read gives nulls.
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
        _branches(bodies, messages),
    ]


def _delays_ms(messages: Sequence[Message | None], created_ms: Sequence[Any] | pa.Array) -> list[int]:
    delays = [0] * len(messages)
    for place, message in enumerate(messages):
        if message is not None and (message.options.delay_ms or message.options.not_before_ms):
            born_ms = created_ms[place].as_py() if isinstance(created_ms, pa.Array) else created_ms[place]
            if isinstance(born_ms, int):
                delays[place] = max(message.options.first_call_ms(born_ms) - born_ms, 0)
    return delays


def _branches(bodies: Sequence[Any], messages: Sequence[Message | None]) -> pa.Array:
    calls = calls_of(bodies, messages)
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
