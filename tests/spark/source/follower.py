"""A program that follows a store into a folder, one file a batch.

    python -m tests.spark.source.follower URL FOLDER POINT BATCH

`test_killed.py` kills it at the point that it names. It waits at POINT of batch BATCH, after a note on standard output,
until it is killed; with POINT `none` it ends by itself. Points: `before` the batch is read, `reading` in a worker in
the middle of a read, `written` when the file stands and Spark has not yet noted the batch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from twophase_spark import register
from twophase_spark.session import SessionSettings, open_session

ROWS_PER_BATCH = 1_000
SECONDS_WAITED_MAX = 60
NOT_IN_TIME, STARTS_MAX = "Python worker failed to connect back", 5
"""The text of a late start of Python, and the bound on starts of a stream.

Spark gives a source's Python 10 s to start, whatever the machine is doing. The program that runs the stream then starts
it again, as this one does.
"""


def main(url: str, folder: Path, point: str, batch: int) -> None:
    """Follow to the end, or to the point."""

    def reached(name: str, number: int) -> None:
        if name == point and number == batch:
            (folder / "at-point").touch()
            time.sleep(SECONDS_WAITED_MAX)

    def write(frame: DataFrame, number: int) -> None:
        def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for one in batches:
                yield one.slice(0, one.num_rows // 2)
                reached("reading", number)
                yield one.slice(one.num_rows // 2)

        reached("before", number)
        frame.mapInArrow(slowly, frame.schema).write.mode("overwrite").parquet(str(folder / "rows" / f"batch={number}"))
        reached("written", number)

    told = (("spark.sql.pyspark.jvmStacktrace.enabled", "true"),)  # the cause of a stream's end lies deep
    with open_session(SessionSettings(cores=2, memory_mb=512, name="follower", rows=0, extra=told)) as spark:
        register(spark)
        for left in reversed(range(STARTS_MAX)):
            reader = spark.readStream.format("twophase").option("url", url).option("columns", "node,seq,gid")
            query = (
                reader.option("maxRowsPerBatch", str(ROWS_PER_BATCH))
                .option("onGap", "report")
                .load()
                .writeStream.foreachBatch(write)
                .option("checkpointLocation", str(folder / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                text = str(error)  # now: it asks Java for it, and Java ends with the block
                if NOT_IN_TIME not in text or not left:
                    sys.exit(text)
            else:
                return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
