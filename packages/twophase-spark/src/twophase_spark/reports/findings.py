"""The findings of all runs of an audit in one Delta table.

Each run appends every message that is not plainly in order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so
from pyspark.sql.pandas.types import to_arrow_schema

from twophase_spark.reports.finding_columns import FINDING_COLUMNS
from twophase_spark.reports.report import Report


def append_findings(place: str, findings: DataFrame, report: Report) -> None:
    """Append this run's findings to the table, once, whatever task runs again.

    A run without any adds none; the first one makes the table, so that a reader finds its columns.

    Arguments:
        place: a folder, or the URL of a place in an object store.
    """
    run = {"run_id": F.lit(report.run_id), "as_of": F.lit(report.as_of).cast("timestamp")}
    rows = findings.select(*[column.alias(name) for name, column in run.items()], *FINDING_COLUMNS)
    if "://" not in place:
        place = str(Path(place).absolute())
        Path(place).mkdir(mode=0o700, parents=True, exist_ok=True)
    schema = pa.schema([field.with_nullable(True) for field in to_arrow_schema(rows.schema, timezone="UTC")])
    append = functools.partial(_append, place, report.run_id, schema)
    if rows.isEmpty():
        if not DeltaTable.is_deltatable(place):
            list(_append(place, report.run_id, schema, iter(())))
        return
    rows.coalesce(1).mapInArrow(append, "rows long").collect()


def _append(place: str, run_id: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Append the rows in one commit, which the run's number marks."""
    if DeltaTable.is_deltatable(place) and DeltaTable(place).transaction_version(run_id) is not None:
        return
    once = CommitProperties(app_transactions=[Transaction(run_id, 1)])
    rows = pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in batches))
    write_deltalake(place, rows, mode="append", schema_mode="merge", name="findings", commit_properties=once)
    yield from ()
