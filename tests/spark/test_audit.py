"""Two passes over DataFrames: what counts, what settles, and when it waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import ALL, BROKEN, IN_ORDER, MOVING, SCOPE, Case, inputs_of
from twophase.core.lifecycle import State
from twophase.spark.audit import SAMPLES_PER_FLAG, audit
from twophase.spark.classify import Scope
from twophase.spark.facts import Inputs
from twophase.spark.taxonomy import Flag

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
NONE: tuple[tuple[str, str], ...] = ()


class Second:
    """The second pass of a test: what the databases say then, and what was asked of them."""

    def __init__(self, spark: SparkSession, cases: list[Case]) -> None:
        self.spark = spark
        self.cases = cases
        self.asked: list[str] = []
        self.order: list[str] = []

    def reread(self, gids: Sequence[str]) -> tuple[Inputs, Scope]:
        self.order.append("reread")
        self.asked = list(gids)
        return inputs_of(self.spark, [case for case in self.cases if case.gid in set(gids)]), SCOPE

    def wait(self) -> None:
        self.order.append("wait")


def test_counts_of_all_classes(spark: SparkSession) -> None:
    result = audit(inputs_of(spark, ALL), SCOPE)

    expected = Counter(flag for case in ALL for flag in case.flags)
    assert result.counts == {flag.value: expected[flag.value] for flag in Flag}
    assert result.messages == len(ALL)
    assert result.clean == len(IN_ORDER)
    assert result.violations == len(BROKEN)
    assert result.primary == Counter(case.flags[0] for case in BROKEN)


def test_counts_the_rows_of_every_source(spark: SparkSession) -> None:
    result = audit(inputs_of(spark, IN_ORDER), SCOPE)

    assert {(row.role, row.source): row.rows for row in result.rows} == {
        ("coordinator", "coordinator"): sum(case.state is not None for case in IN_ORDER),
        ("producer", "bank-a"): sum(case.producer is not None for case in IN_ORDER),
        ("consumer", "bank-b"): sum(service == "bank-b" for case in IN_ORDER for service, _ in case.barriers),
        ("consumer", "bank-c"): 1,
        ("ledger", "bank-b"): sum(len(case.ledger) for case in IN_ORDER),
    }


def test_a_sample_tells_what_each_side_says(spark: SparkSession) -> None:
    lost = Case("lost", "lost contrary_verdict", State.FAILED, "msg", NONE, (), decided_by="abort")

    [sample] = audit(inputs_of(spark, [lost]), SCOPE).samples

    assert sample.gid == "lost"
    assert sample.flags == ("lost", "contrary_verdict")
    assert sample.message is not None
    assert (sample.message["state"], sample.message["decided_by"]) == (State.FAILED, "abort")
    assert sample.producers == ({"source": "bank-a", "reason": "msg"},)
    assert (sample.barriers, sample.ledger) == ((), ())


def test_samples_are_bounded(spark: SparkSession) -> None:
    many = [Case(f"g{number:03}", "lost", None, "msg", NONE, ()) for number in range(SAMPLES_PER_FLAG + 5)]

    result = audit(inputs_of(spark, many), SCOPE)

    assert result.counts["lost"] == len(many)
    assert len(result.samples) == SAMPLES_PER_FLAG


def test_of_nothing_nothing_is_wrong(spark: SparkSession) -> None:
    result = audit(inputs_of(spark, []), SCOPE)

    assert (result.messages, result.violations, result.samples) == (0, 0, ())


def test_a_clean_first_pass_needs_no_second(spark: SparkSession) -> None:
    second = Second(spark, [])

    result = audit(inputs_of(spark, IN_ORDER + MOVING), SCOPE, second.reread, second.wait)

    assert second.order == []
    assert (result.violations, result.suspects) == (0, 0)


def test_what_the_second_pass_finds_in_order_does_not_count(spark: SparkSession) -> None:
    """The producer was read before its commit, the coordinator after it decided."""
    skewed = Case("g", "", State.SUBMITTED, None, NONE, ())
    second = Second(spark, [Case("g", "", State.SUBMITTED, "msg", NONE, ())])

    result = audit(inputs_of(spark, [skewed]), SCOPE, second.reread, second.wait)

    assert (result.suspects, result.settled, result.violations) == (1, 1, 0)
    assert (result.counts["ghost"], result.counts["in_flight"]) == (0, 1)


def test_what_both_passes_find_counts_once(spark: SparkSession) -> None:
    second = Second(spark, ALL)

    result = audit(inputs_of(spark, ALL), SCOPE, second.reread, second.wait)

    assert second.asked == sorted(case.gid for case in BROKEN)
    assert result.counts == dict(audit(inputs_of(spark, ALL), SCOPE).counts)


def test_a_class_only_the_second_pass_finds_is_still_moving(spark: SparkSession) -> None:
    first = Case("g", "lost", None, "msg", NONE, ())
    second = Second(spark, [Case("g", "missing_effect", State.SUCCEEDED, "msg", NONE, ())])

    result = audit(inputs_of(spark, [first]), SCOPE, second.reread, second.wait)

    assert result.violations == 0
    assert result.counts["in_flight"] == 1


def test_waits_before_reading_again_when_something_is_in_flight(spark: SparkSession) -> None:
    lost = Case("lost", "lost", None, "msg", NONE, ())
    second = Second(spark, [lost])

    result = audit(inputs_of(spark, [lost, MOVING[0]]), SCOPE, second.reread, second.wait)

    assert second.order == ["wait", "reread"]
    assert result.waited


def test_does_not_wait_when_nothing_is_in_flight(spark: SparkSession) -> None:
    lost = Case("lost", "lost", None, "msg", NONE, ())
    second = Second(spark, [lost])

    result = audit(inputs_of(spark, [lost, *IN_ORDER]), SCOPE, second.reread, second.wait)

    assert second.order == ["reread"]
    assert (result.waited, result.violations) == (False, 1)


def test_a_message_read_live_and_final_is_final(spark: SparkSession) -> None:
    live = Case("g", "", State.SUBMITTED)
    final = Case("g", "", State.SUCCEEDED)
    journal = inputs_of(spark, [live]).journal.unionByName(inputs_of(spark, [final]).journal)

    result = audit(inputs_of(spark, [final])._replace(journal=journal), SCOPE)

    assert (result.messages, result.clean) == (1, 1)
