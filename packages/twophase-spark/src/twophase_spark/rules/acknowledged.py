"""The broken messages that a baseline acknowledges, as columns."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase_spark.rules.taxonomy import VIOLATIONS

ACKNOWLEDGED = "acknowledged"
_KNOWN = "flags_known"


def with_acknowledged(findings: DataFrame, baseline: DataFrame | None) -> DataFrame:
    """Add the column `acknowledged`.

    It is True for a message that is broken in no way but those of the baseline.

    Arguments:
        findings: (gid, flags, violation, …).
        baseline: (gid, flags), a gid once; None for an empty one.
    """
    if baseline is None:
        return findings.withColumn(ACKNOWLEDGED, F.lit(False))
    violations = F.array(*[F.lit(flag.value) for flag in VIOLATIONS])
    joined = findings.join(baseline.withColumnRenamed("flags", _KNOWN), "gid", "left")
    broken = F.array_intersect("flags", violations)
    is_known = F.col(_KNOWN).isNotNull() & (F.size(F.array_except(broken, F.col(_KNOWN))) == 0)
    return joined.withColumn(ACKNOWLEDGED, F.col("violation") & is_known).drop(_KNOWN)
