"""The numbers of each producer and consumer, on messages of every class."""

from __future__ import annotations

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import ALL, BROKEN, IN_ORDER, RECONCILED, SCOPE, Case, inputs_of
from twophase.core.lifecycle import State
from twophase_spark.inputs.baseline import Baseline, baseline_frame
from twophase_spark.rules.comparison import compare
from twophase_spark.rules.scope import ProducerScope, Scope, ServiceScope
from twophase_spark.rules.services import ServiceCount
from twophase_spark.rules.taxonomy import Flag

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
WITH_URLS = msgspec.structs.replace(
    SCOPE,
    consumers=(ServiceScope("bank-b", ("http://bank-b/",)), ServiceScope("bank-c", ("http://bank-c/",))),
)
NOTHING: tuple[tuple[str, str], ...] = ()


def counted(spark: SparkSession, cases: list[Case], scope: Scope = WITH_URLS) -> dict[str, ServiceCount]:
    audited = compare(inputs_of(spark, cases), scope)
    audited.release()
    return {one.service: one for one in audited.result.services}


def seen(service: ServiceCount) -> dict[str, int]:
    return {flag: count for flag, count in service.counts.items() if count}


def test_messages_and_branches_of_ordinary_messages_are_counted(spark: SparkSession) -> None:
    found = counted(spark, IN_ORDER)

    with_row = sum(case.producer is not None for case in IN_ORDER)
    at_b = [case for case in IN_ORDER if "bank-b" in dict(case.barriers)]
    # The one that a foreign library aborted names the producer, and has no row.
    assert (found["bank-a"].role, found["bank-a"].messages, found["bank-a"].branches) == (
        "producer",
        with_row + 1,
        None,
    )
    assert (found["bank-b"].role, found["bank-b"].messages) == ("consumer", len(at_b))
    assert found["bank-b"].branches == len(at_b)
    assert (found["bank-c"].messages, found["bank-c"].branches) == (1, 1)
    assert [seen(one) for one in found.values()] == [{}, {}, {}]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("committed_and_no_message", {"bank-a": {"lost": 1}}),
        ("delivered_without_producer_row", {"bank-a": {"ghost": 1}}),
        ("committed_and_aborted", {"bank-a": {"lost": 1, "contrary_verdict": 1}}),
        ("booked_twice", {"bank-b": {"duplicate_effect": 1}}),
        ("booked_with_another_amount", {"bank-b": {"differing_effect": 1}}),
        ("succeeded_without_any_effect", {"bank-b": {"missing_effect": 1}}),
        ("succeeded_without_the_second_branch", {"bank-c": {"missing_effect": 1}}),
        ("barrier_without_ledger", {"bank-b": {"missing_effect": 1}}),
        ("ledger_without_barrier", {"bank-b": {"unguarded_effect": 1}}),
        ("effect_without_a_message", {"bank-b": {"orphan": 1}}),
        ("effect_of_a_branch_too_many", {"bank-b": {"orphan": 1}}),
        ("committed_delivered_and_forgotten", {"bank-a": {"lost": 1}, "bank-b": {"orphan": 1}}),
    ],
)
def test_a_violation_counts_where_the_evidence_is(
    spark: SparkSession, name: str, expected: dict[str, dict[str, int]]
) -> None:
    [case] = [case for case in BROKEN + RECONCILED if case.gid == name]

    found = counted(spark, [*IN_ORDER, case])

    assert {service: seen(one) for service, one in found.items() if one.violations} == expected
    assert all(one.violations == 1 for service, one in found.items() if service in expected)


def test_an_effect_in_the_wrong_service_is_missing_in_one_and_an_orphan_in_the_other(spark: SparkSession) -> None:
    misled = Case("misled", "missing_effect orphan", barriers=(("bank-c", "01"),), ledger=())

    found = counted(spark, [misled])

    assert {service: seen(one) for service, one in found.items()} == {
        "bank-a": {},
        "bank-b": {"missing_effect": 1},
        "bank-c": {"orphan": 1},
    }


def test_an_effect_in_two_services_counts_in_both(spark: SparkSession) -> None:
    [case] = [case for case in BROKEN if case.gid == "effect_in_two_services"]

    found = counted(spark, [case], SCOPE)

    assert [seen(found[service]) for service in ("bank-b", "bank-c")] == [{"duplicate_effect": 1}] * 2


def test_a_message_waits_for_its_producer_and_then_for_its_consumers(spark: SparkSession) -> None:
    prepared = Case("prepared", "in_flight", State.PREPARED, "msg", NOTHING, ())
    submitted = Case("submitted", "in_flight", State.SUBMITTED, "msg", NOTHING, ())

    found = counted(spark, [prepared, submitted])

    assert {service: seen(one) for service, one in found.items()} == {
        "bank-a": {"in_flight": 1},
        "bank-b": {"in_flight": 1},
        "bank-c": {},
    }


def test_a_branch_that_may_be_of_two_consumers_counts_for_neither(spark: SparkSession) -> None:
    found = counted(spark, [Case("m", "missing_effect", barriers=NOTHING, ledger=())], SCOPE)

    assert {service: seen(one) for service, one in found.items()} == {"bank-a": {}, "bank-b": {}, "bank-c": {}}


def test_what_cannot_be_checked_counts_for_every_service_of_the_message(spark: SparkSession) -> None:
    found = counted(spark, [Case("u", "unchecked", producer=None, identity="other")])

    assert {service: seen(one) for service, one in found.items()} == {
        "bank-a": {},
        "bank-b": {"unchecked": 1},
        "bank-c": {},
    }


def test_a_producer_without_rows_is_named_by_the_beginning_of_its_check_address(spark: SparkSession) -> None:
    two = (ProducerScope("bank-a", check_urls=("http://bank-a/",)), ProducerScope("bank-x", "other"))
    scope = msgspec.structs.replace(WITH_URLS, producers=two)

    found = counted(spark, [Case("g", "ghost", producer=None, identity=None)], scope)

    assert (seen(found["bank-a"]), seen(found["bank-x"])) == ({"ghost": 1}, {})


def test_acknowledged_messages_count_in_no_class(spark: SparkSession) -> None:
    [case] = [case for case in BROKEN if case.gid == "booked_twice"]
    baseline = baseline_frame(spark, Baseline(acknowledged={case.gid: tuple(case.flags)}))

    audited = compare(inputs_of(spark, [case]), WITH_URLS, baseline=baseline)
    audited.release()

    found = {one.service: one for one in audited.result.services}
    assert (found["bank-b"].messages, found["bank-b"].violations, seen(found["bank-b"])) == (1, 0, {})


def test_every_class_of_the_whole_counts_somewhere(spark: SparkSession) -> None:
    audited = compare(inputs_of(spark, ALL + RECONCILED), WITH_URLS)
    audited.release()

    somewhere = {flag for one in audited.result.services for flag, count in one.counts.items() if count}
    assert somewhere == {flag.value for flag in Flag}
