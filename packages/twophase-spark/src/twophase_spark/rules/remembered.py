"""What an earlier run saw of a suspect: while the very same rows say the same of it, nobody waits for them again.

The second look waits for rows that may still arrive. An audit that comes again every few seconds meets the same broken
message every time, and of some no time is known (an orphan without a producer's row), so that they would be young for
ever and hold every round for a grace time. What was broken by these rows a grace time ago has been waited for; another
row of the gid, or another class, makes it as new.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so
from pyspark.sql.types import StructType

from twophase_spark.rules.taxonomy import VIOLATIONS

REMEMBERED = "remembered"
_SEEN = "digest_seen"
SEEN_SCHEMA = StructType().add("gid", "string").add(_SEEN, "long")


def digest() -> Column:
    """Of a classified row: everything that is known of the gid, whatever its order, and the promises it breaks.

    Through JSON, which names its fields: a hash of the columns passes over nulls.
    """
    violations = F.array(*[F.lit(flag.value) for flag in VIOLATIONS])
    sides = [F.sort_array(name).alias(name) for name in ("producers", "barriers", "ledger")]
    broken = F.array_intersect("flags", violations).alias("broken")
    return F.xxhash64(F.to_json(F.struct("message", "prepared_ms", *sides, broken)))


def with_remembered(findings: DataFrame, seen: DataFrame | None) -> DataFrame:
    """Add the column `remembered`: whether `seen` (see `SEEN_SCHEMA`, a gid once) has the gid with the same digest."""
    if seen is None:
        return findings.withColumn(REMEMBERED, F.lit(False))
    joined = findings.join(seen, "gid", "left")
    return joined.withColumn(REMEMBERED, F.coalesce(F.col(_SEEN) == digest(), F.lit(False))).drop(_SEEN)
