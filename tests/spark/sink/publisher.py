"""A Spark driver that publishes the rows in a folder: `python -m … ORDER.json`.

It stops at the point of its order. It is killed there with Java and all workers, so it only has to report that it has
reached the point.
"""

from __future__ import annotations

import os
import signal
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
from twophase_spark.session import SessionSettings, open_session
from twophase_spark.sink.task import Written
from twophase_spark.sink.writer import StreamWriter
from twophase_spark.source.data_source import TwophaseSource

SECONDS_WAITED_MAX = 60


class Order(msgspec.Struct, frozen=True):
    """The driver's task.

    `point`: a failpoint's name, empty for none; `mark`: the file that is created when it is reached. `kills_worker`:
    the first process that reaches the point dies there, and Spark tries its task again.
    """

    rows: str
    checkpoint: str
    options: dict[str, str]
    point: str
    mark: str
    kills_worker: bool = False


def stop_at(point: str, mark: str, *, kills_worker: bool) -> None:
    """Wait at a point instead of dying, until everything is killed.

    The mark shows that the point is reached.
    """

    def reach(name: str) -> None:
        if name != point:
            return
        try:
            Path(mark).touch(exist_ok=not kills_worker)  # of two that arrive at once, one is the first
        except FileExistsError:
            return
        if kills_worker:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(SECONDS_WAITED_MAX)

    failpoint.ARMED = bool(point)  # type: ignore[misc]
    failpoint.reach = reach  # type: ignore[misc]


class StoppingWriter(StreamWriter):
    """The product's writer, with a point set in its processes."""

    def __init__(self, options: dict[str, str], schema: StructType, point: str, mark: str, worker: str) -> None:
        super().__init__(options, schema)
        self._stop = (point, mark, worker == "True")

    def _stop_there(self) -> None:
        point, mark, kills_worker = self._stop
        stop_at(point, mark, kills_worker=kills_worker)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        self._stop_there()
        return super().write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 -- Spark's name
        self._stop_there()
        super().commit(messages, batchId)


class StoppingSource(TwophaseSource):
    """The product's source, with such a writer."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 -- Spark's name
        options = dict(self.options)
        point, mark, worker = (options.pop(name) for name in ("point", "mark", "worker"))
        return StoppingWriter(options, schema, point, mark, worker)


def main(order: Order) -> None:
    """Publish everything in the folder, or stop at the point."""
    settings = SessionSettings(
        cores=2, memory_mb=512, name="publisher", rows=0, extra=(("spark.master", "local[2,3]"),)
    )
    with open_session(settings) as spark:
        spark.dataSource.register(StoppingSource)
        frame = spark.readStream.schema("id long, name string").option("maxFilesPerTrigger", "1").json(order.rows)
        query = (
            frame.repartition(2, "id")
            .writeStream.format("twophase")
            .options(**order.options, point=order.point, mark=order.mark, worker=str(order.kills_worker))
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
