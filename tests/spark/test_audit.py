"""Two passes over DataFrames: what counts, what resolves suspects, and the wait."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import twophase_spark
import twophase_spark.notebook
from tests.spark.cases import ALL, BRANCH, BROKEN, IN_ORDER, MOVING, NOW_MS, SCOPE, Case, inputs_of
from tests.spark.plant import make_system, one_service, plant
from tests.spark.truth import nowadays
from twophase.core.errors import CannotRead, ConfigurationError
from twophase.core.lifecycle import State
from twophase_spark.reports.report import Verdict
from twophase_spark.rules import comparison
from twophase_spark.rules.comparison import Again, AuditResult, Look, compare
from twophase_spark.rules.facts import Inputs
from twophase_spark.rules.remembered import SEEN_SCHEMA, digest
from twophase_spark.rules.samples import SAMPLES_PER_FLAG
from twophase_spark.rules.scope import Scope
from twophase_spark.rules.taxonomy import Flag

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
NONE: tuple[tuple[str, str], ...] = ()
GRACE_MS = 3_000
"""The grace time; the cases' messages are older: 5 s."""


class Databases:
    """The databases' rows: at first `before`, then `after`.

    `after` holds from the second reading of suspects on.
    """

    def __init__(
        self, spark: SparkSession, before: list[Case], after: list[Case], *, is_unchanged: bool = False
    ) -> None:
        self.spark = spark
        self.is_unchanged = is_unchanged
        self.scopes = [SCOPE]
        self.saying = [before, after]
        self.asked: list[list[str]] = []
        self.order: list[str] = []

    def rows(self, gids: DataFrame, count: int) -> Look:
        wanted = sorted(row["gid"] for row in gids.collect())
        assert count == len(wanted)
        cases = self.saying[min(len(self.asked), 1)]
        self.order.append("read")
        self.asked.append(wanted)
        inputs = inputs_of(self.spark, [case for case in cases if case.gid in wanted])
        return Look(inputs, time.monotonic(), self.is_unchanged and len(self.asked) > 1)

    def scope(self) -> Scope:
        """Return the scope of the last reading so far."""
        return self.scopes[min(len(self.asked), len(self.scopes)) - 1]

    def wait(self, read_s: float) -> None:
        assert read_s <= time.monotonic()
        self.order.append("wait")

    def audit(self, seen: DataFrame | None = None) -> AuditResult:
        return self.looked(seen)[0]

    def looked(self, seen: DataFrame | None = None) -> tuple[AuditResult, dict[str, list[str]]]:
        """Return the result, and the classes of every finding."""
        again = Again(self.rows, self.rows, self.scope)
        audited = compare(inputs_of(self.spark, self.saying[0]), SCOPE, again, self.wait, grace_ms=GRACE_MS, seen=seen)
        found = {row["gid"]: row["flags"] for row in audited.findings.select("gid", "flags").collect()}
        audited.release()
        return audited.result, found


def told(
    inputs: Inputs,
    scope: Scope,
    again: Again | None = None,
) -> AuditResult:
    audited = compare(inputs, scope, again, grace_ms=GRACE_MS)
    audited.release()
    return audited.result


@pytest.fixture(scope="module")
def of_all(spark: SparkSession) -> tuple[AuditResult, dict[str, Any]]:
    """The result of an audit of every case, and the findings by gid."""
    audited = compare(inputs_of(spark, ALL), SCOPE)
    findings = {row["gid"]: row for row in audited.findings.collect()}
    audited.release()
    return audited.result, findings


def test_counts_of_all_classes(of_all: tuple[AuditResult, dict[str, Any]]) -> None:
    result, _ = of_all

    expected = Counter(flag for case in ALL for flag in case.flags)
    assert result.counts == {flag.value: expected[flag.value] for flag in Flag}
    assert result.messages == len(ALL)
    assert result.clean == len(IN_ORDER)
    assert result.violations == len(BROKEN)
    assert result.primary == Counter(case.flags[0] for case in BROKEN)


def test_counts_the_rows_of_every_source(of_all: tuple[AuditResult, dict[str, Any]]) -> None:
    result, _ = of_all
    at = Counter(service for case in ALL for service, _ in case.barriers)

    assert {(row.role, row.source): row.rows for row in result.rows} == {
        ("coordinator", "coordinator"): sum(case.state is not None or bool(case.entries) for case in ALL),
        ("producer", "bank-a"): sum(case.producer is not None for case in ALL),
        ("consumer", "bank-b"): at["bank-b"],
        ("consumer", "bank-c"): at["bank-c"],
        ("ledger", "bank-b"): sum(len(case.ledger) for case in ALL),
    }
    assert at["bank-b"] != at["bank-c"] > 0


