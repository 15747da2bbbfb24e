"""The data source `twophase`, as Spark knows it: options in, readers out."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from twophase.spark.datasource.batch import BatchReader
from twophase.spark.datasource.choosing import schema_of
from twophase.spark.datasource.stream import StreamReader
from twophase.spark.datasource.wanted import STREAM_ONLY, parse


class TwophaseSource(DataSource):
    """`spark.read.format("twophase")` and `spark.readStream.format("twophase")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Take the options; they are checked when it is known what they are for."""
        self.options: dict[str, str] = dict(options)

    @classmethod
    def name(cls) -> str:
        """What follows `format`."""
        return "twophase"

    def schema(self) -> StructType:
        """The columns, where the user gives none. Spark does not say yet whether it will be a stream."""
        words = {name.lower() for name in self.options}
        may_stream = "table" not in words or bool(words.intersection(name.lower() for name in STREAM_ONLY))
        return schema_of(parse(self.options, streaming=may_stream))

    def reader(self, schema: StructType) -> BatchReader:
        """For `read`."""
        return BatchReader(parse(self.options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 -- Spark's name
        """For `readStream`."""
        return StreamReader(parse(self.options, streaming=True), schema)
