"""Everything known about a gid, from all sides, in one row.

The four inputs are put end to end and grouped once by gid: one shuffle, where full outer joins of the same inputs take
three and measured slower. So a gid that only one side knows is a row like any other, and no side is the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so
from pyspark.sql.types import StructType

from twophase.core.lifecycle import State
from twophase_spark.locations import Role
from twophase_spark.schemas import JOURNAL, spark_schema

PRODUCER_ROW_OF_LEDGER = "00"
"""The branch under which a ledger books the producer's own side."""

IN_PART = " in part"
"""End of the branch id of an effect with fewer rows than it must have."""

LEFT_OUT = "left out"
"""The role of a ledger's rows that its condition leaves out."""

_KEYS = ("source", "gid")
"""Columns of `JOURNAL` that are no part of the message."""
_EFFECT_TYPE = "struct<source:string,branch_id:string>"
_PRODUCER_TYPE = "struct<source:string,reason:string>"
_LIVE = (int(State.PREPARED), int(State.SUBMITTED))
_FINAL = (int(State.SUCCEEDED), int(State.FAILED))
_ENDED = "ended"
_DIFFERENCE_TYPE = "struct<source:string,branch_id:string,agrees:string>"


class Inputs(NamedTuple):
    """The rows to compare; any side may be empty.

    The columns are those of `schemas` (JOURNAL, PRODUCER, EFFECT, EFFECT, DIFFERENCE, EFFECT). Without a condition on
    payload and row there are no `differences`. `left_out`: effects in rows that a ledger's condition leaves out; they
    are read for a closer look only.
    """

    journal: DataFrame
    producers: DataFrame
    consumers: DataFrame
    ledgers: DataFrame
    differences: DataFrame | None = None
    left_out: DataFrame | None = None

    def sides(self) -> list[DataFrame]:
        """Return what was read of each side; no differences, and nothing left out."""
        return [self.journal, self.producers, self.consumers, self.ledgers]

    def each(self, make: Callable[[DataFrame], DataFrame]) -> Inputs:
        """Return the inputs that `make` makes of these."""
        journal, producers, consumers, ledgers = map(make, self.sides())
        differences, left_out = (None if one is None else make(one) for one in (self.differences, self.left_out))
        return Inputs(journal, producers, consumers, ledgers, differences, left_out)


def long_form(inputs: Inputs) -> DataFrame:
    """Return all inputs end to end.

    The columns are (role, source, gid, message, prepared_ms, producer, effect, difference).
    """
    journal, producers, consumers, ledgers = inputs.sides()
    message = F.struct(*[F.col(name) for name in JOURNAL.names if name not in _KEYS])
    message_type = _without(spark_schema(JOURNAL), _KEYS).simpleString()
    effect = F.struct("source", "branch_id")
    parts = [
        _part(journal, Role.COORDINATOR, F.col("source"), message=message, message_type=message_type),
        _part(
            producers,
            Role.PRODUCER,
            F.col("source"),
            message_type=message_type,
            producer=F.struct("source", "reason"),
            prepared=F.col("prepared_ms"),
        ),
        _part(consumers, Role.CONSUMER, F.col("source"), message_type=message_type, effect=effect),
        _part(ledgers, Role.LEDGER, F.col("source"), message_type=message_type, effect=effect),
    ]
    if inputs.differences is not None:
        difference = F.when(F.col("differs"), F.struct("source", "branch_id", "agrees"))
        parts.append(
            _part(inputs.differences, Role.LEDGER, F.col("source"), message_type=message_type, difference=difference)
        )
    if inputs.left_out is not None:
        parts.append(_part(inputs.left_out, LEFT_OUT, F.col("source"), message_type=message_type, effect=effect))
    return reduce(DataFrame.unionByName, parts)


def _without(schema: StructType, names: Collection[str]) -> StructType:
    return StructType([field for field in schema.fields if field.name not in names])