def test_all_findings_are_a_frame_with_a_primary_class(of_all: tuple[AuditResult, dict[str, Any]]) -> None:
    _, findings = of_all

    found = {gid: (row["primary"], row["flags"]) for gid, row in findings.items()}
    assert found == {case.gid: (case.flags[0], case.flags) for case in ALL if case.flags}


MANY = [Case(f"g{number:03}", "lost", None, "msg", NONE, ()) for number in range(SAMPLES_PER_FLAG + 5)]
TWO = (("01", "http://bank-b/in"), ("02", "http://bank-b/in"))
TO_REPAIR = [
    Case("a", "missing_effect", branches=TWO),
    Case("b", "missing_effect", barriers=(("bank-b", "01"), ("bank-b", "02")), branches=TWO),
    Case("c", "unguarded_effect", ledger=("01", "02"), branches=TWO),
]
DENIED = Case("z-denied", "lost contrary_verdict", State.FAILED, "msg", NONE, (), decided_by="abort")


@pytest.fixture(scope="module")
def sampled(spark: SparkSession) -> AuditResult:
    return told(inputs_of(spark, [*MANY, *TO_REPAIR, DENIED]), SCOPE)


def test_a_sample_tells_what_each_side_says(sampled: AuditResult) -> None:
    [sample] = [one for one in sampled.samples if one.gid == DENIED.gid]

    assert sample.flags == ("lost", "contrary_verdict")
    assert sample.message is not None
    assert (sample.message["state"], sample.message["decided_by"]) == (State.FAILED, "abort")
    assert sample.producers == ({"source": "bank-a", "reason": "msg"},)
    assert (sample.barriers, sample.ledger) == ((), ())


def test_a_sample_names_the_branches_to_repair(sampled: AuditResult) -> None:
    repairs = {
        one.gid: [re.findall("curl|delete|insert|'0[12]'|=0[12]&", step.command) for step in one.repairs]
        for one in sampled.samples
    }

    assert {case.gid: repairs[case.gid] for case in TO_REPAIR} == {
        "a": [["curl", "=02&"]],
        "b": [["delete", "'02'"], ["curl", "=02&"]],
        "c": [["insert", "'02'", "'01'"]],
    }


def test_no_branch_is_called_again_whose_barrier_may_have_been_cleaned(spark: SparkSession) -> None:
    """Both services are asked for.

    One has its row and no booking, the other cleaned during the audit.
    """
    cleaned_ms = NOW_MS - 60_000
    risen = msgspec.structs.replace(SCOPE, consumer_horizon_ms=cleaned_ms)
    two = (("01", "http://bank-b/in"), ("02", "http://bank-c/in"))
    cases = [
        Case("old", "missing_effect unchecked", ledger=(), branches=two, created_ms=cleaned_ms - 1),
        Case("young", "missing_effect", ledger=(), branches=two, created_ms=cleaned_ms),
    ]
    databases = Databases(spark, cases, cases)

    result = told(inputs_of(spark, cases), SCOPE, Again(databases.rows, databases.rows, lambda: risen))

    assert {one.gid: list(one.flags) for one in result.samples} == {case.gid: case.flags for case in cases}
    called = {
        one.gid: re.findall(r"branch_id=(\d+)", " ".join(step.command for step in one.repairs))
        for one in result.samples
    }
    assert called == {"old": ["01"], "young": ["02", "01"]}


def test_samples_are_bounded(sampled: AuditResult) -> None:
    first = [one.gid for one in sampled.samples if one.flags == ("lost",)]

    assert sampled.counts["lost"] == len(MANY) + 1
    assert first == [case.gid for case in MANY[:SAMPLES_PER_FLAG]]
    assert len(sampled.samples) == SAMPLES_PER_FLAG + len(TO_REPAIR) + 1


def test_of_nothing_nothing_is_wrong(spark: SparkSession) -> None:
    result = told(inputs_of(spark, []), SCOPE)

    assert (result.messages, result.violations, result.samples) == (0, 0, ())


def test_a_clean_first_pass_needs_no_second(spark: SparkSession) -> None:
    databases = Databases(spark, IN_ORDER + MOVING, [])

    result = databases.audit()

    assert databases.order == ["read"]
    assert (result.violations, result.suspects) == (0, 0)


