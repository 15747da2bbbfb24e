"""The progress of a Spark job, reported from time to time while it lasts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession

SECONDS_BETWEEN = 5.0


@contextlib.contextmanager
def progress_shown(spark: SparkSession, say: Callable[[str], None]) -> Iterator[None]:
    """Report every few seconds how many tasks are done, while the block runs.

    A block that is over sooner is not reported.
    """
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not over.wait(SECONDS_BETWEEN):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                done, all_ = (sum(getattr(one, name) for one in known) for name in ("numCompletedTasks", "numTasks"))
                say(f"{done} of {all_} tasks done")

    thread = threading.Thread(target=watch, name="twophase progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