def _part(
    frame: DataFrame,
    role: str,
    source: Column,
    *,
    message_type: str,
    message: Column | None = None,
    producer: Column | None = None,
    prepared: Column | None = None,
    effect: Column | None = None,
    difference: Column | None = None,
) -> DataFrame:
    def or_null(column: Column | None, kind: str) -> Column:
        return (F.lit(None) if column is None else column).cast(kind)

    return frame.select(
        F.lit(str(role)).alias("role"),
        source.alias("source"),
        F.col("gid"),
        or_null(message, message_type).alias("message"),
        or_null(prepared, "bigint").alias("prepared_ms"),
        or_null(producer, _PRODUCER_TYPE).alias("producer"),
        or_null(effect, _EFFECT_TYPE).alias("effect"),
        or_null(difference, _DIFFERENCE_TYPE).alias("difference"),
    )


def whole_effects(ledgers: DataFrame, rows_per_effect: Mapping[str, int]) -> DataFrame:
    """Return one row for each effect of ledgers that have several rows for one.

    An effect with fewer rows has a branch id that ends with `IN_PART`; one with more rows comes twice.

    Arguments:
        ledgers: rows of `schemas.EFFECT`.
        rows_per_effect: by source; the rows of others stay as they are.
    """
    if not rows_per_effect:
        return ledgers
    due = F.lit(0)
    for source, count in rows_per_effect.items():
        due = F.when(F.col("source") == source, F.lit(count)).otherwise(due)
    has_several = (due > 0) & _is_booked(F.col("branch_id"))
    branch_id, rows = F.col("branch_id"), F.col("count")
    effects = (
        F.when(rows < due, F.array(F.concat(branch_id, F.lit(IN_PART))))
        .when(rows == due, F.array(branch_id))
        .otherwise(F.array(branch_id, branch_id))
    )
    counted = ledgers.where(has_several).groupBy("source", "gid", "branch_id").count()
    made = counted.select("source", "gid", F.explode(effects).alias("branch_id"))
    return ledgers.where(~has_several).unionByName(made)


def _is_booked(branch_id: Column) -> Column:
    return ~F.coalesce(branch_id, F.lit("")).isin("", PRODUCER_ROW_OF_LEDGER)


def by_gid(long: DataFrame) -> DataFrame:
    """Return one row per gid.

    Its columns are (gid, message, coordinators, live, prepared_ms, producers, barriers, ledger, differing, left_out).
    `message` is the one of the highest state: a message that was read both live and final is final. `coordinators` are
    those with a row of the gid, `live` the message as it stands at each of them where it is not final. `barriers`,
    `producers`, `differing` and `left_out` are sets, `ledger` keeps every row, because a repetition there is a finding.
    """
    role, effect, message = F.col("role"), F.col("effect"), F.col("message")
    booked = ~effect["branch_id"].isin("", PRODUCER_ROW_OF_LEDGER)
    state, due_ms = message["state"], message["created_ms"] + F.coalesce(message["delay_ms"], F.lit(0))
    live = F.struct("source", F.coalesce(message["parked"], F.lit(False)).alias("parked"), due_ms.alias("due_ms"))
    made = long.groupBy("gid").agg(
        F.max_by("message", state).alias("message"),
        F.collect_set(F.when(role == Role.COORDINATOR.value, F.col("source"))).alias("coordinators"),
        F.collect_set(F.when(state.isin(*_LIVE), live)).alias("live"),
        F.collect_set(F.when(state.isin(*_FINAL), F.col("source"))).alias(_ENDED),
        F.max("prepared_ms").alias("prepared_ms"),
        F.collect_set("producer").alias("producers"),
        F.collect_set(F.when(role == Role.CONSUMER.value, effect)).alias("barriers"),
        F.collect_list(F.when((role == Role.LEDGER.value) & booked, effect)).alias("ledger"),
        F.collect_set("difference").alias("differing"),
        F.collect_set(F.when((role == LEFT_OUT) & booked, effect)).alias("left_out"),
    )
    still = F.filter("live", lambda one: ~F.array_contains(_ENDED, one["source"]))
    return made.withColumn("live", still).drop(_ENDED)
