"""Lake and store as views.

`history`, `attempt`, `audit_log` and `queue_entry` come from both, each row once; `message` from the store. The lake's
marks alone decide the origin of rows: up to them the lake's, behind them the store's. So no row is read twice, and a
row that the store has removed meanwhile is a gap that is reported.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, StructType

from twophase_spark import register
from twophase_spark.lake.facts import SHAPES
from twophase_spark.lake.planning import ROWS_PER_TASK, behind_the_lake
from twophase_spark.lake.schemas import shown_of, target_of
from twophase_spark.lake.tables import DAY, Extent, File, Lake, Snapshot
from twophase_spark.source.options.looking import looked_into
from twophase_spark.source.options.read_options import ReadOptions, parse
from twophase_spark.source.partitions.parts import Stretch
from twophase_spark.source.partitions.planning import newest_seqs
from twophase_spark.source.schema.shaping import shape
from twophase_spark.source.schema.tables import Kind
from twophase_spark.source.stream import read_stretch


class Sources:
    """The sources of the views: a lake, a store, or both.

    Arguments:
        lake: as it is now; None for the store alone.
        store: options that name the store (`url`, and `snapshot` for one cut); None for the lake alone.
        payloads: `history` and `message` have a column of that name; reading it takes longer.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Snapshot | None,
        store: Mapping[str, str] | None,
        *,
        payloads: bool = False,
    ) -> None:
        """Look at nothing yet."""
        assert lake is not None or store is not None, "something to look at"
        self._spark = register(spark)
        self._lake = lake
        self._store = store
        self._payloads = payloads
        self._extent = Extent() if lake is None else lake.extent()

    def make_views(self) -> None:
        """Create or replace the views; without a store there is no `message`."""
        self.history().createOrReplaceTempView("history")
        self.attempt().createOrReplaceTempView("attempt")
        self.audit_log().createOrReplaceTempView("audit_log")
        self.queue_entry().createOrReplaceTempView("queue_entry")
        if self._store is not None:
            self._read(Kind.MESSAGE, {}).createOrReplaceTempView("message")

    def history(self) -> DataFrame:
        """Return every final message, once; `dt` is the day it was finished."""
        if self._store is None:
            return self._archived(Kind.HISTORY)
        if not self._extent.through:  # rows that the store lacks were never archived
            live = self._read(Kind.HISTORY, {})
            return self._dated(live, Kind.HISTORY)
        live = self._behind_the_lake(parse({**self._store, "table": Kind.HISTORY}))
        return self._archived(Kind.HISTORY).unionByName(self._dated(live, Kind.HISTORY))

    def attempt(self) -> DataFrame:
        """Return every recorded attempt, once; `dt` is the day it was made."""
        return self._by_time(Kind.ATTEMPT, self._extent.until_ms)

    def queue_entry(self) -> DataFrame:
        """Return every entry of a queue, once; `dt` is the day it was stored."""
        return self._by_time(Kind.QUEUE_ENTRY, self._extent.entries_until_ms)

    def _by_time(self, kind: Kind, until_ms: int) -> DataFrame:
        """Return what the lake has up to a time, and the store behind it."""
        if self._store is None:
            return self._archived(kind)
        live = self._dated(self._read(kind, {"createdAfter": str(until_ms)}), kind)
        return live if self._lake is None else self._archived(kind).unionByName(live)

    def audit_log(self) -> DataFrame:
        """Return every row of the audit log, once; `dt` is the day it was written."""
        if self._store is None:
            return self._archived(Kind.AUDIT_LOG)
        live = self._read(Kind.AUDIT_LOG, {}).where(F.col("seq") > self._extent.audit_through)
        dated = self._dated(live, Kind.AUDIT_LOG)
        return dated if self._lake is None else self._archived(Kind.AUDIT_LOG).unionByName(dated)

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
            spans = tuple(behind_the_lake(database, newest_seqs(database), self._extent, ROWS_PER_TASK))
        target = self._shown(Kind.HISTORY)
        schema = from_arrow_schema(target)
        if not spans:
            return self._spark.createDataFrame([], schema)
        read = functools.partial(_read_stretches, requested, target, spans)
        return self._spark.range(0, len(spans), 1, len(spans)).mapInArrow(read, schema)

    def _archived(self, kind: Kind) -> DataFrame:
        """Return the rows of the files that the lake's log names, and of no others."""
        assert self._lake is not None, "asked only where there is a lake"
        files = self._lake.files(kind)
        stored = target_of(kind)
        shown = self._shown(kind)
        wanted = stored if self._payloads and kind is Kind.HISTORY else shown
        if not files:
            return self._dated(self._spark.createDataFrame([], from_arrow_schema(shown)), kind)
        frame = self._files(self._lake.lake, files, wanted)
        if wanted is shown:
            return frame
        unpacked = frame.select(*wanted.names).mapInArrow(functools.partial(_unpacked, shown), from_arrow_schema(shown))
        return self._dated(unpacked, kind)

    def _files(self, lake: Lake, files: Sequence[File], wanted: pa.Schema) -> DataFrame:
        """Return these columns of the files, and their day.

        Spark reads a folder itself. It needs no package for an object store: its tasks read that as the archive does.
        """
        if lake.folder is not None:
            kind = files[0].kind
            dated = StructType([*from_arrow_schema(wanted).fields, *StructType().add(DAY, DateType()).fields])
            paths = [f"{lake.uri(kind)}/{file.path}" for file in files]
            return self._spark.read.schema(dated).option("basePath", lake.uri(kind)).parquet(*paths)
        read = functools.partial(_read_files, lake.place, files, wanted)
        frame = self._spark.range(0, len(files), 1, len(files)).mapInArrow(read, from_arrow_schema(wanted))
        return self._dated(frame, files[0].kind)

    @staticmethod
    def _dated(frame: DataFrame, kind: Kind) -> DataFrame:
        return frame.withColumn(DAY, F.to_date(F.timestamp_millis(F.col(SHAPES[kind].time))))


def _read_stretches(
    requested: ReadOptions, target: pa.Schema, spans: tuple[Stretch, ...], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read_stretch(requested, target, spans[number])


def _read_files(
    place: str, files: Sequence[File], wanted: pa.Schema, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for file in (files[number] for number in batch.column(0).to_pylist()):
            with Lake(place).files_of(file.kind).open_input_file(file.path) as source:
                reader = pq.ParquetFile(source, page_checksum_verification=True)
                yield from reader.iter_batches(columns=wanted.names)


def _unpacked(target: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield shape(batch, target)
