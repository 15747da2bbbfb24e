"""One task: its part of a table as Arrow batches of exactly the columns for Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from twophase_spark.readers.snapshot import Run, open_snapshot
from twophase_spark.source.options import filters
from twophase_spark.source.options.looking import location_of
from twophase_spark.source.options.read_options import ReadOptions
from twophase_spark.source.partitions.parts import Follow, Part, Range
from twophase_spark.source.schema import body, ledger
from twophase_spark.source.schema.shaping import carried_types, shape
from twophase_spark.source.schema.sql import column, milliseconds, select, stored_columns
from twophase_spark.source.schema.tables import MAY_LACK, MS_OF_TIME, OF_COORDINATOR, Kind

_NODES = select(["id"], "node")


def read_part(options: ReadOptions, target: pa.Schema, part: Part) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part, all in one snapshot."""
    with snapshot_of(options) as (run, engine):
        reader = Reader(options, target, engine, part.absent)
        for one in part.ranges:
            yield from reader.rows(run, one)
        if part.follow is not None:
            yield from reader.followed(run, part.follow)


@contextlib.contextmanager
def snapshot_of(options: ReadOptions) -> Iterator[tuple[Run, str]]:
    """Open the database of a read.

    Yields a function that runs statements, and the engine.
    """
    location = location_of(options)
    with open_snapshot(location, options.driver, options.snapshot, typed=options.kind is not Kind.LEDGER) as run:
        yield run, location.engine


class Reader(msgspec.Struct, frozen=True):
    """The conversion of a table's rows to batches of `target`."""

    options: ReadOptions
    target: pa.Schema
    engine: str
    absent: frozenset[str] = frozenset()

    def rows(self, run: Run, one: Range) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range."""
        for raw in run(self.statement(one), self.types()):
            batch = filters.keep(raw, self.options)
            if batch.num_rows:
                yield self.shaped(batch)

    def statement(self, one: Range) -> str:
        """Return the statement that selects the rows of a range."""
        return select(self._selected(one.table), one.table, one.conditions)

    def shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the database as one of `target`."""
        return shape(batch, self.target, MAY_LACK[self.options.kind])

    def followed(self, run: Run, follow: Follow) -> Iterator[pa.RecordBatch]:
        """Yield the rows that history has gained behind `follow`, of every present node."""
        nodes = [int(node) for batch in run(_NODES, {}) for node in batch.column("id").to_pylist()]
        for node in nodes:
            behind = f"seq > {follow.after.get(node, 0)}"
            yield from self.rows(run, Range("history", (f"node = {node}", behind, *follow.conditions)))

    def _selected(self, table: str) -> list[str]:
        names: list[str] = [*self.target.names, *filters.columns_needed(self.options)]
        if self.options.kind is not Kind.LEDGER:
            names = [MS_OF_TIME.get(name, name) for name in names]
        names = list(dict.fromkeys(names))
        if self.options.kind in OF_COORDINATOR:
            return stored_columns(table, names, body.NAMES)
        if self.options.kind is Kind.BARRIER:
            return [self._barrier(name) for name in names]
        return [self._ledger(name) for name in names]

    def _barrier(self, name: str) -> str:
        stored = {"created_ms": "create_time", "prepared_ms": "prepared_at"}.get(name, name)
        if stored in self.absent:
            return f"null as {name}"
        if stored == "create_time":
            return f"{milliseconds(self.engine, stored)} as {name}"
        return name if stored == name else f"{stored} as {name}"

    def _ledger(self, name: str) -> str:
        keys = {"gid": self.options.gid_column, "branch_id": self.options.branch_column}
        if name in keys:
            taken = ledger.as_text(self.engine, column(self.engine, keys[name])) if keys[name] else "null"
            return f"{taken} as {name}"
        return ledger.expression(self.engine, name, self.target.field(name).type)

    def types(self) -> dict[str, pa.DataType]:
        """Return the types of a driver's values."""
        if self.options.kind is Kind.LEDGER:
            return {field.name: ledger.carried(field.type) for field in self.target}
        return carried_types(self.options.kind)
