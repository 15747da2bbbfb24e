"""Every class, on a message that has it and on its neighbour that has not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import ALL, BRANCH, BROKEN, NOW_MS, RECONCILED, SCOPE, Case, inputs_of
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.lifecycle import State
from twophase_spark.rules.classify import classify
from twophase_spark.rules.facts import by_gid, long_form
from twophase_spark.rules.remembered import digest
from twophase_spark.rules.scope import ProducerScope, Scope, ServiceScope

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def rows_of(spark: SparkSession, cases: list[Case], scope: Scope) -> dict[str, Any]:
    rows = classify(by_gid(long_form(inputs_of(spark, cases))), scope).withColumn("digest", digest()).collect()
    return {row["gid"]: row for row in rows}


@pytest.fixture(scope="module")
def classified(spark: SparkSession) -> dict[str, Any]:
    return rows_of(spark, ALL + RECONCILED, SCOPE)


@pytest.mark.parametrize("case", ALL + RECONCILED, ids=lambda case: case.gid)
def test_flags_of(case: Case, classified: dict[str, Any]) -> None:
    assert list(classified[case.gid]["flags"]) == case.flags


def test_only_violations_are_violations(classified: dict[str, Any]) -> None:
    harmless = {"in_flight", "late", "parked", "stopped", "unchecked"}

    assert {gid for gid, row in classified.items() if row["violation"]} == {
        case.gid for case in ALL + RECONCILED if set(case.flags) - harmless
    }


def test_a_digest_is_of_all_that_is_known_of_what_is_broken(classified: dict[str, Any]) -> None:
    """Only the gid is left out: messages with the same rows have the same digest."""
    known = {case.gid: msgspec.structs.replace(case, gid="", expected="") for case in BROKEN}

    assert len({classified[gid]["digest"] for gid in known}) == len(set(known.values()))


HORIZON_MS = NOW_MS - 1_000_000
OLD, YOUNG = make_gid(HORIZON_MS - 1, bytes(RANDOM_BYTES)), make_gid(HORIZON_MS, bytes(RANDOM_BYTES))
NONE: tuple[tuple[str, str], ...] = ()


def test_what_cleaned_history_may_have_known_is_not_lost(spark: SparkSession) -> None:
    scope = msgspec.structs.replace(SCOPE, history_horizon_ms=HORIZON_MS)
    cases = [
        Case(OLD, "unchecked", None, barriers=NONE, ledger=()),
        Case(YOUNG, "lost", None, barriers=NONE, ledger=()),
        Case("foreign", "unchecked", None, barriers=NONE, ledger=()),
        Case("foreign-prepared-late", "lost", None, barriers=NONE, ledger=(), prepared_ms=HORIZON_MS),
        Case("foreign-orphan", "unchecked", None, None),
    ]

    found = rows_of(spark, cases, scope)

    assert {gid: list(row["flags"]) for gid, row in found.items()} == {case.gid: case.flags for case in cases}
    assert list(found[OLD]["unknown"]) == ["older than history"]


def test_a_cleaned_producer_barrier_makes_no_ghost(spark: SparkSession) -> None:
    scope = msgspec.structs.replace(SCOPE, producer_horizon_ms=HORIZON_MS)
    cases = [
        Case("old", "unchecked", producer=None, created_ms=HORIZON_MS - 1),
        Case("young", "ghost", producer=None, created_ms=HORIZON_MS),
        Case("old-barred", "ghost contrary_verdict", producer="rollback", created_ms=HORIZON_MS - 1),
        Case("old-denied", "unchecked", State.FAILED, None, NONE, (), "check-back", HORIZON_MS - 1),
    ]

    found = rows_of(spark, cases, scope)

    assert {gid: list(row["flags"]) for gid, row in found.items()} == {case.gid: case.flags for case in cases}


def test_a_cleaned_consumer_barrier_misses_no_effect(spark: SparkSession) -> None:
    scope = msgspec.structs.replace(SCOPE, consumer_horizon_ms=HORIZON_MS)
    cases = [
        Case("old", "unchecked", barriers=NONE, ledger=(), created_ms=HORIZON_MS - 1),
        Case("old-booked", "", barriers=NONE, created_ms=HORIZON_MS - 1),
        Case("young", "missing_effect", barriers=NONE, ledger=(), created_ms=HORIZON_MS),
        Case("young-booked", "unguarded_effect", barriers=NONE, created_ms=HORIZON_MS),
    ]

    found = rows_of(spark, cases, scope)

    assert {gid: list(row["flags"]) for gid, row in found.items()} == {case.gid: case.flags for case in cases}


def test_branches_of_services_not_given_are_not_missing(spark: SparkSession) -> None:
    scope = msgspec.structs.replace(SCOPE, consumers=(ServiceScope("bank-b", ("http://bank-b/",)),))
    elsewhere = ("02", "http://bank-x/in")
    cases = [
        Case("one-is-elsewhere", "unchecked", branches=(("01", "http://bank-b/in"), elsewhere)),
        Case(
            "ours-is-missing",
            "missing_effect unchecked",
            barriers=NONE,
            ledger=(),
            branches=(("01", "http://bank-b/in"), elsewhere),
        ),
    ]

    found = rows_of(spark, cases, scope)

    assert {gid: list(row["flags"]) for gid, row in found.items()} == {case.gid: case.flags for case in cases}


def test_an_effect_in_another_service_is_missing_in_its_own(spark: SparkSession) -> None:
    services = (ServiceScope("bank-b", ("http://bank-b/",)), ServiceScope("bank-c", ("http://bank-c/", "http://c2/")))
    scope = msgspec.structs.replace(SCOPE, consumers=services, ledgers=())
    second = ("02", "http://bank-c/in")
    cases = [
        Case("in-order", "", barriers=(("bank-b", "01"), ("bank-c", "02")), ledger=(), branches=(BRANCH, second)),
        Case("elsewhere", "missing_effect orphan", barriers=(("bank-c", "01"),), ledger=()),
        Case(
            "swapped",
            "missing_effect orphan",
            barriers=(("bank-c", "01"), ("bank-b", "02")),
            ledger=(),
            branches=(BRANCH, second),
        ),
        Case("still-called", "orphan in_flight", State.SUBMITTED, barriers=(("bank-c", "01"),), ledger=()),
    ]

    found = rows_of(spark, cases, scope)

    assert {gid: list(row["flags"]) for gid, row in found.items()} == {case.gid: case.flags for case in cases}


def test_a_service_without_urls_may_serve_what_another_does(spark: SparkSession) -> None:
    services = (ServiceScope("bank-b", ("http://bank-b/",)), ServiceScope("bank-c"))
    scope = msgspec.structs.replace(SCOPE, consumers=services, ledgers=())

    found = rows_of(spark, [Case("g", "", barriers=(("bank-c", "01"),), ledger=())], scope)

    assert list(found["g"]["flags"]) == []


def test_without_producers_nothing_is_a_ghost(spark: SparkSession) -> None:
    scope = msgspec.structs.replace(SCOPE, producers=())

    plain = Case("plain", "", producer=None, checked=False, identity=None)
    found = rows_of(spark, [Case("g", "unchecked", producer=None), plain], scope)

    assert list(found["g"]["unknown"]) == ["producer not given"]
    assert list(found["plain"]["flags"]) == []


def test_a_check_address_proves_a_producer_without_identity(spark: SparkSession) -> None:
    cases = [Case("dtm", "ghost", producer=None, identity=None), Case("ours", "ghost", producer=None, identity="other")]
    given = msgspec.structs.replace(SCOPE, producers=(ProducerScope("bank-a", check_urls=("http://bank-a/",)),))
    other = msgspec.structs.replace(SCOPE, producers=(ProducerScope("bank-a", check_urls=("http://bank-x/",)),))

    found = rows_of(spark, cases, given)
    assert {gid: list(row["flags"]) for gid, row in found.items()} == {case.gid: case.flags for case in cases}

    found = rows_of(spark, cases, other)
    assert {gid: list(row["unknown"]) for gid, row in found.items()} == {
        case.gid: ["producer not given"] for case in cases
    }
