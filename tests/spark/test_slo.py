"""Service levels: percentiles by group, late messages, and alerts.

The alerts have exit codes.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from tests.spark.cases import IN_ORDER
from tests.spark.plant import make_system, one_service, plant
from tests.spark.truth import nowadays
from twophase.core.lifecycle import State
from twophase_spark.cli.commands import app
from twophase_spark.cli.slo import _show
from twophase_spark.reports.slo_page import make_slo_report, to_slo_html, to_slo_json
from twophase_spark.schemas import JOURNAL, spark_schema
from twophase_spark.slo import DESTINATION, HOUR, HOUR_MS, PRODUCER, LeftOut, Measured, Thresholds, alerts_of, measure

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
NOON_MS = 500_000 * HOUR_MS


def message(number: int, **known: Any) -> dict[str, Any]:
    """Return a message decided after `number` ms and delivered after twice that."""
    created = NOON_MS + known.pop("after_ms", 0)
    row = {
        "source": "coordinator",
        "gid": f"g{number}",
        "state": int(State.SUCCEEDED),
        "created_ms": created,
        "decided_ms": created + number,
        "finished_ms": created + 3 * number,
        "decided_by": "submit",
        "reason": "",
        "attempts": 0,
        "parked": False,
        "delay_ms": 0,
        "checked": True,
        "producer": "bank-a",
        "identity": None,
        "branches": [{"branch_id": "01", "url": "http://me@bank-b:80/in?x=1"}],
    }
    return row | known


def journal(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=JOURNAL), schema=spark_schema(JOURNAL))


@pytest.fixture(scope="module")
def measured(spark: SparkSession) -> Measured:
    rows = [message(number) for number in range(1, 101)]
    slow = message(60_000, gid="slow", after_ms=HOUR_MS, producer="bank-x", decided_by="check-back", attempts=7)
    slow["branches"] = [{"branch_id": "01", "url": "grpc://bank-c/x"}, {"branch_id": "02", "url": "grpc://bank-c/y"}]
    delayed = message(10, gid="delayed", delay_ms=5_000, finished_ms=NOON_MS + 5_020, producer="")
    failed = message(1, gid="failed", state=int(State.FAILED), after_ms=HOUR_MS)
    waiting = message(1, gid="waiting", state=int(State.PREPARED), after_ms=HOUR_MS)
    parked = message(1, gid="parked", state=int(State.SUBMITTED), parked=True)
    return measure(journal(spark, [*rows, slow, delayed, failed, waiting, parked]), NOON_MS + 2 * HOUR_MS)


def test_percentiles_are_those_of_the_messages(measured: Measured) -> None:
    [_, other] = sorted(measured.of(PRODUCER), key=lambda group: -group.messages)[:2]
    bank_a = measured.of(PRODUCER)[0]

    assert (bank_a.key, bank_a.messages, bank_a.failed) == ("bank-a", 101, 1)
    assert (bank_a.decision.p50_s, bank_a.decision.max_s) == (0.050, 0.100)
    assert bank_a.delivery.p99_s == pytest.approx(0.198)
    assert other.messages == 1


def test_a_delay_is_no_latency(measured: Measured) -> None:
    [nobody] = [group for group in measured.of(PRODUCER) if group.key == "(none)"]

    assert nobody.delivery.max_s == pytest.approx(0.020)


def test_a_message_counts_once_for_each_destination_and_hour(measured: Measured) -> None:
    assert {group.key: group.messages for group in measured.of(DESTINATION)} == {"bank-b:80": 102, "bank-c": 1}
    assert {int(group.key): group.messages for group in measured.of(HOUR)} == {NOON_MS: 101, NOON_MS + HOUR_MS: 2}
    assert measured.whole is not None
    assert measured.whole.messages == 103


def test_check_backs_attempts_and_the_backlog_are_counted(measured: Measured) -> None:
    [slow] = [group for group in measured.of(PRODUCER) if group.key == "bank-x"]

    assert (slow.check_back_rate, slow.attempts_max) == (1.0, 7)
    backlog = measured.backlog
    assert (backlog.prepared, backlog.submitted, backlog.parked, backlog.oldest_s) == (1, 0, 1, 3600.0)


def test_alerts_name_what_was_exceeded_and_small_groups_raise_none(measured: Measured) -> None:
    alerts = alerts_of(measured, Thresholds(decision_p99_s=0.09, check_back_rate=0.5, oldest_s=60))

    assert [(alert.dimension, alert.key, alert.measure) for alert in alerts] == [
        ("all", "", "decision_p99_s"),
        ("producer", "bank-a", "decision_p99_s"),
        ("destination", "bank-b:80", "decision_p99_s"),
        ("backlog", "", "oldest_s"),
    ]
    assert alerts_of(measured, Thresholds()) == ()


def test_the_report_is_json_of_a_stable_form_and_a_page_with_charts(measured: Measured) -> None:
    thresholds = Thresholds(decision_p99_s=0.09)
    report = make_slo_report(measured, thresholds, alerts_of(measured, thresholds))

    plain = json.loads(to_slo_json(report))
    page = to_slo_html(report)

    assert sorted(plain) == ["alerts", "as_of", "format", "measured", "since", "thresholds", "verdict"]
    assert (plain["format"], plain["verdict"], report.exit_code) == (1, "exceeded", 1)
    assert page.count('<svg viewBox="0 0 720') == 4
    assert "Bounds exceeded" in page


def test_of_nothing_nothing_is_kept(spark: SparkSession, measured: Measured) -> None:
    empty = measure(journal(spark, []), NOON_MS)

    report = make_slo_report(empty, Thresholds(), ())

    assert (report.verdict, report.exit_code) == ("nothing", 2)
    assert "Nothing to measure" in to_slo_html(report)
    assert make_slo_report(measured, Thresholds(), ()).exit_code == 0


def test_what_is_left_out_is_reported_and_hides_no_alert(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("twophase_spark.slo.GROUPS_MAX", 2)
    hours = [message(number, after_ms=number * HOUR_MS, producer=f"bank-{number % 3}") for number in range(1, 6)]
    measured = measure(journal(spark, hours), NOON_MS + 9 * HOUR_MS)
    bounds = Thresholds(decision_p99_s=0.004, messages_min=1)

    report = make_slo_report(measured, bounds, alerts_of(measured, bounds))
    _show(report)

    shown = " ".join(capsys.readouterr().out.split())
    assert [int(group.key) for group in measured.of(HOUR)] == [NOON_MS + 5 * HOUR_MS, NOON_MS + 4 * HOUR_MS]
    assert [(group.key, group.messages) for group in measured.of(PRODUCER)] == [("bank-1", 2), ("bank-2", 2)]
    assert [alert.key for alert in report.alerts] == ["", "bank-2", "bank-b:80"]
    assert measured.left_out == (LeftOut(PRODUCER, 1), LeftOut(HOUR, 3))
    assert json.loads(to_slo_json(report))["measured"]["left_out"][0] == {"dimension": "producer", "groups": 1}
    for said in ("producers left out, and without alerts: 1, those with", "hours left out: 3, the oldest"):
        assert said in shown
        assert said in to_slo_html(report)
    for bounds, code in (
        (Thresholds(), 0),
        (Thresholds(decision_p99_s=1, messages_min=3), 0),
        (Thresholds(decision_p99_s=1, messages_min=2), 2),
        (Thresholds(oldest_s=1, messages_min=2), 0),
    ):
        assert make_slo_report(measured, bounds, ()).exit_code == code


def test_the_command_measures_a_store(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase_spark.session.open_session", lambda settings: contextlib.nullcontext(spark))
    monkeypatch.setattr("twophase_spark.progress.SECONDS_BETWEEN", 0.01)
    system = make_system(tmp_path)
    plant(system, nowadays([case for case in IN_ORDER if one_service(case)]))
    arguments = ["slo", f"--coordinator=sqlite:///{system.coordinator}", f"--json={tmp_path / 'slo.json'}"]

    kept = CliRunner().invoke(app, [*arguments, f"--html={tmp_path / 'slo.html'}"])
    exceeded = CliRunner().invoke(app, [*arguments, "--decision-p99=0.001", "--at-least=1"])

    assert (kept.exit_code, exceeded.exit_code) == (0, 1), kept.stderr
    assert kept.stdout.startswith("WITHIN BOUNDS")
    assert "tasks done" in kept.stderr
    assert "exceeded: decision_p99_s of all" in exceeded.stdout
    plain = msgspec.json.decode((tmp_path / "slo.json").read_bytes())
    assert plain["measured"]["groups"][0]["decision"]["max_s"] == 0.01
