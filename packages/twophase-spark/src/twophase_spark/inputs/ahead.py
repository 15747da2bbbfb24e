"""The rows of a small audit, read by the driver while Spark starts.

Spark's tasks need a Python worker each, which starts for longer than all of these rows take to be read. Rows that turn
out to be many, or large, are left to the tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Thread

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from twophase_spark.locations import Role
from twophase_spark.readers.probe import Source, rows_in
from twophase_spark.readers.rows import arrow_schema, read_slice

ROWS_MAX = 500_000
BYTES_MAX = 128 * 1024 * 1024
"""Bound on the rows' size in Arrow.

A message with one call has some 80 bytes a row.
"""


class Kept(msgspec.Struct, frozen=True):
    """Every row of every source, or those of some gids, by role.

    `read_s`: the monotonic time at which all had been read.
    """

    tables: Mapping[str, pa.Table]
    read_s: float

    def of(self, gids: Sequence[str]) -> dict[str, pa.Table]:
        """Return the rows of these gids."""
        asked = pc.SetLookupOptions(pa.array(gids, pa.string()))
        return {
            role: table.filter(pc.call_function("is_in", [table.column("gid")], asked))
            for role, table in self.tables.items()
        }

    def has(self, gids: Sequence[str], tables: Mapping[str, pa.Table]) -> bool:
        """Return True when these are the rows of these gids.

        Rows of one message at several coordinators may have no order; then it may be False.
        """
        of_these = self.of(gids)
        roles = {role for found in (of_these, tables) for role, table in found.items() if table.num_rows}
        return all(
            role in of_these and role in tables and _in_order(of_these[role]).equals(_in_order(tables[role]))
            for role in roles
        )


def _in_order(table: pa.Table) -> pa.Table:
    scalars = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    return table.sort_by([(name, "ascending") for name in scalars]).combine_chunks()


class Ahead(msgspec.Struct, frozen=True):
    """A reading under way.

    Arguments:
        as_of_ms: this machine's time before it began.
        kept: returns what was read, None where that is too much; raises `CannotRead` as `readers.rows.read_slice`.
    """

    as_of_ms: int
    kept: Callable[[], Kept | None]


def read_ahead(sources: Sequence[Source]) -> Ahead:
    """Begin to read every row of these sources in a thread of its own."""
    as_of_ms = time.time_ns() // 1_000_000
    if rows_in(sources) > ROWS_MAX or any(map(_is_endless, sources)):
        return Ahead(as_of_ms, lambda: None)
    reading: Future[Kept | None] = Future()

    def read() -> None:
        try:
            reading.set_result(_read(sources))
        except BaseException as error:  # noqa: BLE001 -- `kept` raises it
            reading.set_exception(error)

    # The thread is a daemon: a process that ends does not wait for a database.
    Thread(target=read, name="rows", daemon=True).start()
    return Ahead(as_of_ms, reading.result)


def _is_endless(source: Source) -> bool:
    """Return True for a table of unknown size on MySQL.

    Its driver reads to the end, however soon it is closed.
    """
    return source.location.engine == "mysql" and not source.bounds


def _read(sources: Sequence[Source]) -> Kept | None:
    batches: dict[Role, list[pa.RecordBatch]] = {}
    rows = size = 0
    for source in sorted(sources, key=lambda one: list(Role).index(one.location.role)):
        for part in source.slices:
            for batch in read_slice(source, part, is_shared=True):
                batches.setdefault(source.location.role, []).append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
                if rows > ROWS_MAX or size > BYTES_MAX:
                    return None
    return Kept(
        {role: pa.Table.from_batches(found, arrow_schema(role)) for role, found in batches.items()}, time.monotonic()
    )