def test_what_both_passes_do_not_find_does_not_count(spark: SparkSession) -> None:
    """Messages that still move, or whose rows are cleaned meanwhile, are not broken."""
    first = [
        # The producer was read before its commit, the coordinator after its decision.
        Case("skewed", "", State.SUBMITTED, None, NONE, ()),
        Case("another class", "lost", None, "msg", NONE, ()),
        Case("cleaned", "lost", None, "msg", NONE, ()),
    ]
    second = [
        Case("skewed", "in_flight", State.SUBMITTED, "msg", NONE, ()),
        Case("another class", "missing_effect", State.SUCCEEDED, "msg", NONE, ()),
    ]

    result, found = Databases(spark, first, second).looked()

    assert found == {"skewed": ["in_flight"], "another class": ["in_flight"], "cleaned": ["unchecked"]}
    assert (result.suspects, result.settled, result.violations, result.clean) == (3, 3, 0, 0)
    assert {flag: count for flag, count in result.counts.items() if count} == {"in_flight": 2, "unchecked": 1}
    assert result.unknown == {"cleaned meanwhile": 1}


def test_another_effect_of_the_message_is_not_the_same_lack(spark: SparkSession) -> None:
    """Each look reads one of two branches while it takes effect.

    One of its two rows, in the barrier or in the ledger, was read before the commit, the other one after it.
    """
    two = (BRANCH, ("02", BRANCH[1]))
    first, second = (("bank-b", "01"),), (("bank-b", "01"), ("bank-b", "02"))

    def moving(gid: str, barriers: tuple[tuple[str, str], ...], *ledger: str) -> Case:
        return Case(gid, "", State.SUBMITTED, barriers=barriers, ledger=ledger, branches=two)

    before = [moving("barrier first", first), moving("ledger first", (), "01"), moving("one lacks", first)]
    after = [
        moving("barrier first", second, "01"),
        moving("ledger first", first, "01", "02"),
        moving("one lacks", second),
    ]

    result, found = Databases(spark, before, after).looked()

    assert found == {
        "barrier first": ["in_flight"],
        "ledger first": ["in_flight"],
        "one lacks": ["missing_effect", "in_flight"],
    }
    assert (result.suspects, result.settled, result.violations) == (3, 2, 1)
    commands = "".join(repair.command for one in result.samples for repair in one.repairs)
    assert "'01'" in commands
    assert "'02'" not in commands, "what only the second look lacks is still moving"


