"""A suspect after both looks, as columns.

A violation counts that both looks saw; one that only one of them saw is still moving. A message may have several
effects that are being made: each look may see another one of them in part. So an effect or a branch is lacking only if
both looks lacked that one.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase_spark.rules.taxonomy import OPEN, VIOLATIONS, Flag

VANISHED = "cleaned meanwhile"
LACKING = ("missing", "unbooked", "unguarded")
"""Columns of `classify.lacking`."""
_EXPECTED = "was_expected"
_BEFORE = "_before"


def with_the_vanished(gids: DataFrame, looked: DataFrame, expected: DataFrame | None = None) -> DataFrame:
    """Return a row for every gid that was asked for.

    A gid whose rows have gone since cannot be checked any more.

    Arguments:
        gids: what was asked for.
        looked: what was found, classified. A ledger's rows for no branch prove nothing about a message.
        expected: gids that were open or broken before. Of one without its message, what is left may look in order.
    """
    found = gids.join(looked, "gid", "left")
    unknown = F.col("message").isNull() | F.col("message")["state"].isNull()
    nothing = [F.coalesce(F.size(side), F.lit(0)) <= 0 for side in ("producers", "barriers", "ledger")]
    gone = reduce(Column.__and__, nothing, unknown)
    if expected is not None:
        found = found.join(expected.distinct().withColumn(_EXPECTED, F.lit(True)), "gid", "left")
        gone |= F.coalesce(_EXPECTED, F.lit(False)) & unknown & (F.size("flags") == 0)
    marked = found.withColumns(
        {
            "flags": F.when(gone, _names((Flag.UNCHECKED,))).otherwise(F.col("flags")),
            "unknown": F.when(gone, F.array(F.lit(VANISHED))).otherwise(F.col("unknown")),
            "violation": F.coalesce("violation", F.lit(False)),
        }
    )
    return marked.drop(_EXPECTED)


def settle(first: DataFrame, second: DataFrame) -> DataFrame:
    """Return `second` with the flags that hold after both looks, and what both lacked.

    Arguments:
        first: (gid, flags, and the columns of `LACKING`) of every suspect.
        second: the same gids as they were found afterwards.
    """
    violations = _names(VIOLATIONS)
    now = F.col("flags")
    both = F.array_except(F.array_intersect(f"flags{_BEFORE}", now), _without_evidence())
    confirmed = F.array_intersect(both, violations)
    rest = F.array_except(now, violations)
    unconfirmed = F.array_except(F.array_intersect(now, violations), confirmed)
    moving = (F.size(unconfirmed) > 0) & (F.size(confirmed) == 0) & ~F.arrays_overlap(rest, _names(OPEN))
    moved = F.when(moving, _names((Flag.IN_FLIGHT,))).otherwise(F.array().cast("array<string>"))
    holds = F.concat(confirmed, rest, moved)
    ordered = F.filter(_names(tuple(Flag)), lambda name: F.array_contains(holds, name))
    compared = ("flags", *LACKING)
    joined = second.join(first.withColumnsRenamed({name: name + _BEFORE for name in compared}), "gid")
    lacked = joined.withColumns({name: F.array_intersect(name, name + _BEFORE) for name in LACKING})
    settled = lacked.withColumn("flags", ordered).drop(*[name + _BEFORE for name in compared])
    return settled.withColumn("violation", F.arrays_overlap("flags", violations))


def _without_evidence() -> Column:
    """Return the classes for which the looks have no effect or branch in common."""
    missing, unbooked, unguarded = (F.coalesce(F.size(name), F.lit(0)) <= 0 for name in LACKING)
    names = {Flag.MISSING_EFFECT: missing & unbooked, Flag.UNGUARDED_EFFECT: unguarded}
    return F.array_compact(F.array(*[F.when(none, F.lit(flag.value)) for flag, none in names.items()]))


def _names(flags: tuple[Flag, ...]) -> Column:
    return F.array(*[F.lit(flag.value) for flag in flags])
