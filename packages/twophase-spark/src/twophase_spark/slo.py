"""Latencies, attempts and check-backs, by producer, destination and hour.

They are percentiles of decisions and deliveries, taken from history alone, where every final message stands with its
times by one clock, the store's: *decision* is from prepare to the verdict, *delivery* from the verdict (or the end of
the message's delay) to the last branch's success. One pass and one aggregation: each message counts once for the whole,
its producer and its hour, and once for each of its destinations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase.core.lifecycle import State
from twophase_spark.rules.addresses import branches_of
from twophase_spark.rules.classify import BY_CHECK_BACK

FORMAT = 1
PERCENTILES = (0.5, 0.95, 0.99, 1.0)
ACCURACY = 10_000
GROUPS_MAX = 5_000
"""Bound on the groups of each dimension."""
HOUR_MS = 3_600_000
ALL, HOUR, PRODUCER, DESTINATION = "all", "hour", "producer", "destination"
_ORDER = (ALL, PRODUCER, DESTINATION, HOUR)
_OF_GROUPS = ("decision_p99_s", "delivery_p99_s", "attempts_mean", "check_back_rate", "failed_rate")
_HOST = r"^(?:[A-Za-z][A-Za-z0-9+.\-]*://)?(?:[^@/?#]*@)?([^/?#]*)"


class Latency(msgspec.Struct, frozen=True):
    """Seconds; None where no message has such a time."""

    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    max_s: float | None


class Group(msgspec.Struct, frozen=True):
    """Messages with one thing in common.

    `key`: a host, or the beginning of an hour in ms; rates are from 0 to 1.
    """

    dimension: str
    key: str
    messages: int
    failed: int
    decision: Latency
    delivery: Latency
    attempts_mean: float
    attempts_max: int
    check_back_rate: float

    @property
    def failed_rate(self) -> float:
        """The share that was rolled back or stopped."""
        return self.failed / self.messages if self.messages else 0.0


class Backlog(msgspec.Struct, frozen=True):
    """The messages that are not final now.

    `oldest_s`: the age of the oldest that is not parked.
    """

    prepared: int
    submitted: int
    parked: int
    oldest_s: float


class LeftOut(msgspec.Struct, frozen=True):
    """Number of groups of a dimension beyond GROUPS_MAX.

    They are the smallest ones, of hours the oldest.
    """

    dimension: str
    groups: int


class Measured(msgspec.Struct, frozen=True):
    """The groups of each dimension, the largest first, of hours the newest.

    `truncated`: some are `left_out`.
    """

    as_of_ms: int
    since_ms: int
    groups: tuple[Group, ...]
    backlog: Backlog
    truncated: bool
    left_out: tuple[LeftOut, ...] = ()

    def of(self, dimension: str) -> tuple[Group, ...]:
        """Return the groups of one dimension."""
        return tuple(group for group in self.groups if group.dimension == dimension)

    @property
    def whole(self) -> Group | None:
        """The group of all messages; None without a message."""
        return next(iter(self.of(ALL)), None)


class Thresholds(msgspec.Struct, frozen=True):
    """Bounds that must not be exceeded; None for none.

    `messages_min`: smaller groups prove nothing.
    """

    decision_p99_s: float | None = None
    delivery_p99_s: float | None = None
    attempts_mean: float | None = None
    check_back_rate: float | None = None
    failed_rate: float | None = None
    oldest_s: float | None = None
    messages_min: int = 20


class Alert(msgspec.Struct, frozen=True):
    """A bound that was exceeded."""

    dimension: str
    key: str
    measure: str
    value: float
    bound: float


def measure(journal: DataFrame, as_of_ms: int, since_ms: int = 0) -> Measured:
    """Measure the messages that were made at `since_ms` or later.

    Arguments:
        journal: as `schemas.JOURNAL`, live and final messages.
        as_of_ms: now, by the store's clock.
        since_ms: the beginning of the time to look at.
    """
    recent = journal.where(F.col("created_ms") >= since_ms)
    final = recent.where(F.col("state").isin(int(State.SUCCEEDED), int(State.FAILED)))
    grouped = _largest(_by_group(final)).orderBy("order", "rank").collect()
    counted = {row["dimension"]: row["counted"] for row in grouped}
    left_out = tuple(LeftOut(name, count - GROUPS_MAX) for name, count in counted.items() if count > GROUPS_MAX)
    return Measured(
        as_of_ms=as_of_ms,
        since_ms=since_ms,
        groups=tuple(_group(row) for row in grouped),
        backlog=_backlog(journal, as_of_ms),
        truncated=bool(left_out),
        left_out=left_out,
    )


def alerts_of(measured: Measured, thresholds: Thresholds) -> tuple[Alert, ...]:
    """Return every bound that is exceeded, by the whole, a producer or a destination."""
    found: list[Alert] = []
    for group in measured.groups:
        if group.dimension == HOUR or group.messages < thresholds.messages_min:
            continue
        values = (
            group.decision.p99_s,
            group.delivery.p99_s,
            group.attempts_mean,
            group.check_back_rate,
            group.failed_rate,
        )
        measures = tuple(zip(_OF_GROUPS, values, strict=True))
        found += _exceeded(group.dimension, group.key, measures, thresholds)
    oldest = (("oldest_s", measured.backlog.oldest_s),)
    return (*found, *_exceeded("backlog", "", oldest, thresholds))


def unjudged(measured: Measured, thresholds: Thresholds) -> tuple[LeftOut, ...]:
    """Return the producers and destinations left out that may exceed a bound.

    Some may have enough messages to prove it.
    """
    bounds = (getattr(thresholds, name) for name in _OF_GROUPS)
    if all(bound is None for bound in bounds):
        return ()
    return tuple(
        one
        for one in measured.left_out
        if one.dimension != HOUR and measured.of(one.dimension)[-1].messages >= thresholds.messages_min
    )


def _exceeded(
    dimension: str, key: str, measures: Sequence[tuple[str, float | None]], thresholds: Thresholds
) -> list[Alert]:
    found: list[Alert] = []
    for name, value in measures:
        bound: float | None = getattr(thresholds, name)
        if bound is not None and value is not None and value > bound:
            found.append(Alert(dimension, key, name, value, bound))
    return found


def _by_group(final: DataFrame) -> DataFrame:
    succeeded = F.col("state") == int(State.SUCCEEDED)
    due_ms = F.greatest("decided_ms", F.col("created_ms") + F.coalesce("delay_ms", F.lit(0)))
    messages = final.select(
        (F.greatest(F.col("decided_ms") - F.col("created_ms"), F.lit(0)) / 1000).alias("decision_s"),
        F.when(succeeded, F.greatest(F.col("finished_ms") - due_ms, F.lit(0)) / 1000).alias("delivery_s"),
        F.coalesce("attempts", F.lit(0)).alias("attempts"),
        (~succeeded).cast("int").alias("failed"),
        (F.col("decided_by") == BY_CHECK_BACK).cast("int").alias("by_check_back"),
        F.explode(_groups_of()).alias("group"),
    )
    percentiles = F.array(*[F.lit(percentile) for percentile in PERCENTILES])
    return messages.groupBy("group.order", "group.dimension", "group.key").agg(
        F.count("*").alias("messages"),
        F.sum("failed").alias("failed"),
        F.percentile_approx("decision_s", percentiles, F.lit(ACCURACY)).alias("decision"),
        F.percentile_approx("delivery_s", percentiles, F.lit(ACCURACY)).alias("delivery"),
        F.avg("attempts").alias("attempts_mean"),
        F.max("attempts").alias("attempts_max"),
        F.avg("by_check_back").alias("check_back_rate"),
    )


def _largest(groups: DataFrame) -> DataFrame:
    """Return not more than GROUPS_MAX groups of each dimension, by `rank`.

    `counted` is the number of groups of the dimension.
    """
    weight = F.when(F.col("dimension") == HOUR, F.col("key").cast("bigint")).otherwise(F.col("messages"))
    of_dimension = Window.partitionBy("dimension")
    return groups.select(
        "*",
        F.row_number().over(of_dimension.orderBy(weight.desc(), "key")).alias("rank"),
        F.count("*").over(of_dimension).alias("counted"),
    ).where(F.col("rank") <= GROUPS_MAX)


def _groups_of() -> Column:
    hour = F.floor(F.col("created_ms") / HOUR_MS) * HOUR_MS
    hosts = F.array_distinct(F.transform(branches_of(F.col("branches")), lambda one: _host(one["url"])))
    return F.concat(
        F.array(
            _named(ALL, F.lit("")),
            _named(HOUR, hour.cast("bigint").cast("string")),
            _named(PRODUCER, F.coalesce(F.nullif("producer", F.lit("")), F.lit("(none)"))),
        ),
        F.transform(hosts, lambda host: _named(DESTINATION, host)),
    )


def _named(dimension: str, key: Column) -> Column:
    return F.struct(
        F.lit(_ORDER.index(dimension)).alias("order"), F.lit(dimension).alias("dimension"), key.alias("key")
    )


def _host(url: Column) -> Column:
    return F.regexp_extract(url, _HOST, 1)


def _group(row: Any) -> Group:
    return Group(
        dimension=row["dimension"],
        key=row["key"],
        messages=row["messages"],
        failed=row["failed"],
        decision=_latency(row["decision"]),
        delivery=_latency(row["delivery"]),
        attempts_mean=round(row["attempts_mean"], 4),
        attempts_max=row["attempts_max"],
        check_back_rate=round(row["check_back_rate"], 6),
    )


def _latency(values: Sequence[float] | None) -> Latency:
    return Latency(*(values or (None,) * len(PERCENTILES)))


def _backlog(journal: DataFrame, as_of_ms: int) -> Backlog:
    live = journal.where(F.col("state").isin(int(State.PREPARED), int(State.SUBMITTED)))
    parked = F.coalesce("parked", F.lit(False))
    due_ms = F.col("created_ms") + F.coalesce("delay_ms", F.lit(0))
    [row] = live.agg(
        F.count_if((F.col("state") == int(State.PREPARED)) & ~parked).alias("prepared"),
        F.count_if((F.col("state") == int(State.SUBMITTED)) & ~parked).alias("submitted"),
        F.count_if(parked).alias("parked"),
        F.min(F.when(~parked, due_ms)).alias("oldest_ms"),
    ).collect()
    oldest_ms = row["oldest_ms"]
    oldest_s = 0.0 if oldest_ms is None else max(0.0, (as_of_ms - oldest_ms) / 1000)
    return Backlog(row["prepared"], row["submitted"], row["parked"], oldest_s)