@pytest.mark.parametrize("kept", ["on the driver", "by Spark"])
def test_what_both_passes_find_counts_once(
    spark: SparkSession,
    of_all: tuple[AuditResult, dict[str, Any]],
    kept: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kept == "by Spark":
        monkeypatch.setattr(comparison, "GIDS_NEAR_MAX", 0)
    databases = Databases(spark, ALL, ALL)

    result, found = databases.looked()

    once, findings = of_all
    assert databases.asked[1] == sorted(case.gid for case in BROKEN)
    assert result == msgspec.structs.replace(once, suspects=len(BROKEN), waited=True)
    assert found == {gid: row["flags"] for gid, row in findings.items()}


def test_waits_before_reading_again_when_something_is_in_flight(spark: SparkSession) -> None:
    """It waits also when the suspect was seen before, with other rows."""
    lost = Case("lost", "lost", None, "msg", NONE, ())
    databases = Databases(spark, [lost, MOVING[0]], [lost])

    result = databases.audit(spark.createDataFrame([("lost", 17)], SEEN_SCHEMA))

    assert databases.order == ["read", "wait", "read"]
    assert result.waited


def test_does_not_wait_when_nothing_is_in_flight_and_all_suspects_are_old(spark: SparkSession) -> None:
    """A young message that is in order is no suspect."""
    lost = Case("lost", "lost", None, "msg", NONE, (), prepared_ms=NOW_MS - GRACE_MS)
    effectless = Case("effectless", "missing_effect", barriers=NONE, ledger=())
    databases = Databases(
        spark, [lost, effectless, *IN_ORDER, Case("young", "", created_ms=NOW_MS)], [lost, effectless]
    )

    result = databases.audit()

    assert databases.order == ["read", "read"]
    assert (result.waited, result.violations) == (False, 2)


@pytest.mark.parametrize(
    "suspect",
    [
        Case("just_succeeded", "missing_effect", barriers=NONE, ledger=(), created_ms=NOW_MS - GRACE_MS - 10),
        Case("of_unknown_age", "orphan", None, None),
    ],
    ids=lambda case: case.gid,
)
def test_a_young_suspect_is_waited_for_though_nothing_is_in_flight(spark: SparkSession, suspect: Case) -> None:
    """The missing row stands in the database, whose replica lags.

    The first suspect is young only by the time when it finished.
    """
    old = Case("old", "missing_effect", barriers=NONE, ledger=())
    databases = Databases(spark, [suspect, old, *IN_ORDER], [Case(suspect.gid, ""), old])

    result = databases.audit()

    assert databases.order == ["read", "wait", "read"]
    assert (result.waited, result.settled, result.primary) == (True, 1, {"missing_effect": 1})


LOST = Case("lost", "lost", None, "msg", NONE, ())


def test_rows_that_are_unchanged_say_the_same(spark: SparkSession) -> None:
    """The rows of the second look would say otherwise, so they are not asked."""
    databases = Databases(spark, [LOST, MOVING[0]], [], is_unchanged=True)

    result = databases.audit()

    assert databases.order == ["read", "wait", "read"]
    assert (result.waited, result.suspects, result.settled, result.primary) == (True, 1, 0, {"lost": 1})


def test_unchanged_rows_are_looked_at_again_when_less_may_be_concluded(spark: SparkSession) -> None:
    """The history was cleaned in the grace time, so the message may have been in it."""
    databases = Databases(spark, [LOST, MOVING[0]], [LOST], is_unchanged=True)
    databases.scopes = [SCOPE, msgspec.structs.replace(SCOPE, history_horizon_ms=NOW_MS)]

    result = databases.audit()

    assert (result.suspects, result.settled, result.violations, result.unchecked) == (1, 1, 0, 1)


def test_what_an_earlier_run_saw_with_these_rows_is_seen_twice_by_now(spark: SparkSession) -> None:
    first = compare(inputs_of(spark, [LOST, MOVING[0]]), SCOPE)
    seen = first.findings.where("violation").select("gid", digest().alias(SEEN_SCHEMA.names[1]))
    databases = Databases(spark, [LOST, MOVING[0]], [])

    result = databases.audit(seen)

    assert databases.order == ["read"]
    assert (result.waited, result.suspects, result.settled, result.primary) == (False, 1, 0, {"lost": 1})
    first.release()


def test_a_message_read_live_and_final_is_final(spark: SparkSession) -> None:
    live = Case("g", "", State.SUBMITTED)
    final = Case("g", "", State.SUCCEEDED)
    journal = inputs_of(spark, [live]).journal.unionByName(inputs_of(spark, [final]).journal)

    result = told(inputs_of(spark, [final])._replace(journal=journal), SCOPE)

    assert (result.messages, result.clean) == (1, 1)


def test_what_was_reported_before_is_missed_when_nothing_reports_it(spark: SparkSession) -> None:
    """A booking for no branch proves nothing about a message.

    Nor does a barred producer row: the message may have been called.
    """
    left = [Case("booked_for_no_branch", "", None, None, NONE, ("00",)), Case("barred", "", None, "rollback", NONE, ())]
    gids = ["gone", *(case.gid for case in (*left, IN_ORDER[0], BROKEN[0]))]
    expected = spark.createDataFrame([(gid,) for gid in gids], "gid string")

    audited = compare(inputs_of(spark, [*left, *IN_ORDER, BROKEN[0]]), SCOPE, expected=expected)
    audited.release()

    result = audited.result
    assert (result.messages, result.clean) == (len(IN_ORDER) + 4, len(IN_ORDER))
    assert (result.violations, result.unknown) == (1, {"cleaned meanwhile": 3})


def test_bookings_for_no_branch_are_no_messages(spark: SparkSession) -> None:
    bookings = [Case("a", "", None, None, NONE, ("00",)), Case("b", "", None, None, NONE, (None, ""))]

    result = told(inputs_of(spark, bookings), SCOPE)

    assert (result.messages, result.clean, result.rows[-1].rows) == (0, 0, 3)


def test_rows_without_a_gid_are_refused(spark: SparkSession) -> None:
    inputs = inputs_of(spark, IN_ORDER)
    nameless = inputs.producers.selectExpr("source", "cast(null as string) as gid", "reason", "prepared_ms")

    with pytest.raises(CannotRead, match="no gid"):
        told(inputs._replace(producers=inputs.producers.unionByName(nameless)), SCOPE)


def kept_by(spark: SparkSession) -> set[int]:
    """Return the numbers of the data that Spark holds until they are released."""
    context: Any = spark.sparkContext._jsc
    return set(context.getPersistentRDDs().keySet())


def test_a_notebook_gets_a_report_and_the_findings(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "GIDS_NEAR_MAX", 0)  # fewer are kept without Spark
    system = make_system(tmp_path)
    plant(system, nowadays([case for case in (*IN_ORDER, *BROKEN) if one_service(case)]))
    _, producer, consumer, ledger = (argument.partition("=")[2] for argument in system.arguments)

    kept = kept_by(spark)
    with twophase_spark.audit(
        spark, [f"sqlite:///{system.coordinator}"], [producer], [consumer], [ledger], grace_s=0, late_s=1e12
    ) as (report, findings):
        found = {row["gid"] for row in findings.select("gid").collect()}
        assert kept_by(spark) - kept

    assert report.verdict == "violations"
    assert found == {case.gid for case in BROKEN if one_service(case)}
    assert kept_by(spark) <= kept, "nothing is kept behind the block"


def test_a_notebook_keeps_a_verified_point(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    plant(system, nowadays([Case("first", ""), Case("dropped", "lost", None, "msg", NONE, ())]))
    _, producer, consumer, _ = (argument.partition("=")[2] for argument in system.arguments)
    config, state, known = tmp_path / "fleet.toml", tmp_path / "state", tmp_path / "known.json"
    config.write_text(f'[audit]\ngrace = 60.0\n[[coordinator]]\nurl = "sqlite:///{system.coordinator}"\n')
    known.write_text('{"acknowledged": {"dropped": ["lost"]}}')

    def audited() -> twophase_spark.notebook.Outcome:
        return twophase_spark.audit(
            spark, [], [producer], [consumer], config=config, grace_s=0, late_s=1e12, state=state, baseline=known
        )

    with pytest.raises(ZeroDivisionError), audited():
        raise ZeroDivisionError
    assert not state.exists(), "a report that was not kept moves nothing"
    with audited() as (report, _):
        assert (report.verdict, report.grace_s, report.since) == ("clean", 0, None)
    with audited() as (report, _):
        assert (report.result.acknowledged, report.since is None) == (1, False)


def test_a_notebook_writes_the_reports_that_its_file_names(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    plant(system, nowadays([Case("fine", ""), Case("dropped", "lost", None, "msg", NONE, ())]))
    _, producer, consumer, _ = (argument.partition("=")[2] for argument in system.arguments)
    config = tmp_path / "fleet.toml"
    names = {name: tmp_path / f"out.{name}" for name in ("html", "json", "junit", "findings", "write_baseline")}
    lines = "".join(f'{name} = "{path}"\n' for name, path in names.items())
    config.write_text(f'[audit]\ngrace = 0\n{lines}[[coordinator]]\nurl = "sqlite:///{system.coordinator}"\n')

    with twophase_spark.audit(spark, [], [producer], [consumer], config=config) as (report, _):
        assert report.verdict is Verdict.VIOLATIONS

    assert "dropped" in names["html"].read_text()
    assert msgspec.json.decode(names["json"].read_bytes())["run_id"] == report.run_id
    assert "<testsuite" in names["junit"].read_text()
    assert DeltaTable(names["findings"]).to_pyarrow_table().column("gid").to_pylist() == ["dropped"]
    assert "dropped" in names["write_baseline"].read_text()

    with pytest.raises(CannotRead, match="there is no file"):
        twophase_spark.audit(spark, [], [producer], ["bank-b=sqlite:///none.db"], config=config)
    made = msgspec.json.decode(names["json"].read_bytes())
    assert (made["verdict"], "there is no file none.db" in made["sentence"]) == ("not-made", True)


def test_a_notebook_lists_what_waits(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    old = Case("old", "", State.PREPARED, None, NONE, ())
    plant(system, nowadays([old, Case("parked", "", State.SUBMITTED, "msg", NONE, (), parked=True), Case("fine", "")]))
    _, producer, consumer, _ = (argument.partition("=")[2] for argument in system.arguments)

    with twophase_spark.audit(
        spark, [f"sqlite:///{system.coordinator}"], [producer], [consumer], grace_s=0, late_s=0.0
    ) as outcome:
        rows = outcome.late.collect()

    assert {(row["gid"], row["state"], row["producer"]) for row in rows} == {
        ("old", State.PREPARED, "bank-a"),
        ("parked", State.SUBMITTED, "bank-a"),
    }
    assert all(row["age"] > 0 for row in rows)


def test_a_notebook_is_refused_what_the_command_is(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    plant(system, nowadays(IN_ORDER[4:5]))
    coordinator, consumer = f"sqlite:///{system.coordinator}", f"bank-b=sqlite:///{system.bank_b}"

    with pytest.raises(ConfigurationError, match="nothing to compare"):
        twophase_spark.audit(spark, [coordinator])
    with pytest.raises(ConfigurationError, match="there is no --consumer bank-b"):
        twophase_spark.audit(spark, [coordinator], [consumer], ledgers=[f"{consumer}#ledger"])
    with pytest.raises(ConfigurationError, match="No coordinator"):
        twophase_spark.audit(spark, [], consumers=[consumer])
