"""The suspects of earlier runs, which need no second look.

The second look waits for rows that may still arrive. An audit that repeats every few seconds meets the same broken
message every time, and of some no time is known (an orphan without a producer's row), so that they would be young for
ever and hold every round for a grace time. A message that was broken by the very same rows a grace time ago has been
seen twice by now; another row of the gid, or another class, makes it new.
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
    """Return the digest of a classified row.

    It covers everything that is known of the gid, in any order, and the promises it breaks. It is made through JSON,
    which names its fields: a hash of the columns skips nulls.
    """
    violations = F.array(*[F.lit(flag.value) for flag in VIOLATIONS])
    sides = [F.sort_array(name).alias(name) for name in ("producers", "barriers", "ledger", "differing")]
    broken = F.array_intersect("flags", violations).alias("broken")
    return F.xxhash64(F.to_json(F.struct("message", "prepared_ms", *sides, broken)))


def with_remembered(findings: DataFrame, seen: DataFrame | None) -> DataFrame:
    """Add the column `remembered`: True when `seen` has the gid with the same digest.

    `seen` is as `SEEN_SCHEMA`, a gid once.
    """
    if seen is None:
        return findings.withColumn(REMEMBERED, F.lit(False))
    joined = findings.join(seen, "gid", "left")
    return joined.withColumn(REMEMBERED, F.coalesce(F.col(_SEEN) == digest(), F.lit(False))).drop(_SEEN)
