"""The audit: DataFrames in, a verdict and a DataFrame of findings out.

Nothing is a violation until it was seen twice.

**Why twice.** The databases are read at slightly different moments while transfers continue, so one may already show
what another does not yet. Every condition of `classify` reads "E was seen, and C, which must have come before E, was
not". In a correct system C was there when E was seen; the second look reads C again for these gids only, *after* the
first look has ended, and then finds it, in any order of reading. So a class counts only when both looks give it, for
the same effect where a message has several, and a system may be audited while it runs. Waiting serves two cases: a
replica that lags, and a branch called before its submit was flushed (`durability = "check-back"`), where E may precede
C by a moment; so the second look waits for the grace time, unless nothing was in flight and every suspect is older than
it: C is older still, and has arrived or never will. A suspect is as old as the newest time in its rows; one whose rows
have none (an orphan's) counts as young. One that an earlier run saw with the same rows a grace time ago (`remembered`)
has been seen twice by now.

**How much.** `ordinary` separates, in one pass over everything, the few messages that are not plainly in order; only
these are examined in full. The driver holds counts, a bounded number of samples, and the rows of suspects while they
are few (`inputs.source.GIDS_ON_DRIVER_MAX`), the findings, too, while they are fewer (`GIDS_NEAR_MAX`); more of them
stay in DataFrames, on disk when memory does not hold them.

A final and wrong message is seen by every look, so a violation older than the audit is not missed. A message that
becomes final during the first look may count as in flight.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase_spark.rules.acknowledged import ACKNOWLEDGED, with_acknowledged
from twophase_spark.rules.classify import classify, lacking
from twophase_spark.rules.facts import Inputs, by_gid, long_form
from twophase_spark.rules.ordinary import separate, sources
from twophase_spark.rules.remembered import REMEMBERED, with_remembered
from twophase_spark.rules.samples import SAMPLES_PER_FLAG, Finding, chosen, sample
from twophase_spark.rules.scope import Scope
from twophase_spark.rules.services import ServiceCount, count_by_service
from twophase_spark.rules.settle import LACKING, settle, with_the_vanished
from twophase_spark.rules.taxonomy import OPEN, VIOLATIONS, Flag

_OPEN_NAMES = frozenset(flag.value for flag in OPEN)
_SWAPPED = frozenset({Flag.MISSING_EFFECT.value, Flag.ORPHAN.value})
_UNMATCHED = frozenset({Flag.MISSING_EFFECT.value, Flag.UNGUARDED_EFFECT.value})
_KEPT = StorageLevel.MEMORY_AND_DISK
GIDS_NEAR_MAX = 25_000
"""Bound on gids whose findings are kept on the driver.

