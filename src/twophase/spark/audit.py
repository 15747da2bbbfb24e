"""The audit: DataFrames in, a verdict out. Nothing is a violation until it was seen twice.

**Why twice.** The databases are read at slightly different moments while transfers go on, so one may already show what
another does not yet. Every condition of `classify` reads "E was seen, and C, which must have come before E, was not".
In a correct system C was there when E was seen; the second pass reads C again for these gids only, *after* the first
pass has ended, and then finds it, whatever the order of reading. So a class counts only when both passes give it, and
a system may be audited while it runs. What waiting is for: a replica that lags, and a branch called before its submit
was flushed (`durability = "check-back"`), where E may precede C by a moment; so the second pass waits for the grace
time, unless nothing was in flight, when nothing can arrive any more.

What is final and stays wrong is seen by every pass, so a violation older than the audit is not missed. A message that
becomes final during the first pass may count as in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase.spark.classify import UNKNOWN, Scope, classify
from twophase.spark.facts import Inputs, by_gid, long_form
from twophase.spark.locations import Role
from twophase.spark.taxonomy import OPEN, VIOLATIONS, Flag, primary_of

SAMPLES_PER_FLAG = 20

Reread = Callable[[Sequence[str]], tuple[Inputs, Scope]]
"""The second pass' inputs: only the rows of these gids, read again, and the scope as it then is."""


class Finding(msgspec.Struct, frozen=True):
    """One message that breaks a promise, with what each side says about it."""

    gid: str
    flags: tuple[str, ...]
    message: dict[str, Any] | None
    producers: tuple[dict[str, Any], ...]
    barriers: tuple[dict[str, Any], ...]
    ledger: tuple[dict[str, Any], ...]


class RowCount(msgspec.Struct, frozen=True):
    """How many rows the first pass read of one source."""

    role: str
    source: str
    rows: int


