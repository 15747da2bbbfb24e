"""Every class, on a message that has it and on its neighbour that has not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import ALL, BRANCH, BROKEN, CANCELLED, NOW_MS, QUEUED, RECONCILED, SCOPE, Case, inputs_of
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.lifecycle import State
from twophase.core.topic import late_id
from twophase_spark.rules.classify import classify
from twophase_spark.rules.facts import by_gid, long_form
from twophase_spark.rules.remembered import digest
from twophase_spark.rules.scope import Scope, ServiceScope

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def rows_of(spark: SparkSession, cases: list[Case], scope: Scope) -> dict[str, Any]:
    rows = classify(by_gid(long_form(inputs_of(spark, cases))), scope).withColumn("digest", digest()).collect()
    return {row["gid"]: row for row in rows}


@pytest.fixture(scope="module")
def classified(spark: SparkSession) -> dict[str, Any]:
    return rows_of(spark, ALL + RECONCILED + CANCELLED, SCOPE)


@pytest.mark.parametrize("case", ALL + RECONCILED + CANCELLED, ids=lambda case: case.gid)
def test_flags_of(case: Case, classified: dict[str, Any]) -> None:
    assert list(classified[case.gid]["flags"]) == case.flags


def test_only_violations_are_violations(classified: dict[str, Any]) -> None:
    harmless = {"in_flight", "late", "left_out", "parked", "stopped", "unchecked"}

    assert {gid for gid, row in classified.items() if row["violation"]} == {
        case.gid for case in ALL + RECONCILED + CANCELLED if set(case.flags) - harmless
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


def test_without_producers_only_an_effect_of_a_failed_message_makes_a_ghost(spark: SparkSession) -> None:
    """Only an operator may fail a message behind a call."""
    scope = msgspec.structs.replace(SCOPE, producers=())
    cases = [
        Case("g", "unchecked", producer=None),
        Case("plain", "", producer=None, checked=False, identity=None),
        Case("denied", "ghost unchecked", State.FAILED, None, decided_by="check-back"),
        Case("aborted", "ghost", State.FAILED, None, decided_by="abort", checked=False, identity=None),
        Case("aborted-without-effect", "", State.FAILED, None, NONE, (), "abort", checked=False, identity=None),
        Case("stopped", "unchecked", State.FAILED, None, decided_by="operator"),
    ]

    found = rows_of(spark, cases, scope)

    assert {gid: list(row["flags"]) for gid, row in found.items()} == {case.gid: case.flags for case in cases}
    assert list(found["g"]["unknown"]) == ["producer not given"]


def test_an_effect_of_a_late_subscriber_is_no_orphan_behind_a_redirection(spark: SparkSession) -> None:
    """The topic had no subscriber, and one of two took effect later.

    Then an operator sent the branch elsewhere.
    """
    late = late_id("01", "http://bank-c/in")
    cases = [
        Case("late", "", barriers=(("bank-b", "01"), ("bank-c", late))),
        Case("of-no-branch", "orphan", barriers=(("bank-b", "01"), ("bank-c", late.replace("01", "02", 1)))),
        Case("of-a-list", "orphan", barriers=(("bank-b", "01"), ("bank-c", "01-02"))),
    ]

    assert {gid: row["flags"] for gid, row in rows_of(spark, cases, SCOPE).items()} == {
        case.gid: case.flags for case in cases
    }


QUEUE_URLS = (ServiceScope("bank-b", ("queue://orders",)), ServiceScope("bank-c", ("queue://orders",)))


def test_what_groups_did_with_an_entry_is_not_compared(spark: SparkSession) -> None:
    """Every group takes effect once, so no number of rows is right or wrong."""
    cases = [
        Case("waiting", "unchecked", barriers=NONE, ledger=(), branches=(QUEUED,), entries=(0,)),
        Case("both-did", "unchecked", barriers=(("bank-b", "01"), ("bank-c", "01")), branches=(QUEUED,), entries=(0,)),
        Case("one-did", "unchecked", barriers=(("bank-c", "01"),), ledger=(), branches=(QUEUED,), entries=(0,)),
        Case("booked", "unchecked", barriers=NONE, branches=(QUEUED,), entries=(0,)),
        Case(
            "doubled-beside-a-queue",
            "duplicate_effect unchecked",
            barriers=(("bank-b", "01"), ("bank-c", "01"), ("bank-b", "02")),
            ledger=("01", "02"),
            branches=(BRANCH, ("02", QUEUED[1])),
            entries=(1,),
        ),
    ]

    found = rows_of(spark, cases[:-1], msgspec.structs.replace(SCOPE, consumers=QUEUE_URLS))
    found |= rows_of(spark, cases[-1:], SCOPE)

    assert {gid: list(row["flags"]) for gid, row in found.items()} == {case.gid: case.flags for case in cases}
    assert {tuple(row["unknown"]) for row in found.values()} == {("branch of a service not given",)}
