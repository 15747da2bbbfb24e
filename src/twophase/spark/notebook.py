"""The audit for who has a session already: locations in, report and DataFrame of findings out; it writes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from twophase.spark.locations import Role, parse_coordinator, parse_named, require_distinct
from twophase.spark.plan import Plan
from twophase.spark.report import Report
from twophase.spark.run import examine, look_into


def audit(
    spark: SparkSession,
    coordinators: Sequence[str],
    producers: Sequence[str],
    consumers: Sequence[str],
    ledgers: Sequence[str],
    *,
    grace_s: float,
    late_s: float,
) -> tuple[Report, DataFrame]:
    """See `twophase.spark.audit`."""
    locations = [parse_coordinator(text) for text in coordinators]
    for role, texts in ((Role.PRODUCER, producers), (Role.CONSUMER, consumers), (Role.LEDGER, ledgers)):
        locations += [parse_named(role, text) for text in texts]
    require_distinct(locations)
    cores = spark.sparkContext.defaultParallelism
    plan = Plan(tuple(locations), grace_s=grace_s, late_s=late_s, cores=cores)
    report, audited, _ = examine(spark, plan, look_into(plan))
    return report, audited.findings
