"""The audit's answer by DuckDB, in two ways.

The *twin* works as the audit does: `separate.sql` sets apart by sums and hashes what is in order, and only the others
are joined and judged. So its time is a yardstick for Spark's. The *oracle* joins and judges every message: it is the
judge of what is right. Both judge by `oracle.sql`, which is written apart from the audit's own columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb

from tests.spark.cases import IDENTITY, SCOPE
from tests.spark.scale import TABLES
from twophase_spark.rules.scope import Scope

Counts = dict[str, int]
Ask = Callable[..., Counts]
_HERE = Path(__file__).parent
_OTHERS = "create or replace view others.{table} as from whole.{table} semi join whole.separated using (gid)"


@contextlib.contextmanager
def opened(folder: Path, memory_mb: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the Parquet of `scale` as four views, on two threads."""
    with duckdb.connect(config={"threads": 2, "memory_limit": f"{memory_mb}MB"}) as connection:
        connection.execute("set enable_progress_bar = false")
        connection.execute(f"set temp_directory = '{folder / 'duckdb'}'")
        connection.execute("create schema whole; create schema others")
        for table in TABLES:
            connection.execute(f"create view whole.{table} as from read_parquet('{folder / table}/*.parquet')")
        yield connection


def by_oracle(connection: duckdb.DuckDBPyConnection, scope: Scope = SCOPE) -> Counts:
    """Return the number of messages, and of those of each class.

    Every message is joined and judged.
    """
    connection.execute("set schema 'whole'")
    return _judged(connection, scope)


def by_twin(connection: duckdb.DuckDBPyConnection, scope: Scope = SCOPE) -> Counts:
    """Return the same by the audit's own algorithm."""
    connection.execute("set schema 'whole'")
    connection.execute((_HERE / "separate.sql").read_text().format(as_of_ms=scope.as_of_ms))
    for table in TABLES:
        connection.execute(_OTHERS.format(table=table))
    ordinary = connection.execute("select coalesce(sum(messages), 0) from separated where gid is null").fetchone()
    assert ordinary is not None
    connection.execute("set schema 'others'")
    judged = _judged(connection, scope)
    return judged | {"messages": judged["messages"] + int(ordinary[0])}


def _judged(connection: duckdb.DuckDBPyConnection, scope: Scope) -> Counts:
    sql = (_HERE / "oracle.sql").read_text()
    cursor = connection.execute(sql.format(as_of_ms=scope.as_of_ms, late_ms=scope.late_ms, identity=IDENTITY))
    row = cursor.fetchone()
    assert row is not None
    return dict(zip([column[0] for column in cursor.description], row, strict=True))
