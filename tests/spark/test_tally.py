"""The second run with a state reads only what is new, however soon it comes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import Case
from tests.spark.plant import System, make_system, plant
from tests.spark.truth import nowadays
from twophase_spark.auditing.run import look_into, rows_to_read, run
from twophase_spark.inputs import tally
from twophase_spark.inputs.increment import read_state
from twophase_spark.inputs.plan import Plan
from twophase_spark.locations import Role, parse_coordinator, parse_named
from twophase_spark.reports.report import Report

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
NONE: tuple[tuple[str, str], ...] = ()


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    monkeypatch.setattr(tally, "KEYS_LEFT_OUT", 5)
    made = make_system(tmp_path)
    plant(made, nowadays([Case(f"g{number:03}", "") for number in range(50)]))
    return made


def plan_of(system: System) -> Plan:
    return Plan(
        (
            parse_coordinator(f"sqlite:///{system.coordinator}"),
            parse_named(Role.PRODUCER, f"bank-a=sqlite:///{system.bank_a}"),
            parse_named(Role.CONSUMER, f"bank-b=sqlite:///{system.bank_b}"),
            parse_named(Role.LEDGER, f"bank-b=sqlite:///{system.bank_b}#ledger"),
        ),
        grace_s=0,
        state=system.folder / "state",
    )


def audited(spark: SparkSession, system: System) -> Report:
    plan = plan_of(system)
    return run(spark, plan, look_into(plan))


def test_what_the_last_run_saw_is_not_looked_at_again(spark: SparkSession, system: System) -> None:
    assert audited(spark, system).result.messages == 50

    assert audited(spark, system).result.messages == 5  # the newest keys, which no tally covers
    plant(system, nowadays([Case("new", "")]))
    assert audited(spark, system).result.messages == 6


def test_a_row_that_was_committed_late_is_found(spark: SparkSession, system: System) -> None:
    """A transaction with a small key was open while the last run read."""
    with closing(sqlite3.connect(system.bank_a)) as connection, connection:
        row = connection.execute("select * from barrier where id = 7").fetchone()
        connection.execute("delete from barrier where id = 7")
    assert audited(spark, system).result.violations == 1  # it was delivered, and has no producer's row
    with closing(sqlite3.connect(system.bank_a)) as connection, connection:
        connection.execute(f"insert into barrier values ({', '.join('?' * len(row))})", row)
        connection.execute("update barrier set gid = 'late' where id = 7")

    report = audited(spark, system)

    assert report.result.messages == 51, "everything is looked at again"
    assert report.result.primary == {"lost": 1, "ghost": 1}


def test_a_run_counts_the_rows_that_it_has_to_read(spark: SparkSession, system: System) -> None:
    plan = plan_of(system)
    assert rows_to_read(plan, look_into(plan)) == 4 * 50

    audited(spark, system)

    assert rows_to_read(plan, look_into(plan)) == 3 * 5, "the newest keys that no tally covers"


def test_no_tally_is_kept_once_a_mark_is_old_enough(spark: SparkSession, system: System) -> None:
    audited(spark, system)
    state = read_state(system.folder / "state")
    assert state is not None
    assert {name: (one.key, one.rows) for name, one in state.tallies.items()} == {
        "producer bank-a": (45, 45),
        "consumer bank-b": (45, 45),
        "ledger bank-b": (45, 45),
    }
