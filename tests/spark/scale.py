"""The planted truth at any size, made by Spark itself.

It holds the kinds of `cases`, each repeated, as Parquet. A template for each kind stands in four small tables; the
numbers 0 … n-1 are joined with them, so ten million messages a side take no more of the driver than ten.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from tests.spark.cases import ALL, IN_ORDER, Case, inputs_of
from twophase_spark.rules.facts import Inputs

PLANTED_PER_CENT = 0.02
"""Share of odd messages in per cent.

They stand for a system where much fails; the rest is in order.
"""
DELIVERED = IN_ORDER[0]
SHARE_OF_OTHER_GOOD = 50
TABLES = ("journal", "producers", "consumers", "ledgers")


def times_of(count: int) -> list[tuple[Case, int]]:
    """Return each kind with its number of messages.

    The numbers differ, so that no class can stand in for another.
    """
    odd = [case for case in ALL if case not in IN_ORDER]
    scale = max(1, int(count * PLANTED_PER_CENT / 100 / len(odd)))
    times = [(case, scale + place) for place, case in enumerate(odd)]
    times += [(case, count // SHARE_OF_OTHER_GOOD // len(IN_ORDER)) for case in IN_ORDER[1:]]
    return [*times, (DELIVERED, count - sum(number for _, number in times))]


def expected_of(count: int) -> Counter[str]:
    """Return the number of messages by class."""
    found: Counter[str] = Counter()
    for case, times in times_of(count):
        for flag in case.flags:
            found[flag] += times
    return found


def write(spark: SparkSession, folder: Path, count: int, files: int) -> None:
    """Write the four tables of `count` messages, spread as a hash spreads them."""
    numbers = spark.range(0, count, numPartitions=files)
    template = F.lit(DELIVERED.gid)
    end = 0
    bounds: list[tuple[int, str]] = []
    for case, times in times_of(count)[:-1]:
        end += times
        bounds.append((end, case.gid))
    for bound, gid in reversed(bounds):
        template = F.when(F.col("id") < bound, F.lit(gid)).otherwise(template)
    # Like twophase's own in form, 28 characters, in no order, as in tables that other services filled.
    new_gid = F.concat(F.lit("tp01"), F.substring(F.md5(F.col("id").cast("string")), 1, 24))
    named = numbers.select(new_gid.alias("new_gid"), template.alias("gid"))
    for name, frame in zip(TABLES, inputs_of(spark, [case for case, _ in times_of(count)]).sides(), strict=True):
        columns = frame.columns
        (
            named.join(F.broadcast(frame), "gid")
            .withColumn("gid", F.col("new_gid"))
            .select(*columns)
            .write.mode("overwrite")
            .option("compression", "zstd")
            .parquet(str(folder / name))
        )


def read(spark: SparkSession, folder: Path) -> Inputs:
    """Return the four tables as inputs of an audit."""
    return Inputs(*(_table(spark, folder / name) for name in TABLES))


def _table(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.parquet(str(path))
