"""The reader behind `spark.read.format("twophase")`.

The read is planned once on the driver, and done by tasks, each in one snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from twophase_spark.source.options.choosing import target_of
from twophase_spark.source.options.read_options import ReadOptions
from twophase_spark.source.partitions.parts import Part
from twophase_spark.source.partitions.planning import plan
from twophase_spark.source.partitions.reading import read_part


class BatchReader(DataSourceReader):
    """Reads one table.

    `pushFilters` is not implemented on purpose: see `read_options`.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Keep the options and the columns."""
        self._options = options
        self._schema = schema
        target_of(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Return one part a task; Spark asks for at least one."""
        return list(plan(self._options)) or [Part()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part."""
        assert isinstance(partition, Part), "Spark hands back what was planned"
        if not partition.ranges:
            return
        yield from read_part(self._options, target_of(self._options, self._schema), partition)
