"""What one Spark task reads: a list of ranges in one snapshot, ready as SQL conditions. Pickled to the executors."""

from __future__ import annotations

import msgspec
from pyspark.sql.datasource import InputPartition


class Range(msgspec.Struct, frozen=True):
    """Rows of one table that meet all conditions."""

    table: str
    conditions: tuple[str, ...] = ()


class Follow(msgspec.Struct, frozen=True):
    """History behind these places, also of nodes not named: what became final since a read was planned."""

    after: dict[int, int]
    conditions: tuple[str, ...] = ()


class Stretch(msgspec.Struct, frozen=True):
    """Of a stream: every row of `node` from `first` to `last`, none missing."""

    node: int
    first: int
    last: int


class Part(InputPartition):
    """One task's work, all of it in one snapshot of the database."""

    def __init__(
        self,
        ranges: tuple[Range, ...] = (),
        follow: Follow | None = None,
        stretch: Stretch | None = None,
        absent: frozenset[str] = frozenset(),
    ) -> None:
        """Name what is read: `ranges`, then what `follow` says; or a `stretch` of history.

        Arguments:
            absent: columns that this table lacks and may lack; they are null.
        """
        super().__init__(None)
        self.ranges = ranges
        self.follow = follow
        self.stretch = stretch
        self.absent = absent

    def __repr__(self) -> str:
        """The ranges, for logs: conditions hold keys, no payload."""
        return f"Part({self.ranges!r}, {self.follow!r}, {self.stretch!r})"
