"""The comparison of the audit with the independent checker.

Over the same databases both must name the same messages for the same faults, message by message and in numbers: a
difference is a fault of one of them, on a run that kept every promise as on one with a bug planted. The audit is the
one that an operator runs, over databases at rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.crash.checker import Findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twophase_spark.locations import Location
    from twophase_spark.rules.comparison import AuditResult

_OPEN = ("in_flight", "late", "parked")


def assert_agree(spark: SparkSession, locations: Sequence[Location], findings: Findings) -> AuditResult:
    """Audit, compare with the checker's findings, and return the audit's result.

    Arguments:
        spark: any session.
        locations: every database of the run, so that there is nothing that could not be checked.
        findings: the checker's, of the same state of the databases.

    Raises:
        AssertionError: they do not agree.
    """
    from twophase_spark.auditing.run import examine, look_into
    from twophase_spark.inputs.plan import Plan
    from twophase_spark.rules.taxonomy import VIOLATIONS

    broken = {flag.value for flag in VIOLATIONS}
    plan = Plan(tuple(locations), grace_s=0)
    _, audited, _ = examine(spark, plan, look_into(plan))
    try:
        rows = audited.findings.where("violation").select("gid", "flags").collect()
    finally:
        audited.release()
    result = audited.result
    assert result.unchecked == 0, f"nothing may be left unchecked: {result.unknown}"
    named = {row["gid"]: frozenset(row["flags"]) & broken for row in rows}
    assert named == findings.classes, _difference(named, findings.classes)
    counted = {flag: result.counts[flag] for flag in sorted(broken) if result.counts[flag]}
    assert counted == dict(sorted(Counter(flag for flags in findings.classes.values() for flag in flags).items()))
    assert result.violations == len(findings.classes)
    assert (result.messages, sum(result.counts[flag] for flag in _OPEN)) == (findings.messages, findings.unfinished)
    return result


def _difference(named: dict[str, frozenset[str]], expected: dict[str, frozenset[str]]) -> str:
    """Return some messages about which the two differ."""
    gids = [gid for gid in sorted(named.keys() | expected.keys()) if named.get(gid) != expected.get(gid)]
    said = [f"{gid}: audit {sorted(named.get(gid, ()))}, checker {sorted(expected.get(gid, ()))}" for gid in gids[:5]]
    return f"they differ on {len(gids)} messages: {said}"
