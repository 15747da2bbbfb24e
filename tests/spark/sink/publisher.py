"""A Spark driver that publishes what stands in a folder, and stops where it is told to: `python -m … ORDER.json`.

It is killed there with Java and all workers, so it only has to say that it has come.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType

from twophase.core import failpoint
from twophase.spark.datasource.source import TwophaseSource
from twophase.spark.session import SessionSettings, open_session
from twophase.spark.sink.task import Written
from twophase.spark.sink.writer import StreamWriter

SECONDS_WAITED_MAX = 60


class Order(msgspec.Struct, frozen=True):
    """What is to be done. `point`: a failpoint's name, empty for none; `mark`: the file that says it was reached."""

    rows: str
    checkpoint: str
    options: dict[str, str]
    point: str
    mark: str


def stop_at(point: str, mark: str) -> None:
    """Instead of dying, say so and wait for the one who kills everything."""

    def reach(name: str) -> None:
        if name == point:
            Path(mark).touch()
            time.sleep(SECONDS_WAITED_MAX)

    failpoint.ARMED = bool(point)  # type: ignore[misc]
    failpoint.reach = reach  # type: ignore[misc]


class StoppingWriter(StreamWriter):
    """The product's writer, in whose processes a point is set."""

    def __init__(self, options: dict[str, str], schema: StructType, point: str, mark: str) -> None:
        super().__init__(options, schema)
        self._stop = (point, mark)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        stop_at(*self._stop)
        return super().write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 -- Spark's name
        stop_at(*self._stop)
        super().commit(messages, batchId)


class StoppingSource(TwophaseSource):
    """The product's source, with such a writer."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 -- Spark's name
        options = dict(self.options)
        point, mark = options.pop("point"), options.pop("mark")
        return StoppingWriter(options, schema, point, mark)


def main(order: Order) -> None:
    """Publish everything that is there, or come to the point."""
    with open_session(SessionSettings(cores=2, memory_mb=512, name="publisher", short=True)) as spark:
        spark.dataSource.register(StoppingSource)
        frame = spark.readStream.schema("id long, name string").option("maxFilesPerTrigger", "1").json(order.rows)
        query = (
            frame.repartition(2, "id")
            .writeStream.format("twophase")
            .options(**order.options, point=order.point, mark=order.mark)
            .option("checkpointLocation", order.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            sys.exit(str(error))  # now: it asks Java for its text, and Java ends with the block


if __name__ == "__main__":
    main(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Order))
