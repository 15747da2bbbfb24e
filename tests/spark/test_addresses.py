"""Services by their addresses: who serves a branch, and whose check address it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import BRANCH, SCOPE, Case, inputs_of
from tests.spark.plant import make_system, plant
from tests.spark.truth import nowadays
from twophase.core.lifecycle import State
from twophase_spark.auditing.run import look_into, run
from twophase_spark.inputs.plan import Plan
from twophase_spark.locations import Role, parse_coordinator, parse_named
from twophase_spark.reports.report import Report
from twophase_spark.rules.addresses import begins
from twophase_spark.rules.classify import classify
from twophase_spark.rules.facts import by_gid, long_form
from twophase_spark.rules.ordinary import numbers_by_gid
from twophase_spark.rules.scope import ProducerScope, Scope, ServiceScope

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
NONE: tuple[tuple[str, str], ...] = ()
ELSEWHERE = "branch of a service not given"


def rows_of(spark: SparkSession, cases: list[Case], scope: Scope) -> dict[str, Any]:
    return {row["gid"]: row for row in classify(by_gid(long_form(inputs_of(spark, cases))), scope).collect()}


def flags_of(found: dict[str, Any]) -> dict[str, list[str]]:
    return {gid: list(row["flags"]) for gid, row in found.items()}


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
        Case(
            "booked-elsewhere",
            "missing_effect orphan unguarded_effect",
            barriers=NONE,
            branches=(("01", "http://bank-c/in"),),
        ),
    ]

    found = rows_of(spark, cases, scope)

    assert {gid: list(row["flags"]) for gid, row in found.items()} == {case.gid: case.flags for case in cases}


def test_a_service_without_urls_may_serve_what_another_does(spark: SparkSession) -> None:
    services = (ServiceScope("bank-b", ("http://bank-b/",)), ServiceScope("bank-c"))
    scope = msgspec.structs.replace(SCOPE, consumers=services, ledgers=())

    found = rows_of(spark, [Case("g", "", barriers=(("bank-c", "01"),), ledger=())], scope)

    assert list(found["g"]["flags"]) == []


def test_a_row_of_a_branch_that_no_given_service_serves_is_no_orphan_and_needs_no_ledger(spark: SparkSession) -> None:
    """The branch may have taken effect before an operator redirected it.

    Or its service may share the barrier table.
    """
    scope = msgspec.structs.replace(SCOPE, consumers=(ServiceScope("bank-b", ("http://bank-b/",)),))
    elsewhere = (("01", "http://bank-x/in"),)
    in_both, both = (("bank-b", "01"), ("bank-b", "02")), (BRANCH, ("02", "http://bank-x/in"))
    cases = [
        Case("redirected-away", "unchecked", ledger=("01",), branches=elsewhere),
        Case("redirected-away-and-called", "in_flight", State.SUBMITTED, ledger=("01",), branches=elsewhere),
        Case("of-another-branch", "orphan unchecked", barriers=(("bank-b", "02"),), ledger=("02",), branches=elsewhere),
        Case("shared-barrier", "unchecked", ledger=(), branches=elsewhere),
        Case("shared-barrier-and-ours", "unchecked", barriers=in_both, branches=both),
        Case(
            "shared-barrier-and-ours-unbooked", "missing_effect unchecked", barriers=in_both, ledger=(), branches=both
        ),
    ]

    found = rows_of(spark, cases, scope)

    assert flags_of(found) == {case.gid: case.flags for case in cases}
    assert list(found["redirected-away"]["unknown"]) == [ELSEWHERE]


def audited(
    spark: SparkSession, folder: Path, cases: list[Case], served: tuple[str, str] = ("http://bank-b", "http://old-bank")
) -> Report:
    """Audit these messages where each consumer serves its addresses only."""
    system = make_system(folder)
    plant(system, nowadays(cases))
    plan = Plan(
        (
            parse_coordinator(f"sqlite:///{system.coordinator}"),
            parse_named(Role.PRODUCER, f"bank-a=sqlite:///{system.bank_a}"),
            parse_named(Role.CONSUMER, f"bank-b=sqlite:///{system.bank_b}#barrier?urls={served[0]}"),
            parse_named(Role.CONSUMER, f"old-bank=sqlite:///{system.bank_a}#barrier?urls={served[1]}"),
        ),
        grace_s=0,
    )
    return run(spark, plan, look_into(plan))


def test_services_whose_databases_are_swapped_are_named(spark: SparkSession, tmp_path: Path) -> None:
    cases = [Case("one", "", ledger=()), Case("two", "", ledger=())]

    report = audited(spark, tmp_path, cases, served=("http://old-bank", "http://bank-b"))

    assert (report.result.primary, report.result.counts["orphan"]) == ({"missing_effect": 2}, 2)
    assert "databases or urls of services, perhaps swapped" in [line.what for line in report.coverage]


OLD = "http://old-bank/in"
CALLED_ELSEWHERE = [Case("redirected", "", ledger=(), sent_to=OLD), Case("moved", "", ledger=(), by_dtm=True)]


def test_behind_a_redirect_and_a_move_only_what_lacks_is_called_and_where_the_operator_sent_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    lacking = Case("lacking", "missing_effect", barriers=NONE, ledger=(), sent_to=OLD)

    result = audited(spark, tmp_path, [*CALLED_ELSEWHERE, lacking]).result

    assert (result.messages, result.clean, result.violations, result.unchecked) == (3, 2, 1, 0)
    [sample] = result.samples
    assert (sample.gid, list(sample.flags)) == ("lacking", lacking.flags)
    assert [step.command.split("?")[0] for step in sample.repairs] == ["curl -X POST '" + BRANCH[1]]


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


def test_a_check_address_that_names_another_database_is_another_producers(spark: SparkSession) -> None:
    """Two shards behind one address have a database each."""
    cases = [
        Case("ours", "ghost", producer=None),
        Case("of-another-shard", "unchecked", producer=None, identity="a2"),
        Case("without-a-name", "ghost", producer=None, identity=None),
    ]
    given = msgspec.structs.replace(SCOPE, producers=(ProducerScope("bank-a", "a1", ("http://bank-a/",)),))

    found = rows_of(spark, cases, given)

    assert flags_of(found) == {case.gid: case.flags for case in cases}
    assert list(found["of-another-shard"]["unknown"]) == ["producer not given"]


BEGINNINGS: list[tuple[str, list[str], list[str]]] = [
    (
        "http://bank-a",
        ["http://bank-a", "http://bank-a/check", "http://bank-a:80/", "http://bank-a?x=1", "http://bank-a#x"],
        ["http://bank-ab/check", "http://bank-a.example/check", "http://bank"],
    ),
    ("http://bank-a/", ["http://bank-a/", "http://bank-a/check"], ["http://bank-a", "http://bank-a:80/"]),
    ("http://b/in", ["http://b/in", "http://b/in/2", "http://b/in?x=1"], ["http://b/in2"]),
    ("http://b/in?tenant=", ["http://b/in?tenant=7"], ["http://b/in?tenants=7"]),
    ("http://b/in?tenant=7", ["http://b/in?tenant=7", "http://b/in?tenant=7&x=1"], ["http://b/in?tenant=70"]),
    ("b:50051", ["b:50051/bank.Bank/In"], ["b:500510/bank.Bank/In"]),
    ("http://bänk.*", ["http://bänk.*/in"], ["http://bänk.de/in"]),
    ("", ["http://b/in", ""], []),
]
"""A beginning, addresses that have it, and others."""


def test_a_beginning_ends_where_a_part_of_the_address_does(spark: SparkSession) -> None:
    addresses = sorted({url for _, inside, outside in BEGINNINGS for url in inside + outside})
    urls = spark.createDataFrame([(url,) for url in addresses], "url string")
    columns = [
        begins(urls["url"], [beginning]).alias(f"has{place}") for place, (beginning, *_) in enumerate(BEGINNINGS)
    ]

    rows = urls.select("url", *columns).collect()

    found = {
        beginning: {row["url"] for row in rows if row[f"has{place}"]} & {*inside, *outside}
        for place, (beginning, inside, outside) in enumerate(BEGINNINGS)
    }
    assert found == {beginning: set(inside) for beginning, inside, _ in BEGINNINGS}


def test_no_service_takes_the_addresses_of_one_with_a_longer_name(spark: SparkSession) -> None:
    services = (ServiceScope("bank-b", ("http://bank-b",)), ServiceScope("bank-c", ("http://bank-bc",)))
    scope = msgspec.structs.replace(SCOPE, consumers=services, ledgers=())
    sound = Case("sound", "", barriers=(("bank-c", "01"),), ledger=(), branches=(("01", "http://bank-bc/in"),))
    misled = Case("misled", "missing_effect orphan", ledger=(), branches=sound.branches)
    inputs = inputs_of(spark, [sound, misled])

    assert flags_of(rows_of(spark, [sound, misled], scope)) == {"sound": [], "misled": misled.flags}
    ordinary = numbers_by_gid(inputs, scope).where("ordinary").select("gid").collect()
    assert [row["gid"] for row in ordinary] == ["sound"]
