"""A user's job on a cluster: an audit, a stream of history, and an archive.

python pipeline_job.py MASTER BUNDLE FOLDER LOCATIONS

LOCATIONS: the arguments of `twophase_spark.audit` as JSON. FOLDER is one that driver and executors share. All three
parts run their tasks on the executors, whose Python has no twophase but the bundle's.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
OPTIONS = {
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
    # Each Java lives for a minute, too short for thorough compilation to pay.
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
}
ROWS_PER_TASK = 10


def main(master: str, bundle: str, folder: str, arguments: str) -> None:
    """Run the job, and print what it found."""
    locations: dict[str, Any] = json.loads(arguments)
    sys.path.insert(0, bundle)  # the driver's Python has no twophase either
    from twophase_spark.cluster.reach import cluster_session

    with cluster_session(master, Path(bundle), tuple(OPTIONS.items())) as spark:
        from twophase.core.hooks import WallClock
        from twophase_spark import audit, register
        from twophase_spark.inputs import ahead
        from twophase_spark.lake.run import Settings, archive
        from twophase_spark.lake.workers import on

        ahead.ROWS_MAX = 0  # the driver would read so few rows itself
        with audit(spark, **locations, grace_s=0, late_s=1e12) as (report, findings):
            broken = {row["gid"]: row["flags"] for row in findings.select("gid", "flags").collect()}
        url, lake = locations["coordinators"][0], f"{folder}/lake"
        stream = register(spark).readStream.format("twophase").options(url=url, maxRowsPerBatch=20).load()
        written = stream.select("node", "seq").writeStream.format("parquet").trigger(availableNow=True)
        written = written.option("path", f"{folder}/stream").option("checkpointLocation", f"{folder}/checkpoint")
        written.start().awaitTermination()
        spread = on(spark)
        settings = Settings(WallClock(), lambda _: contextlib.nullcontext(spread), rows_per_task=ROWS_PER_TASK)
        archived = archive(url, lake, settings)
        found = {"messages": report.result.messages, "broken": broken, "archived": archived.history}
    print(json.dumps(found | {"files": archived.files}))


if __name__ == "__main__":
    main(*sys.argv[1:])
