"""Facts of a set of rows that must be equal in the store and in a file.

They are count, bounds and a digest. The digest is a sum over rows of 128 bits each (BLAKE2b of every stored
value, lengths included, so that no two different rows look alike). A sum does not depend on the order of rows and,
unlike exclusive or, detects a row that stands twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from twophase_spark.source.schema.tables import Kind

_WORDS = 2
_WORD_MODULUS = 2**64


class Shape(msgspec.Struct, frozen=True):
    """The columns of a table by their use.

    `key`: the number by which rows are found; `time`: the time of their day.
    """

    key: str
    time: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]


SHAPES: dict[Kind, Shape] = {
    Kind.HISTORY: Shape(
        key="seq",
        time="finished_ms",
        numbers=("node", "seq", "created_ms", "decided_ms", "finished_ms", "attempts", "done"),
        texts=("gid", "state", "decided_by", "reason", "body"),
    ),
    Kind.ATTEMPT: Shape(
        key="id",
        time="at_ms",
        numbers=("id", "at_ms", "status", "latency_ms"),
        texts=("gid", "kind", "branch_id", "target", "result", "error"),
    ),
    Kind.QUEUE_ENTRY: Shape(
        key="number",
        time="stored_ms",
        numbers=("queue", "number", "branch", "stored_ms"),
        texts=("topic", "gid"),
    ),
    Kind.AUDIT_LOG: Shape(
        key="seq",
        time="at_ms",
        numbers=("seq", "at_ms", "node"),
        texts=("who", "peer", "act", "target", "reason", "state_before", "state_after", "previous", "hash"),
    ),
}


class Facts(msgspec.Struct, frozen=True):
    """The facts of a set of rows.

    `first`, `last`: the bounds of their keys, `first_ms`, `last_ms` of their times; `digest`: 32 hexadecimal digits.
    """

    rows: int
    first: int
    last: int
    first_ms: int
    last_ms: int
    digest: str


class Tally:
    """Adds up the facts of rows that come in batches."""

    def __init__(self, kind: Kind) -> None:
        """Begin with no rows."""
        self._shape = SHAPES[kind]
        self._rows = 0
        self._keys = (0, 0)
        self._times = (0, 0)
        self._words = [0] * _WORDS

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        if not batch.num_rows:
            return
        numbers = {name: _numbers(batch, name) for name in self._shape.numbers}
        self._keys = self._widened(self._keys, numbers[self._shape.key])
        self._times = self._widened(self._times, numbers[self._shape.time])
        self._rows += batch.num_rows
        for word, value in enumerate(_digest(batch, list(numbers.values()), self._shape.texts)):
            self._words[word] = (self._words[word] + value) % _WORD_MODULUS

    def facts(self) -> Facts:
        """Return the facts of all rows so far."""
        digest = "".join(f"{word:016x}" for word in self._words)
        return Facts(self._rows, *self._keys, *self._times, digest)

    def _widened(self, bounds: tuple[int, int], values: Any) -> tuple[int, int]:
        low, high = int(values.min()), int(values.max())
        return (min(bounds[0], low), max(bounds[1], high)) if self._rows else (low, high)


def facts_of(kind: Kind, batches: Iterable[pa.RecordBatch]) -> Facts:
    """Return the facts of these rows.

    >>> from twophase_spark.lake.schemas import target_of
    >>> facts_of(Kind.HISTORY, [target_of(Kind.HISTORY).empty_table()]).rows
    0
    """
    tally = Tally(kind)
    for batch in batches:
        tally.add(batch)
    return tally.facts()


def _numbers(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False)


def _digest(batch: pa.RecordBatch, numbers: list[Any], texts: tuple[str, ...]) -> list[int]:
    values = [[value or b"" for value in batch.column(name).cast(pa.binary()).to_pylist()] for name in texts]
    lengths = [np.fromiter(map(len, column), np.int64, batch.num_rows) for column in values]
    fixed = np.column_stack([*numbers, *lengths]).astype("<i8").tobytes()
    width = 8 * (len(numbers) + len(lengths))
    digests = b"".join(
        hashlib.blake2b(fixed[index * width : (index + 1) * width] + b"".join(row), digest_size=8 * _WORDS).digest()
        for index, row in enumerate(zip(*values, strict=True))
    )
    words = np.frombuffer(digests, "<u8").reshape(-1, _WORDS).sum(axis=0, dtype=np.uint64)
    return [int(word) for word in words]
