"""The examples for pipelines.

Their common part makes real audits, and dbt's sources are compared with what these write.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from examples.pipelines.audit import PROMISE_BROKEN, audit
from tests.docs.pages import ROOT
from tests.spark.cases import BROKEN, IN_ORDER
from tests.spark.plant import System, make_system, one_service, plant
from tests.spark.truth import nowadays
from twophase.core.lifecycle import State
from twophase_spark.cli.commands import app
from twophase_spark.lake.schemas import target_of
from twophase_spark.reports.finding_columns import FINDING_COLUMNS, RUN_COLUMNS
from twophase_spark.reports.report import Report, Verdict
from twophase_spark.rules.taxonomy import Flag
from twophase_spark.source.schema.tables import Kind

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
AUDIT = "{{ env_var('TWOPHASE_AUDIT') }}"
FLEET = """
[audit]
grace = 0
[[coordinator]]
url = "sqlite:///{0.coordinator}"
[[service]]
name = "bank-a"
url = "sqlite:///{0.bank_a}"
producer = true
[[service]]
name = "bank-b"
url = "sqlite:///{0.bank_b}"
consumer = true
ledger = {{ table = "ledger" }}
"""


@pytest.fixture
def system(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> System:
    """A system whose folder is the example's.

    The command runs in this process, on the tests' Spark.
    """

    def run(command: Sequence[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        assert command[:2] == ["twophase", "spark"]
        done = CliRunner().invoke(app, command[2:])
        return subprocess.CompletedProcess(command, done.exit_code)

    monkeypatch.setattr("twophase_spark.session.open_session", lambda settings: contextlib.nullcontext(spark))
    monkeypatch.setattr("examples.pipelines.audit.subprocess.run", run)
    monkeypatch.setenv("TWOPHASE_AUDIT", str(tmp_path))
    monkeypatch.delenv("TWOPHASE", raising=False)
    system = make_system(tmp_path)
    (tmp_path / "fleet.toml").write_text(FLEET.format(system))
    return system


def sources() -> dict[str, dict[str, Any]]:
    plain = msgspec.yaml.decode((ROOT / "examples/pipelines/dbt/models/sources.yml").read_bytes())
    return {table["name"]: table for source in plain["sources"] for table in source["tables"]}


def findings_of(system: System) -> pa.Table:
    """Return the rows that dbt's plugin for Delta reads."""
    place = sources()["findings"]["config"]["meta"]["delta_table_path"].replace(AUDIT, str(system.folder))
    return DeltaTable(place).to_pyarrow_table()


def columns_of(table: dict[str, Any]) -> list[str]:
    return [column["name"] for column in table["columns"]]


def accepted(table: dict[str, Any], name: str) -> list[str]:
    [column] = [column for column in table["columns"] if column["name"] == name]
    [test] = [test for test in column["data_tests"] if isinstance(test, dict)]
    values: list[str] = test["accepted_values"]["arguments"]["values"]
    return values


def test_a_broken_promise_is_found_and_dbt_finds_its_columns(system: System) -> None:
    plant(system, nowadays([case for case in [*IN_ORDER, *BROKEN] if one_service(case)]))

    done = audit()

    assert done.exit_code == PROMISE_BROKEN
    assert "break a promise." in done.sentence
    assert (done.folder / "report.html").exists()
    assert {one["service"] for one in done.report["result"]["services"]} == {"bank-a", "bank-b"}
    reports = sources()["audits"]["config"]["meta"]["external_location"].replace(AUDIT, str(system.folder))
    names = ", ".join(f'"{column}"' for column in [*columns_of(sources()["audits"]), "as_of"])
    assert duckdb.execute(f"select {names} from {reports}").fetchall()
    found = findings_of(system)
    assert found.num_rows
    assert set(columns_of(sources()["findings"])) <= set(found.column_names)


def test_a_system_in_order_leaves_a_report_and_an_empty_table(system: System) -> None:
    plant(system, nowadays([case for case in IN_ORDER if one_service(case)]))

    done = audit()

    assert (done.exit_code, done.report["verdict"]) == (0, "clean")
    assert findings_of(system).num_rows == 0


def test_an_audit_that_cannot_be_made_says_so(system: System) -> None:
    system.bank_a.unlink()

    done = audit()

    assert (done.exit_code, done.report["verdict"]) == (2, "not-made")
    assert "TP-" in done.sentence


def test_dbt_names_columns_and_values_that_are_written() -> None:
    known = {
        "audits": set(Report.__struct_fields__),
        "findings": set(RUN_COLUMNS | FINDING_COLUMNS),
        "history": set(target_of(Kind.HISTORY).names),
    }
    tables = sources()

    assert set(tables) == set(known)
    assert {name: set(columns_of(table)) - known[name] for name, table in tables.items()} == {
        name: set() for name in known
    }
    assert accepted(tables["findings"], "primary") == [flag.value for flag in Flag]
    assert accepted(tables["history"], "state") == [str(State.SUCCEEDED), str(State.FAILED)]
    assert set(accepted(tables["audits"], "verdict")) < {verdict.value for verdict in Verdict}
