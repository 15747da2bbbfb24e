"""A user's job on a cluster: reads history through the source, and says where that was done.

python job.py MASTER BUNDLE URL FOLDER

Executors run the Python that PYSPARK_PYTHON names; a session made in a program looks at no option for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


def where(batches: Iterator[Any]) -> Iterator[Any]:
    """On an executor: in which folder it works, whence it has twophase, and how many rows came."""
    from pathlib import Path

    import pyarrow as pa

    import twophase

    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"folder": [str(Path.cwd())], "source": [str(twophase.__file__)], "rows": [rows]})


def main(master: str, bundle: str, url: str, folder: str) -> None:
    """Run it, and print what it found."""
    options = {
        "spark.submit.pyFiles": bundle,
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        "spark.cores.max": "2",
        "spark.locality.wait": "0",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(master).appName("a job on two workers")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        from twophase.spark import register
        from twophase.spark.cluster.reach import reach

        reader = register(spark).read.format("twophase").option("url", url).option("table", "history")
        frame = reader.option("columns", "node,seq,gid").load()
        found = frame.mapInArrow(where, "folder string, source string, rows bigint").collect()
        seen = [*reach(spark, url), *reach(spark, "sqlite:////nowhere/store.db")]
        print(json.dumps({"found": [row.asDict() for row in found], "troubles": [one.trouble for one in seen]}))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
