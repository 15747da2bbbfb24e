"""The data pipeline: Spark jobs over the coordinator's tables and the business databases.

Importing this package imports nothing heavy; `session.open_session` starts Spark, `audit.audit` needs only DataFrames.
In a notebook:

    from twophase.spark import register

    register(spark)
    spark.read.format("twophase").option("url", "env:STORE_URL").option("table", "history").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

__all__ = ["consistent_cut", "register"]


def register(spark: SparkSession) -> SparkSession:
    """Make `spark.read.format("twophase")` and `spark.readStream.format("twophase")` known to a session.

    Again and again does no harm.

    Returns:
        The session, so that it can be written around the builder.
    """
    from twophase.spark.datasource.source import TwophaseSource  # noqa: PLC0415 -- PySpark is slow to import

    spark.dataSource.register(TwophaseSource)
    return spark


def consistent_cut(url: str) -> AbstractContextManager[dict[str, str]]:
    """Options by which several reads see one moment; see `datasource.cut.consistent_cut`."""
    from twophase.spark.datasource.cut import consistent_cut as cut  # noqa: PLC0415 -- PySpark is slow to import

    return cut(url)
