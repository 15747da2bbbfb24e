"""A run's notes about broken messages.

The next run does not wait for them again.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from twophase_spark.auditing.run import _left_over, _seen_by
from twophase_spark.inputs.increment import Seen, VerifiedPoint
from twophase_spark.rules.comparison import Audited, AuditResult
from twophase_spark.rules.taxonomy import Flag

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
FIRST_MS, SECOND_MS = 1_000, 5_000
COLUMNS = (
    "gid string, message string, prepared_ms long, producers array<string>, barriers array<string>,"
    "ledger array<string>, differing array<string>, flags array<string>, violation boolean"
)


def audited(spark: SparkSession, prepared_ms: dict[str, int]) -> Audited:
    """Return lost messages, by gid, with the needed columns of real findings."""
    rows: list[tuple[Any, ...]] = [
        (gid, None, at_ms, ["msg"], [], [], [], [Flag.LOST.value], True) for gid, at_ms in prepared_ms.items()
    ]
    findings = spark.createDataFrame(rows, COLUMNS)
    counts = {flag.value: 0 for flag in Flag} | {Flag.LOST.value: len(rows)}
    result = AuditResult(
        as_of_ms=0,
        messages=len(rows),
        clean=0,
        violations=len(rows),
        counts=counts,
        primary={},
        unknown={},
        suspects=len(rows),
        settled=0,
        waited=False,
        rows=(),
        samples=(),
    )
    return Audited(result, findings, findings)


def test_what_is_broken_is_so_since_the_run_that_first_saw_it_with_these_rows(spark: SparkSession) -> None:
    _, first = _left_over(audited(spark, {"same": 1, "other": 1, "settled": 1}), {}, FIRST_MS)

    carried, again = _left_over(audited(spark, {"same": 1, "other": 2}), first, SECOND_MS)

    assert {gid: one.since_ms for gid, one in first.items()} == dict.fromkeys(("same", "other", "settled"), FIRST_MS)
    assert sorted(carried) == ["other", "same"]
    assert {gid: one.since_ms for gid, one in again.items()} == {"same": FIRST_MS, "other": SECOND_MS}
    assert again["same"] == first["same"]
    assert again["other"].digest != first["other"].digest


def test_only_what_was_broken_a_grace_time_ago_is_remembered(spark: SparkSession) -> None:
    state = VerifiedPoint(seen={"old": Seen(FIRST_MS, 7), "young": Seen(FIRST_MS + 1, 8)})

    seen = _seen_by(spark, state, FIRST_MS)

    assert seen is not None
    assert [tuple(row) for row in seen.collect()] == [("old", 7)]
    assert _seen_by(spark, state, FIRST_MS - 1) is None
