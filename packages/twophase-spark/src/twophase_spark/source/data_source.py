"""The data source `twophase` for Spark: options in, readers and writers out."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from twophase.core.errors import ConfigurationError
from twophase_spark.source.batch import BatchReader
from twophase_spark.source.options.choosing import schema_of
from twophase_spark.source.options.given import given_options, is_of_table, kept_in, kept_options
from twophase_spark.source.options.read_options import OPTIONS, STREAM_ONLY, parse
from twophase_spark.source.stream import StreamReader

if TYPE_CHECKING:
    from twophase_spark.sink.writer import BatchWriter, StreamWriter


class TwophaseSource(DataSource):
    """`format("twophase")` of `read`, `readStream`, `write` and `writeStream`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Keep the options; they are checked when their use is known."""
        self.options: dict[str, str] = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "twophase"

    def schema(self) -> StructType:
        """Return the columns, where the user gives none.

        Spark does not show yet whether the read will be a stream.
        """
        words = {name.lower() for name in self.options}
        may_stream = "table" not in words or bool(words.intersection(name.lower() for name in STREAM_ONLY))
        options = parse(self.options, streaming=may_stream)
        schema = schema_of(options)
        return kept_in(schema, given_options(self.options, OPTIONS, "source")) if is_of_table(self.options) else schema

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader for `read`."""
        return BatchReader(parse(kept_options(schema, self.options)), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 -- Spark's name
        """Return the reader for `readStream`."""
        return StreamReader(parse(kept_options(schema, self.options), streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 -- Spark's signature
        """Return the writer for `write`.

        Published messages cannot be taken back, so there is nothing to overwrite.
        """
        if overwrite:
            raise ConfigurationError("Messages cannot be overwritten.", remedy='Write with mode("append").')
        from twophase_spark.sink.writer import BatchWriter  # noqa: PLC0415 -- a read needs no SQLAlchemy

        return BatchWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802 -- Spark's
        """Return the writer for `writeStream`, of output mode append or update."""
        if overwrite:
            raise ConfigurationError("Messages cannot be overwritten.", remedy='Stream with outputMode("append").')
        from twophase_spark.sink.writer import StreamWriter  # noqa: PLC0415 -- the same

        return StreamWriter(self.options, schema)
