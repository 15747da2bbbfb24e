"""Lake and store as three views: `history`, `attempt` and `message`.

`history` and `attempt` come from both, each row once, and `message` from the store. The last manifest alone decides the
origin of rows: up to its numbers the lake's, behind them the store's. So no row is read twice, and a row that the store
has removed meanwhile is a gap that is reported.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, StructType

from twophase_spark import register
from twophase_spark.archive.facts import SHAPES
from twophase_spark.archive.lake import Lake, Manifest
from twophase_spark.archive.planning import ROWS_PER_TASK, behind_the_lake
from twophase_spark.archive.schemas import shown_of, target_of
from twophase_spark.datasource.options.looking import looked_into
from twophase_spark.datasource.options.read_options import ReadOptions, parse
from twophase_spark.datasource.partitions.parts import Stretch
from twophase_spark.datasource.partitions.planning import newest_seqs
from twophase_spark.datasource.schema.shaping import shape
from twophase_spark.datasource.schema.tables import Kind
from twophase_spark.datasource.stream import read_stretch

DAY = "dt"


class Sources:
    """The sources of the views: a lake, a store, or both.

    Arguments:
        lake: None for the store alone.
        store: options that name the store (`url`, and `snapshot` for one cut); None for the lake alone.
        payloads: `history` and `message` have a column of that name; reading it takes longer.
    """

    def __init__(
        self, spark: SparkSession, lake: Lake | None, store: Mapping[str, str] | None, *, payloads: bool = False
    ) -> None:
        """Read the manifests: their present contents are the lake."""
        assert lake is not None or store is not None, "something to look at"
        self._spark = register(spark)
        self._lake = lake
        self._store = store
        self._payloads = payloads
        self._manifests: Sequence[Manifest] = lake.manifests() if lake is not None else ()
        if lake is not None and self._manifests:
            lake.publish(self._manifests[-1])

    def make_views(self) -> None:
        """Create or replace the views; without a store there is no `message`."""
        self.history().createOrReplaceTempView("history")
        self.attempt().createOrReplaceTempView("attempt")
        self.audit_log().createOrReplaceTempView("audit_log")
        if self._store is not None:
            self._read(Kind.MESSAGE, {}).createOrReplaceTempView("message")

    def history(self) -> DataFrame:
        """Return every final message, once; `dt` is the day it was finished."""
        if self._store is None:
            return self._archived(Kind.HISTORY)
        if not self._manifests:  # rows that the store lacks were never archived
            live = self._read(Kind.HISTORY, {})
            return self._dated(live, Kind.HISTORY)
        live = self._behind_the_lake(parse({**self._store, "table": Kind.HISTORY}))
        return self._archived(Kind.HISTORY).unionByName(self._dated(live, Kind.HISTORY))

    def attempt(self) -> DataFrame:
        """Return every recorded attempt, once; `dt` is the day it was made."""
        if self._store is None:
            return self._archived(Kind.ATTEMPT)
        until_ms = self._manifests[-1].attempts_until_ms if self._manifests else 0
        live = self._dated(self._read(Kind.ATTEMPT, {"createdAfter": str(until_ms)}), Kind.ATTEMPT)
        return self._archived(Kind.ATTEMPT).unionByName(live) if self._manifests else live

    def audit_log(self) -> DataFrame:
        """Return every row of the audit log, once; `dt` is the day it was written."""
        if self._store is None:
            return self._archived(Kind.AUDIT_LOG)
        through = self._manifests[-1].audit_through if self._manifests else 0
        live = self._read(Kind.AUDIT_LOG, {}).where(F.col("seq") > through)
        dated = self._dated(live, Kind.AUDIT_LOG)
        return self._archived(Kind.AUDIT_LOG).unionByName(dated) if self._manifests else dated

    def _shown(self, kind: Kind) -> pa.Schema:
        return shown_of(kind, payloads=self._payloads)

    def _read(self, kind: Kind, options: Mapping[str, str]) -> DataFrame:
        assert self._store is not None, "asked only where there is a store"
        columns = ",".join(self._shown(kind).names)
        reader = self._spark.read.format("twophase").options(**self._store).options(**options)
        return reader.options(table=kind.value, columns=columns).load()

    def _behind_the_lake(self, requested: ReadOptions) -> DataFrame:
        """Return history that is not archived yet, none missing."""
        with looked_into(requested) as (database, _):
            spans = tuple(behind_the_lake(database, newest_seqs(database), self._manifests[-1], ROWS_PER_TASK))
        target = self._shown(Kind.HISTORY)
        schema = from_arrow_schema(target)
        if not spans:
            return self._spark.createDataFrame([], schema)
        read = functools.partial(_read_stretches, requested, target, spans)
        return self._spark.range(0, len(spans), 1, len(spans)).mapInArrow(read, schema)

    def _archived(self, kind: Kind) -> DataFrame:
        """Return the rows of the files that manifests name, and of no others."""
        assert self._lake is not None, "asked only where there is a lake"
        paths = [
            str(self._lake.path_of(file))
            for manifest in self._manifests
            for file in manifest.files
            if file.table == kind.value
        ]
        stored = from_arrow_schema(target_of(kind))
        shown = from_arrow_schema(self._shown(kind))
        if not paths:
            return self._dated(self._spark.createDataFrame([], shown), kind)
        dated = StructType([*stored.fields, *StructType().add(DAY, DateType()).fields])
        base = str(Path(self._lake.folder) / kind.value)
        frame = self._spark.read.schema(dated).option("basePath", base).parquet(*paths)
        if not self._payloads or kind is not Kind.HISTORY:
            return frame.select(*shown.names, DAY)
        unpacked = frame.select(*stored.names).mapInArrow(functools.partial(_unpacked, self._shown(kind)), shown)
        return self._dated(unpacked, kind)

    @staticmethod
    def _dated(frame: DataFrame, kind: Kind) -> DataFrame:
        return frame.withColumn(DAY, F.to_date(F.timestamp_millis(F.col(SHAPES[kind].time))))


def _read_stretches(
    requested: ReadOptions, target: pa.Schema, spans: tuple[Stretch, ...], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read_stretch(requested, target, spans[number])


def _unpacked(target: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield shape(batch, target)