Spark plans every later step from these rows alone then, not from all steps before: half of the processor time of a
small audit.
"""


class Look(NamedTuple):
    """The rows of some gids.

    `read_s`: the monotonic time at which the last of them had been read; `is_unchanged`: they are those of the first
    look.
    """

    inputs: Inputs
    read_s: float
    is_unchanged: bool = False


class Again(NamedTuple):
    """The functions for a closer look, and a second one.

    Both get a DataFrame with the column gid, and how many they are. `first`: the rows as they are now, or as the first
    pass read them; `second`: as they are now; `scope`: what may be concluded, asked after the rows were read, because a
    cleaner raises the horizon in the transaction of its deletes.
    """

    first: Callable[[DataFrame, int], Look]
    second: Callable[[DataFrame, int], Look]
    scope: Callable[[], Scope]


class RowCount(msgspec.Struct, frozen=True):
    """The number of rows that the first pass read of one source."""

    role: str
    source: str
    rows: int


class AuditResult(msgspec.Struct, frozen=True):
    """The result of an audit.

    `counts`: messages by class, one message counted in each of its classes; `primary`: violating messages by their
    first class; `unchecked`: messages of which something could not be checked, `unknown` names it; `suspects`: of the
    first look, `settled`: those the second found in order; `swapped`: messages that lack an effect and have one too
    many in a barrier, `unmatched`: in a ledger; `doubled`: messages of two coordinators; `acknowledged`: broken ones
    of the baseline, which are in no other number but `messages`; `samples`: some messages of every class but in flight;
    `services`: the numbers of each producer and consumer; `incomparable`: by ledger, the effects for which its
    condition has no answer.
    """

    as_of_ms: int
    messages: int
    clean: int
    violations: int
    counts: dict[str, int]
    primary: dict[str, int]
    unknown: dict[str, int]
    suspects: int
    settled: int
    waited: bool
    rows: tuple[RowCount, ...]
    samples: tuple[Finding, ...]
    swapped: int = 0
    unmatched: int = 0
    doubled: int = 0
    acknowledged: int = 0
    services: tuple[ServiceCount, ...] = ()
    incomparable: dict[str, int] = {}

    @property
    def unchecked(self) -> int:
        """The number of messages of which something could not be compared."""
        return self.counts[Flag.UNCHECKED.value]

    @property
    def proves_nothing(self) -> bool:
        """True when no message but those of the baseline could be compared completely.

        One that is not final yet proves nothing: a system at work always has some.
        """
        compared = sum(self.counts[flag.value] for flag in (Flag.STOPPED, Flag.LEFT_OUT))
        return self.unchecked > 0 and not (self.clean or self.violations or compared)


class Audited(NamedTuple):
    """The result and the findings.

    `findings`: every message that is not plainly in order: gid, primary, flags, unknown, and both sides' rows. `held`
    is the DataFrame kept for it; where Spark persists it, that lasts until `release`.
    """

    result: AuditResult
    findings: DataFrame
    held: DataFrame

    def release(self) -> None:
        """Release the DataFrame of the findings; they cannot be used afterwards."""
        self.held.unpersist()


def compare(
    inputs: Inputs,
    scope: Scope,
    again: Again | None = None,
    wait: Callable[[float], None] = lambda _: None,
    expected: DataFrame | None = None,
    grace_ms: int = 0,
    seen: DataFrame | None = None,
    baseline: DataFrame | None = None,
) -> Audited:
    """Compare all sides.

    Arguments:
        inputs: the rows of every side.
        scope: what may be concluded from them.
        again: reads rows closer and once more; None takes `inputs` as data that does not change.
        wait: lets the grace time pass since a monotonic time, that of the first look's rows; called before the second
            look when something may still arrive.
        expected: gids that were open, broken or reported before: one whose message is nowhere is not checkable, unless
            the rows left of it are broken.
        grace_ms: how long that is; a suspect this old at `scope.as_of_ms` needs no waiting for.
        seen: suspects of an earlier run, at least that long ago, with the digests of their rows (see `remembered`).
        baseline: (gid, flags) of broken messages that were acknowledged; they are counted apart.

    Raises:
        CannotRead: a source cannot be read, or has rows without a gid.
    """
    separated = separate(inputs, scope, expected)
    look = again or _unchanging(inputs, scope)
    others = _near(separated.others, separated.others_count)
    looked = look.first(others, separated.others_count)
    first, concluded = _look(others, separated.others_count, looked, look, expected)
    marked = with_acknowledged(with_remembered(first, seen), baseline)
    counted = _count(marked, *_asking(scope.as_of_ms - grace_ms)) if separated.others_count else []
    separated.held.unpersist()
    suspects, waited, seen_last = _broken(counted), False, _Seen(first, counted, concluded)
    if again is not None and any(row["new"] for row in counted):
        waited = _must_wait(counted)
        if waited:
            wait(looked.read_s)
        seen_last = _seen_twice(seen_last, separated.others_count, suspects, again, expected, baseline)
    final, counted, concluded = seen_last
    settled = suspects - _broken(counted)
    acknowledged = sum(row["messages"] for row in counted if row[ACKNOWLEDGED])
    counted = [row for row in counted if not row[ACKNOWLEDGED]]
    counts, primary, unknown = _totals(counted)
    findings = with_acknowledged(final, baseline)
    rows = zip(sources(scope), separated.rows, strict=True)
    looked_at = findings if separated.others_count else None
    services = count_by_service(looked_at, concluded, separated.ordinary_of, separated.rows, ACKNOWLEDGED)
    result = AuditResult(
        as_of_ms=scope.as_of_ms,
        messages=separated.ordinary + separated.others_count,
        clean=separated.ordinary + sum(row["messages"] for row in counted if not row["flags"]),
        violations=_broken(counted),
        counts=counts,
        primary=primary,
        unknown=unknown,
        suspects=suspects,
        settled=settled,
        swapped=sum(row["messages"] for row in counted if _SWAPPED.issubset(row["flags"])),
        unmatched=sum(row["messages"] for row in counted if _UNMATCHED.issubset(row["flags"])),
        acknowledged=acknowledged,
        doubled=sum(row["doubled"] for row in counted),
        waited=waited,
        rows=tuple(RowCount(role.value, name, count) for (role, name), count in rows),
        samples=sample(final, chosen(counted), concluded.consumers),
        services=services,
        incomparable=_incomparable(inputs.differences),
    )
    return Audited(result, findings.where(F.size("flags") > 0).withColumn("primary", F.col("flags")[0]), final)


class _Seen(NamedTuple):
    """The messages of the first look, their counts, and the scope of conclusions."""

    frame: DataFrame
    counted: list[Any]
    concluded: Scope


def _look(
    gids: DataFrame, count: int, looked: Look, again: Again, expected: DataFrame | None
) -> tuple[DataFrame, Scope]:
    """Return everything about these gids, classified and kept, and its scope.

    There is a row for every one of them.
    """
    facts = by_gid(long_form(looked.inputs))
    scope = again.scope()
    classified = classify(facts, scope).withColumns(lacking(scope))
    return _held(with_the_vanished(gids, classified, expected), count), scope


def _held(findings: DataFrame, count: int) -> DataFrame:
    """Return these rows for several uses: on the driver while few, else persisted."""
    return _near(findings, count) if count <= GIDS_NEAR_MAX else findings.persist(_KEPT)


def _near(frame: DataFrame, count: int) -> DataFrame:
    """Return these rows as they are now, on the driver; the same frame when many."""
    if count > GIDS_NEAR_MAX:
        return frame
    if not count:
        return frame.sparkSession.createDataFrame([], frame.schema)
    return frame.sparkSession.createDataFrame(frame.toArrow(), frame.schema)


def _asking(young_ms: int) -> tuple[Column, ...]:
    """Return columns about broken messages of which no earlier run knew.

    `new`: there are some; `fresh`: some are not acknowledged; `young`: some of these are young.
    """
    new = F.col("violation") & ~F.col(REMEMBERED)
    fresh = new & ~F.col(ACKNOWLEDGED)
    return (
        F.bool_or(new).alias("new"),
        F.bool_or(fresh).alias("fresh"),
        F.bool_or(fresh & _is_younger(young_ms)).alias("young"),
    )


def _must_wait(counted: list[Any]) -> bool:
    """Return True when what some suspect lacks may still arrive."""
    is_open = any(not _OPEN_NAMES.isdisjoint(row["flags"]) for row in counted)
    return any(row["young"] or (is_open and row["fresh"]) for row in counted)


def _seen_twice(
    first: _Seen, count: int, suspects: int, again: Again, expected: DataFrame | None, baseline: DataFrame | None
) -> _Seen:
    """Look at the suspects of the first look once more.

    Returns what holds after both looks, kept; the looks are released. Rows that are the same say the same.
    """
    before = first.frame.where("violation").select("gid", "flags", *LACKING)
    gids = before.select("gid")
    looked = again.second(gids, suspects)
    if looked.is_unchanged and again.scope() == first.concluded:
        return first
    second, concluded = _look(gids, suspects, looked, again, expected)
    final = _held(first.frame.where(~F.col("violation")).unionByName(settle(before, second)), count)
    counted = _count(with_acknowledged(final, baseline))
    second.unpersist()
    first.frame.unpersist()
    return _Seen(final, counted, concluded)


def _broken(counted: list[Any]) -> int:
    return sum(row["messages"] for row in counted if row["violation"])


def _incomparable(differences: DataFrame | None) -> dict[str, int]:
    """Return the number of effects without an answer, by ledger, in the first look."""
    if differences is None:
        return {}
    counted = differences.where("differs is null").groupBy("source").count()
    return {row["source"]: row["count"] for row in counted.collect()}


def _unchanging(inputs: Inputs, scope: Scope) -> Again:
    def rows(gids: DataFrame, _: int) -> Look:
        return Look(inputs.each(lambda frame: frame.join(gids, "gid", "left_semi")), time.monotonic())

    return Again(rows, rows, lambda: scope)


def _is_younger(than_ms: int) -> Column:
    """Return True when any known time of this gid lies after this moment.

    It is True also for a gid without any known time.
    """
    message = F.col("message")
    times = [message[name] for name in ("created_ms", "decided_ms", "finished_ms")]
    return F.coalesce(F.greatest(*times, "prepared_ms") > than_ms, F.lit(True))


def _count(findings: DataFrame, *asking: Column) -> list[Any]:
    """Count the messages with equal results.

    Each row also has some of their gids, and the values of `asking`. There are as many rows as combinations of classes.
    """
    first = F.min_by("gid", "gid", SAMPLES_PER_FLAG).alias("gids")
    grouped = findings.groupBy("flags", "unknown", "violation", ACKNOWLEDGED)
    doubled = F.count_if(F.size("coordinators") > 1).alias("doubled")
    return grouped.agg(F.count("*").alias("messages"), first, doubled, *asking).collect()


def _totals(counted: list[Any]) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    counts = {flag.value: 0 for flag in Flag}
    primary: dict[str, int] = {}
    unknown: dict[str, int] = {}
    for row in counted:
        for flag in row["flags"]:
            counts[flag] += row["messages"]
        for reason in row["unknown"]:
            unknown[reason] = unknown.get(reason, 0) + row["messages"]
        if row["violation"]:
            primary[row["flags"][0]] = primary.get(row["flags"][0], 0) + row["messages"]
    order = [flag.value for flag in VIOLATIONS]
    return counts, dict(sorted(primary.items(), key=lambda item: order.index(item[0]))), unknown
