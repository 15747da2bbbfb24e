"""The processes that copy: this one, a local Spark, or a given session.

This process copies when there is little, a Spark of this machine when there is much. Starting Spark takes longer than
copying a hundred thousand rows; a nightly archive of a small system is over before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from twophase_spark.lake.run import Spread, Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twophase_spark.session import SessionSettings

ROWS_WITHOUT_SPARK_MAX = 250_000
_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


def here(function: Callable[[_Item], _Made], items: Sequence[_Item]) -> list[_Made]:
    """Run the function in this process, on one item after the other.

    >>> here(abs, [-1, 2])
    [1, 2]
    """
    return [function(item) for item in items]


def on(spark: SparkSession) -> Spread:
    """Return a spread with one task an item on the executors of a session.

    They must reach the store and the lake.
    """

    def spread(function: Callable[[_Item], _Made], items: Sequence[_Item]) -> list[_Made]:
        if not items:
            return []
        return spark.sparkContext.parallelize(items, len(items)).map(function).collect()

    return spread


def fitting(settings: SessionSettings, say: Callable[[str], None]) -> Workers:
    """Return workers for the command line: Spark only where it pays."""

    @contextlib.contextmanager
    def workers(rows: int) -> Iterator[Spread]:
        if rows <= ROWS_WITHOUT_SPARK_MAX:
            yield here
            return
        from twophase_spark.session import open_session  # noqa: PLC0415 -- PySpark is slow to import

        say("starting Spark")
        with open_session(settings) as spark:
            yield on(spark)

    return workers
