"""The numbers of each producer and consumer, on messages of every class."""

from __future__ import annotations

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import ALL, BROKEN, CANCELLED, IN_ORDER, RECONCILED, SCOPE, Case, inputs_of
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
VIOLATIONS = "violations"
"""Mark of what breaks a promise at a service, beside the classes."""


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


def by_case(spark: SparkSession, cases: list[Case]) -> dict[str, dict[str, set[str]]]:
    """Return the classes of each case at each service, beside messages in order.

    Each case is there twice as often as the one before: the bits of a number name the cases that it counts.
    """
    repeated = [
        msgspec.structs.replace(case, gid=f"{case.gid}-{number}")
        for place, case in enumerate(cases)
        for number in range(1 << place)
    ]
    found: dict[str, dict[str, set[str]]] = {case.gid: {} for case in cases}
    for service, one in counted(spark, [*IN_ORDER, *repeated]).items():
        for mark, count in [*seen(one).items(), (VIOLATIONS, one.violations)]:
            assert count < 1 << len(cases), f"{service} counts some message twice as {mark}: {count}"
            for place, case in enumerate(cases):
                if count >> place & 1:
                    found[case.gid].setdefault(service, set()).add(mark)
    return found


AT_SERVICES = {
    "committed_and_no_message": {"bank-a": {"lost"}},
    "delivered_without_producer_row": {"bank-a": {"ghost"}},
    "committed_and_aborted": {"bank-a": {"lost", "contrary_verdict"}},
    "booked_twice": {"bank-b": {"duplicate_effect"}},
    "booked_with_another_amount": {"bank-b": {"differing_effect"}},
    "succeeded_without_any_effect": {"bank-b": {"missing_effect"}},
    "succeeded_without_the_second_branch": {"bank-c": {"missing_effect"}},
    "barrier_without_ledger": {"bank-b": {"missing_effect"}},
    "ledger_without_barrier": {"bank-b": {"unguarded_effect"}},
    "effect_without_a_message": {"bank-b": {"orphan"}},
    "effect_of_a_branch_too_many": {"bank-b": {"orphan"}},
    "committed_delivered_and_forgotten": {"bank-a": {"lost"}, "bank-b": {"orphan"}},
}


@pytest.mark.parametrize("half", [0, 1])
def test_a_violation_counts_where_the_evidence_is(spark: SparkSession, half: int) -> None:
    names = list(AT_SERVICES)[half::2]
    cases = [case for case in BROKEN + RECONCILED if case.gid in names]
    assert len(cases) == len(names)

    assert by_case(spark, cases) == {
        name: {service: {*classes, VIOLATIONS} for service, classes in AT_SERVICES[name].items()} for name in names
    }


def test_what_is_open_misled_or_unchecked_counts_at_each_service_of_it(spark: SparkSession) -> None:
    """A message waits for its producer, and once it is decided for its consumers.

    An effect in the wrong service is missing in one and an orphan in the other.
    """
    cases = [
        Case("misled", "missing_effect orphan", barriers=(("bank-c", "01"),), ledger=()),
        Case("prepared", "in_flight", State.PREPARED, "msg", NOTHING, ()),
        Case("submitted", "in_flight", State.SUBMITTED, "msg", NOTHING, ()),
        Case("unchecked", "unchecked", producer=None, identity="other"),
        Case("cancelled", "left_out", ledger=(), left_out=("01",)),
    ]

    assert by_case(spark, cases) == {
        "misled": {"bank-b": {"missing_effect", VIOLATIONS}, "bank-c": {"orphan", VIOLATIONS}},
        "prepared": {"bank-a": {"in_flight"}},
        "submitted": {"bank-b": {"in_flight"}},
        "unchecked": {"bank-b": {"unchecked"}},
        "cancelled": {"bank-b": {"left_out"}},
    }


def test_without_addresses_an_effect_in_two_services_counts_in_both_and_a_missing_one_in_neither(
    spark: SparkSession,
) -> None:
    """The branch of what is missing may be of either consumer."""
    [twice] = [case for case in BROKEN if case.gid == "effect_in_two_services"]

    found = counted(spark, [twice, Case("m", "missing_effect", barriers=NOTHING, ledger=())], SCOPE)

    assert {service: seen(one) for service, one in found.items()} == {
        "bank-a": {},
        "bank-b": {"duplicate_effect": 1},
        "bank-c": {"duplicate_effect": 1},
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
    audited = compare(inputs_of(spark, ALL + RECONCILED + CANCELLED), WITH_URLS)
    audited.release()

    somewhere = {flag for one in audited.result.services for flag, count in one.counts.items() if count}
    assert somewhere == {flag.value for flag in Flag}
