"""What a run notes of what is broken, and what of it the next run does not wait for again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import SCOPE, Case, inputs_of
from twophase.spark.auditing.run import _left_over, _seen_by
from twophase.spark.inputs.increment import Seen, VerifiedPoint
from twophase.spark.rules.comparison import Audited, compare

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
FIRST_MS, SECOND_MS = 1_000, 5_000


@pytest.fixture
def audited(spark: SparkSession) -> Iterator[Audited]:
    """Two broken messages."""
    cases = [Case("same", "lost", None, barriers=(), ledger=()), Case("other", "orphan", None, None)]
    one = compare(inputs_of(spark, cases), SCOPE)
    yield one
    one.release()


def test_what_is_broken_is_so_since_the_run_that_first_saw_it_with_these_rows(audited: Audited) -> None:
    carried, first = _left_over(audited, {}, FIRST_MS)
    other = Seen(FIRST_MS, first["other"].digest ^ 1)

    _, again = _left_over(audited, {**first, "other": other, "settled": first["same"]}, SECOND_MS)

    assert sorted(carried) == sorted(first) == ["other", "same"]
    assert {one.since_ms for one in first.values()} == {FIRST_MS}
    assert again == {"same": first["same"], "other": Seen(SECOND_MS, first["other"].digest)}


def test_only_what_was_broken_a_grace_time_ago_is_remembered(spark: SparkSession) -> None:
    state = VerifiedPoint(seen={"old": Seen(FIRST_MS, 7), "young": Seen(FIRST_MS + 1, 8)})

    seen = _seen_by(spark, state, FIRST_MS)

    assert seen is not None
    assert [tuple(row) for row in seen.collect()] == [("old", 7)]
    assert _seen_by(spark, state, FIRST_MS - 1) is None
