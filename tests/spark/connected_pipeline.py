"""A program that follows a store and publishes its rows through Spark Connect.

    python -m tests.spark.connected_pipeline JSON

JSON has the URL of the store, the sink's options, and the folder of the checkpoint. The server is the one that comes
with PySpark.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.connected import SMALL
from twophase_spark import register, sink_progress, stream_lag


class Pipeline(msgspec.Struct):
    """The arguments of the program."""

    store: str
    sink: dict[str, str]
    folder: str


def follow(spark: SparkSession, given: Pipeline) -> StreamingQuery:
    """Publish a message for each new row of history, up to the end of it."""
    reader = spark.readStream.format("twophase").options(url=given.store, table="history")
    query = (
        reader.options(start="beginning", columns="gid,seq")
        .load()
        .selectExpr("seq as id", "gid as name")
        .writeStream.format("twophase")
        .options(**given.sink)
        .option("publisher", "followed")
        .option("checkpointLocation", str(Path(given.folder) / "checkpoint"))
        .queryName("follow")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def said_of(query: StreamingQuery, given: Pipeline) -> dict[str, Any]:
    """Return what the query reports, and the sink's ledger of it."""
    lag = stream_lag(query)
    progress = sink_progress(given.sink["ledger"], "followed", query)
    assert progress is not None
    return {
        "lag": None if lag is None else lag.rows,
        "decision": progress.decision,
        "left_out": progress.left_out,
        "is_of_query": progress.query == str(query.id),
    }


def main(given: Pipeline) -> int:
    """Print what was reported, as JSON."""
    builder = SparkSession.builder.remote("local[2]")
    for name, value in SMALL.items():
        builder = builder.config(name, value)
    spark = register(builder.getOrCreate())
    rows = spark.range(1, 4).selectExpr("id", "concat('o', id) as name")
    for _ in range(2):
        rows.write.format("twophase").mode("append").options(**given.sink).option("publisher", "written").save()
    said = [said_of(follow(spark, given), given)]
    refused = ""
    try:
        twice = rows.union(rows).write.format("twophase").mode("append")
        twice.options(**given.sink).option("publisher", "twice").save()
    except Exception as error:  # noqa: BLE001 -- its text is what the test is about
        refused = str(error)
    sys.stdout.write(msgspec.json.encode({"streams": said, "refused": refused}).decode() + "\n")
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(msgspec.json.decode(sys.argv[1], type=Pipeline)))
