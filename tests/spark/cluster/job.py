"""A user's job on a cluster: it reads history through the source and publishes.

python job.py MASTER BUNDLE URL FOLDER SINK

SINK: the sink's options as JSON. The job reports where the reading ran, and publishes some orders. Publishing is one
task, slow enough that Spark speculates: a second attempt of it runs on the other executor. Each waits until both have
prepared everything, and both then want to be the one that counts. Their rows differ, like those of a source that gives
other rows each time. The session is the one with which doctor examines a cluster; its executors run the Python of this
program.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

ATTEMPTS = 2
ORDERS, ORDERS_APART = 100, 50
"""Number of orders of an attempt, and the difference from one attempt to the next."""
MEETING_SECONDS_MAX = 120
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def where(batches: Iterator[Any]) -> Iterator[Any]:
    """Report an executor's folder, its source of twophase, and its number of rows."""
    from pathlib import Path

    import pyarrow as pa

    import twophase

    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"folder": [str(Path.cwd())], "source": [str(twophase.__file__)], "rows": [rows]})


def attempt() -> int:
    """Return the number of this attempt of its task, from 0."""
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber()


def orders_of(number: int) -> range:
    """Return the orders of an attempt."""
    return range(number * ORDERS_APART, number * ORDERS_APART + ORDERS)


def orders(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the rows, on an executor."""
    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"id": list(orders_of(attempt()))})


def publish(spark: SparkSession, folder: str, options: dict[str, str]) -> None:
    """Publish in one task, of which two attempts end `write` at the same time."""
    from twophase_spark.sink.writer import BatchWriter
    from twophase_spark.source.data_source import TwophaseSource

    class MeetingWriter(BatchWriter):  # made here: what a function makes travels with it to executors
        def write(self, iterator: Iterator[Any]) -> Any:
            written = super().write(iterator)
            (Path(folder) / f"attempt-{attempt()}").write_text(str(Path.cwd()))
            deadline = time.monotonic() + MEETING_SECONDS_MAX
            while len(list(Path(folder).glob("attempt-*"))) < ATTEMPTS:
                assert time.monotonic() < deadline, "no second attempt began"
                time.sleep(0.05)
            return written

    class MeetingSource(TwophaseSource):
        def writer(self, schema: Any, overwrite: bool) -> Any:
            return MeetingWriter(self.options, schema)

    spark.dataSource.register(MeetingSource)
    frame = spark.range(0, 1, numPartitions=1).mapInArrow(orders, "id bigint")
    frame.write.format("twophase").mode("append").options(**options).save()


def main(master: str, bundle: str, url: str, folder: str, sink: str) -> None:
    """Run the job, and print what it found."""
    sys.path.insert(0, bundle)  # the driver's Python has no twophase either
    from twophase_spark.cluster.reach import cluster_session, reach

    options = {
        "spark.cores.max": "2",
        # A stage of one task may be speculated about after some time; others never are, as all their tasks must have
        # ended first.
        "spark.speculation": "true",
        "spark.speculation.quantile": "1.0",
        "spark.speculation.task.duration.threshold": "1s",
        # Without this wait both tasks would run on one executor, and the other executor would register after they end.
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        # An attempt that waited in vain fails the job: an attempt after it would not be a second one at the same time.
        "spark.task.maxFailures": "1",
        # Each Java lives for a minute, too short for thorough compilation to pay.
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
    }
    with cluster_session(master, Path(bundle), tuple(options.items())) as spark:
        from twophase_spark import register

        reader = register(spark).read.format("twophase").option("url", url).option("table", "history")
        frame = reader.option("columns", "node,seq,gid").load()
        found = frame.mapInArrow(where, "folder string, source string, rows bigint").collect()
        try:
            publish(spark, folder, json.loads(sink))
        except Exception:
            traceback.print_exc()  # now: a Java error has no text any more when its session has ended
            raise
        seen = [*reach(spark, url), *reach(spark, "sqlite:////nowhere/store.db")]
        print(json.dumps({"found": [row.asDict() for row in found], "troubles": [one.trouble for one in seen]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
