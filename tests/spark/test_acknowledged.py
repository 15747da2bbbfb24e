"""A baseline of known violations, and the table of findings.

A message that was born before a given time need not be known.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.cases import Case
from tests.spark.plant import System, make_system, plant
from tests.spark.truth import nowadays
from twophase.core.errors import ConfigurationError
from twophase.core.lifecycle import State
from twophase_spark.auditing.run import look_into, run
from twophase_spark.fleet import Moment
from twophase_spark.inputs import baseline as baselines
from twophase_spark.inputs.baseline import read_baseline, write_baseline
from twophase_spark.inputs.plan import Plan
from twophase_spark.locations import Role, parse_coordinator, parse_named
from twophase_spark.reports.junit import to_junit
from twophase_spark.reports.report import Report, Verdict

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
NONE: tuple[tuple[str, str], ...] = ()
BROKEN = [
    Case("dropped", "lost", None, "msg", NONE, ()),
    Case("unbooked", "missing_effect", ledger=()),
    Case("fine", ""),
]


@pytest.fixture
def system(tmp_path: Path) -> System:
    made = make_system(tmp_path)
    plant(made, nowadays(BROKEN))
    return made


def audited(spark: SparkSession, system: System, **more: object) -> Report:
    locations = (
        parse_coordinator(f"sqlite:///{system.coordinator}"),
        parse_named(Role.PRODUCER, f"bank-a=sqlite:///{system.bank_a}"),
        parse_named(Role.CONSUMER, f"bank-b=sqlite:///{system.bank_b}"),
        parse_named(Role.LEDGER, f"bank-b=sqlite:///{system.bank_b}#ledger"),
    )
    plan = msgspec.structs.replace(Plan(locations, grace_s=0), **more)
    return run(spark, plan, look_into(plan))


def test_what_is_acknowledged_fails_no_audit_and_stands_among_the_findings(
    spark: SparkSession, system: System, tmp_path: Path
) -> None:
    table, known, state = tmp_path / "findings", tmp_path / "known.json", tmp_path / "state"
    first = audited(spark, system, findings=str(table), write_baseline=known)
    assert first.verdict is Verdict.VIOLATIONS
    assert read_baseline(known).acknowledged == {"dropped": ("lost",), "unbooked": ("missing_effect",)}

    report = audited(spark, system, findings=str(table), baseline=known, state=state)

    result = report.result
    assert (report.verdict, result.violations, result.acknowledged, result.clean) == (Verdict.CLEAN, 0, 2, 1)
    assert result.counts["lost"] == result.counts["missing_effect"] == 0
    assert result.samples == ()
    assert report.sentence.endswith("2 more are broken and acknowledged.")
    assert b"<failure" not in to_junit(report)
    # The findings of every run stand in one table.
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert first.run_id != report.run_id
    assert table.stat().st_mode & 0o077 == 0, "no other user gets in"
    assert {(row["run_id"], row["gid"], row["acknowledged"], row["violation"]) for row in rows} == {
        (first.run_id, "dropped", False, True),
        (first.run_id, "unbooked", False, True),
        (report.run_id, "dropped", True, True),
        (report.run_id, "unbooked", True, True),
    }
    assert {row["as_of"].isoformat(timespec="milliseconds").replace("+00:00", "Z") for row in rows} == {
        first.as_of,
        report.as_of,
    }
    # Carried over, they stay acknowledged in the next run.
    again = audited(spark, system, baseline=known, state=state)
    assert (again.verdict, again.result.acknowledged) == (Verdict.CLEAN, 2)


def test_another_class_or_another_message_is_a_violation(spark: SparkSession, system: System, tmp_path: Path) -> None:
    known = tmp_path / "known.json"
    known.write_bytes(b'{"format": 1, "acknowledged": {"dropped": ["lost"], "unbooked": ["orphan"]}}')

    report = audited(spark, system, baseline=known)

    assert (report.verdict, report.result.violations, report.result.acknowledged) == (Verdict.VIOLATIONS, 1, 1)
    assert report.result.primary == {"missing_effect": 1}
    assert [one.gid for one in report.result.samples] == ["unbooked"]


def test_a_message_of_before_need_not_be_known(spark: SparkSession, system: System) -> None:
    now_ms = nowadays([Case("now", "")])[0].created_ms
    system.execute(system.bank_a, "update barrier set prepared_at = ? where gid = 'dropped'", now_ms - 1)

    report = audited(spark, system, since_ms=Moment(now_ms))

    assert report.result.primary == {"missing_effect": 1}
    assert report.result.unknown == {"older than history": 1}
    assert any(line.what.startswith("messages born before") for line in report.coverage)


def test_after_a_move_what_ended_elsewhere_is_not_lost(spark: SparkSession, system: System) -> None:
    plant(system, nowadays([Case("elsewhere", "", None, "msg", (("bank-b", "01"),), ("01",))]))
    plant(system, nowadays([Case("undone", "", State.FAILED, "msg", NONE, (), decided_by="abort")]))
    moved_ms = nowadays([Case("now", "")])[0].created_ms
    system.execute(system.coordinator, "insert into store_meta values ('taken_over_ms', ?)", moved_ms)

    report = audited(spark, system)

    # What is known here is judged as ever: a failed message of a committed transaction.
    assert report.result.primary == {"lost": 1, "missing_effect": 1}
    assert report.result.unknown == {"older than history": 2}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "Make one with --write-baseline"),
        ("{", "is not a baseline"),
        ('{"format": 2}', "has format 2"),
        ('{"acknowledged": {"g": ["late"]}}', "no promise is broken by late"),
        ('{"acknowledged": {"g": "lost"}}', "is not a baseline"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "known.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigurationError, match=said):
        read_baseline(path)


def test_too_many_violations_make_no_baseline(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "ACKNOWLEDGED_MAX", 1)
    broken = [(case.gid, case.flags, bool(case.flags)) for case in BROKEN]
    findings = spark.createDataFrame(broken, "gid string, flags array<string>, violation boolean")

    with pytest.raises(ConfigurationError, match="find the cause first"):
        write_baseline(tmp_path / "known.json", findings)
    assert not (tmp_path / "known.json").exists()
