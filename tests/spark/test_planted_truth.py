"""Ten thousand messages over five databases of three kinds.

The audit finds exactly what was planted, gid by gid.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.servers.database import Database
from tests.spark.cases import IN_ORDER
from tests.spark.truth import AGREES, COUNTS, LATE_S, counts_of, plant_bank, plant_coordinator, planted
from twophase_spark.auditing.run import look_into, run
from twophase_spark.fleet import read_fleet
from twophase_spark.inputs import ahead
from twophase_spark.inputs.plan import Plan
from twophase_spark.rules.taxonomy import Flag

MESSAGES = 10_000
pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.mariadb, pytest.mark.timeout(600)]
FLEET = """
[[coordinator]]
name = "east"
url = "{east}"

[[coordinator]]
name = "west"
url = "${{WEST_STORE}}"

[[service]]
name = "bank-a"
url = "${{BANK_A}}"
producer = true

[[service]]
name = "bank-b"
url = "${{BANK_B}}"
consumer = true
ledger = {{ table = "ledger", agrees = "{agrees}", where = "{counts}" }}

[[service]]
name = "bank-c"
url = "{bank_c}"
consumer = true
"""


@pytest.mark.parametrize("rows_max", [0, ahead.ROWS_MAX], ids=["read by tasks", "read by the driver"])
def test_exactly_the_planted_violations_are_found(
    spark: SparkSession,
    tmp_path: Path,
    postgres_database: Database,
    mariadb_database: Database,
    rows_max: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "ROWS_MAX", rows_max)
    cases = planted(MESSAGES)
    east, bank_c = f"sqlite:///{tmp_path / 'east.db'}", f"sqlite:///{tmp_path / 'c.db'}"
    # One database holds the store and a bank: their tables have different names.
    west, bank_a, bank_b = (
        postgres_database.dsn,
        postgres_database.sqlalchemy_url("psycopg"),
        mariadb_database.sqlalchemy_url("pymysql"),
    )
    plant_coordinator(east, cases[::2])
    plant_coordinator(west, cases[1::2])
    plant_bank(bank_a, producer=cases, consumer={})
    plant_bank(bank_b, producer=[], consumer={"bank-b": cases})
    plant_bank(bank_c, producer=[], consumer={"bank-c": cases})
    config = tmp_path / "fleet.toml"
    config.write_text(FLEET.format(east=east, bank_c=bank_c, agrees=AGREES, counts=COUNTS))
    fleet = read_fleet(config, {"WEST_STORE": west, "BANK_A": bank_a, "BANK_B": bank_b})
    plan = Plan(fleet.locations, grace_s=0, late_s=LATE_S, findings=str(tmp_path / "findings"))

    report = run(spark, plan, look_into(plan))

    found = {row["gid"]: row["flags"] for row in DeltaTable(tmp_path / "findings").to_pyarrow_table().to_pylist()}
    assert found == {case.gid: case.flags for case in cases if case.flags}
    result = report.result
    expected = counts_of(cases)
    effects = Counter(service for case in cases for service, _ in case.barriers)
    assert result.counts == {flag.value: expected[flag.value] for flag in Flag}
    assert (result.messages, result.clean) == (MESSAGES, sum(not case.flags for case in cases))
    assert result.violations == sum(result.primary.values())
    assert result.incomparable == {"bank-b": sum(case.agrees is None for case in cases)}
    assert {(row.role, row.source): row.rows for row in result.rows} == {
        ("coordinator", "coordinator"): sum(bool(case.state or case.entries) for case in cases),
        ("producer", "bank-a"): sum(case.producer is not None for case in cases),
        ("consumer", "bank-b"): effects["bank-b"],
        ("consumer", "bank-c"): effects["bank-c"],
        ("ledger", "bank-b"): sum(len(case.ledger) for case in cases),
    }


def test_every_class_is_planted_and_every_kind_a_number_of_times_of_its_own() -> None:
    cases = planted(MESSAGES)

    assert set(counts_of(cases)) == {flag.value for flag in Flag}
    assert any(len(set(case.flags)) > 2 for case in cases)
    assert len({case.gid for case in cases}) == MESSAGES
    assert sum(case.gid.startswith(IN_ORDER[0].gid) for case in cases) > 900
