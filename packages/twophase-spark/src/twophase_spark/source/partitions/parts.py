"""The work of one Spark task: ranges in one snapshot, ready as SQL conditions.

It is pickled to the executors.
"""

from __future__ import annotations

import msgspec
from pyspark.sql.datasource import InputPartition


class Range(msgspec.Struct, frozen=True):
    """Rows of one table that meet all conditions."""

    table: str
    conditions: tuple[str, ...] = ()


class Follow(msgspec.Struct, frozen=True):
    """History behind these numbers, also of nodes not named.

    Its rows became final since a read was planned.
    """

    after: dict[int, int]
    conditions: tuple[str, ...] = ()


class Stretch(msgspec.Struct, frozen=True):
    """A part of a stream: every row of `node` from `first` to `last`, none missing.

    With a `topic` it is a part of the queue `node` of that topic (`lines`).
    """

    node: int
    first: int
    last: int
    topic: str = ""

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return self.last - self.first + 1


class Part(InputPartition):
    """One task's work, all of it in one snapshot of the database."""

    def __init__(
        self,
        ranges: tuple[Range, ...] = (),
        follow: Follow | None = None,
        stretch: Stretch | None = None,
        absent: frozenset[str] = frozenset(),
    ) -> None:
        """Name the rows to read: of `ranges`, then `follow`; or a `stretch` of history.

        Arguments:
            absent: columns that this table lacks and may lack; they are null.
        """
        super().__init__(None)
        self.ranges = ranges
        self.follow = follow
        self.stretch = stretch
        self.absent = absent

    def __repr__(self) -> str:
        """Return the ranges, for logs: conditions hold keys, no payload."""
        return f"Part({self.ranges!r}, {self.follow!r}, {self.stretch!r})"
