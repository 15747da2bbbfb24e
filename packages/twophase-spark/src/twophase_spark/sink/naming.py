"""The names that make a publication exactly once. Pure.

They are the gid of a row, and the id of a batch. A row's gid depends on the publisher and the values of its key
columns, and on nothing else: not on the batch, the partition, the order of rows or the time. So every repetition by
Spark, also after a lost checkpoint, names the same message. It does not have the form of gids that carry their birth
time (`core.gid`), by which a coordinator judges them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

_DIGEST_BYTES: Final = 20
"""Bytes of the digest, which are 32 characters of base 32."""
_SHIFTS: Final = range(8 * _DIGEST_BYTES - 10, -10, -10)
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
# Two characters at a time, because it is done for every row: a third of the time of the library's base32.
_PAIRS: Final = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.msgpack.Encoder().encode


def gid_of(publisher: str, key: Sequence[Any]) -> str:
    """Return the gid of the row with this key.

    Arguments:
        publisher: the stable name that the user gave.
        key: the values of the key columns, in the order of `keyColumns`; none of them None.

    >>> gid_of("orders", [17]), gid_of("orders", ["17"])
    ('spark-r24vqulbiadgjl7jghunno5u4goq4daf', 'spark-63u4hlcchc5c65nmsqxya64omfjcqy3a')
    """
    return f"spark-{_digest([publisher, *map(_plain, key)])}"


def stream_batch(publisher: str, query_id: str, number: int) -> str:
    """Return the id of a streaming batch: the same at every repetition by Spark.

    >>> stream_batch("orders", "q", 3) == stream_batch("orders", "q", 3)
    True
    """
    return f"batch-{_digest(['stream', publisher, query_id, number])}"


def run_batch(publisher: str, randomness: bytes) -> str:
    """Return the id of one `write` of a DataFrame; Spark never repeats one as a whole."""
    return f"batch-{_digest(['run', publisher, randomness])}"


def _digest(value: list[Any]) -> str:
    number = int.from_bytes(hashlib.sha256(_encode(value)).digest()[:_DIGEST_BYTES])
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def _plain(value: Any) -> Any:
    """Return a value by its meaning.

    An instant is the same in every zone, a number at every scale.
    """
    if type(value) is str or type(value) is int:
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return ["local", value.isoformat()]
        since = value - _1970
        return ["instant", (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds]
    if isinstance(value, date):
        return ["date", value.isoformat()]
    if isinstance(value, Decimal):
        return ["decimal", _digits(value)]
    return value


def _digits(value: Decimal) -> str:
    """Return all digits of a number.

    `normalize` would round to the context's 28, and two keys would be one.
    """
    text = format(value, "f")
    return "0" if not value else text.rstrip("0").rstrip(".") if "." in text else text