class AuditResult(msgspec.Struct, frozen=True):
    """What was found.

    `counts`: messages by class, one message counted in each of its classes; `primary`: violating messages by their
    first class; `suspects`: of the first pass, `settled`: those the second found in order; `unknown`: messages by
    what could not be told about them; `samples`: some messages of every violated class.
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


class _Pass(msgspec.Struct, frozen=True):
    """One pass: the flags of every suspect, and how many of the other messages have which."""

    suspects: dict[str, frozenset[Flag]]
    others: dict[Flag, int]
    others_clean: int
    messages: int
    unknown: dict[str, int]
    rows: tuple[RowCount, ...]
    findings: DataFrame

    @property
    def has_open(self) -> bool:
        """Whether anything was not final, so that something could still arrive."""
        return any(self.others[flag] for flag in OPEN) or any(
            not flags.isdisjoint(OPEN) for flags in self.suspects.values()
        )


def audit(
    inputs: Inputs, scope: Scope, reread: Reread | None = None, wait: Callable[[], None] = lambda: None
) -> AuditResult:
    """Compare all sides and count.

    Arguments:
        inputs: the rows of every side.
        scope: what may be concluded from them.
        reread: reads the suspects again; None takes the first pass as it is, for data that does not change.
        wait: lets the grace time pass; called before `reread` when something was in flight.
    """
    first = _look(inputs, scope)
    if reread is None or not first.suspects:
        return _result(scope, first, first, waited=False)
    in_flight = first.has_open
    if in_flight:
        wait()
    second = _look(*reread(sorted(first.suspects)), everything=True)
    return _result(scope, first, second, waited=in_flight)


def _look(inputs: Inputs, scope: Scope, *, everything: bool = False) -> _Pass:
    """Read all rows once. One job: messages that say the same are counted, of suspects (or `everything`) also named."""
    sources = _sources(scope)
    rows = {f"rows{place}": _is_from(role, name) for place, (role, name) in enumerate(sources)}
    findings = classify(by_gid(long_form(inputs), rows), scope)
    named = F.lit(True) if everything else F.col("violation")
    alike = (
        findings.groupBy("flags", "unknown")
        .agg(
            F.count("*").alias("messages"),
            F.collect_list(F.when(named, F.col("gid"))).alias("gids"),
            *[F.sum(name).alias(name) for name in rows],
        )
        .collect()
    )
    suspects: dict[str, frozenset[Flag]] = {}
    others, unknown = dict.fromkeys(Flag, 0), dict.fromkeys(UNKNOWN, 0)
    others_clean = 0
    for row in alike:
        flags = frozenset(Flag(name) for name in row["flags"])
        suspects |= dict.fromkeys(row["gids"], flags)
        rest = row["messages"] - len(row["gids"])
        others_clean += 0 if flags else rest
        for flag in flags:
            others[flag] += rest
        for reason in row["unknown"]:
            unknown[reason] += row["messages"]
    return _Pass(
        suspects=suspects,
        others=others,
        others_clean=others_clean,
        messages=sum(row["messages"] for row in alike),
        unknown={reason: count for reason, count in unknown.items() if count},
        rows=tuple(
            RowCount(role.value, source, sum(row[column] for row in alike))
            for column, (role, source) in zip(rows, sources, strict=True)
        ),
        findings=findings,
    )


def _sources(scope: Scope) -> list[tuple[Role, str]]:
    return [
        (Role.COORDINATOR, "coordinator"),
        *((Role.PRODUCER, name) for name in scope.producers),
        *((Role.CONSUMER, consumer.name) for consumer in scope.consumers),
        *((Role.LEDGER, name) for name in scope.ledgers),
    ]


def _is_from(role: Role, source: str) -> Column:
    return (F.col("role") == role.value) & (F.col("source") == source)


def _result(scope: Scope, first: _Pass, second: _Pass, *, waited: bool) -> AuditResult:
    final = {gid: _settle(flags, second.suspects.get(gid, frozenset())) for gid, flags in first.suspects.items()}
    counts = {flag: first.others[flag] + sum(flag in flags for flags in final.values()) for flag in Flag}
    broken = {gid: flags for gid, flags in final.items() if not flags.isdisjoint(VIOLATIONS)}
    primary = [primary_of(flags) for flags in broken.values()]
    return AuditResult(
        as_of_ms=scope.as_of_ms,
        messages=first.messages,
        clean=first.others_clean + sum(not flags for flags in final.values()),
        violations=len(broken),
        counts={flag.value: count for flag, count in counts.items()},
        primary={flag.value: primary.count(flag) for flag in VIOLATIONS if flag in primary},
        unknown=first.unknown,
        suspects=len(final),
        settled=len(final) - len(broken),
        waited=waited,
        rows=first.rows,
        samples=_samples(second.findings, broken),
    )


def _settle(first: frozenset[Flag], second: frozenset[Flag]) -> frozenset[Flag]:
    """What a suspect is after both passes: violations that both saw; what only the second saw is still moving."""
    confirmed = first & second & frozenset(VIOLATIONS)
    rest = second - frozenset(VIOLATIONS)
    unconfirmed = second - rest - first
    if unconfirmed and not confirmed and rest.isdisjoint(OPEN):
        rest |= {Flag.IN_FLIGHT}
    return confirmed | rest


def _samples(findings: DataFrame, broken: dict[str, frozenset[Flag]]) -> tuple[Finding, ...]:
    chosen: set[str] = set()
    for flag in VIOLATIONS:
        chosen.update(sorted(gid for gid, flags in broken.items() if flag in flags)[:SAMPLES_PER_FLAG])
    if not chosen:
        return ()
    rows = [row.asDict(recursive=True) for row in findings.where(F.col("gid").isin(*sorted(chosen))).collect()]
    samples = [
        Finding(
            gid=row["gid"],
            flags=tuple(flag.value for flag in Flag if flag in broken[row["gid"]]),
            message=row["message"],
            producers=tuple(row["producers"]),
            barriers=tuple(row["barriers"]),
            ledger=tuple(row["ledger"]),
        )
        for row in rows
    ]
    order = list(VIOLATIONS)
    return tuple(sorted(samples, key=lambda one: (order.index(Flag(one.flags[0])), one.gid)))
