"""Ledgers as people have them, audited from databases.

They have columns of several types, conditions, and several rows for an effect.
"""

from __future__ import annotations

import re
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.servers.database import Database as ServerDatabase
from tests.spark.cases import NOW_MS, QUEUED, Case
from tests.spark.plant import System, make_system, plant
from tests.spark.truth import nowadays
from twophase.core.errors import CannotRead
from twophase.core.lifecycle import State
from twophase_spark.auditing.run import look_into, run
from twophase_spark.inputs import source as inputs_source
from twophase_spark.inputs.increment import read_state
from twophase_spark.inputs.plan import Plan
from twophase_spark.locations import Location, Role, parse_coordinator, parse_named
from twophase_spark.reports.report import Report, Verdict

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
TWO = (("01", "http://bank-b/in"), ("02", "http://bank-b/out"))
BOTH = (("bank-b", "01"), ("bank-b", "02"))


@pytest.fixture
def system(tmp_path: Path) -> System:
    return make_system(tmp_path)


def audited(spark: SparkSession, system: System, *ledgers: str, state: bool = False) -> Report:
    """Audit a system with these ledgers of bank-b; None of them is planted."""
    locations: tuple[Location, ...] = (
        parse_coordinator(f"sqlite:///{system.coordinator}"),
        parse_named(Role.PRODUCER, f"bank-a=sqlite:///{system.bank_a}"),
        parse_named(Role.CONSUMER, f"bank-b=sqlite:///{system.bank_b}"),
        *(parse_named(Role.LEDGER, f"bank-b={ledger}") for ledger in ledgers),
    )
    folder = system.folder
    plan = Plan(locations, grace_s=0, findings=str(folder / "findings"), state=folder / "state" if state else None)
    return run(spark, plan, look_into(plan))


def found(system: System, report: Report) -> dict[str, list[str]]:
    """Return what this run appended to the findings."""
    table = system.folder / "findings"
    rows = DeltaTable(table).to_pyarrow_table().to_pylist() if table.exists() else []
    return {row["gid"]: row["flags"] for row in rows if row["run_id"] == report.run_id}


def book(system: System, columns: str, rows: list[tuple[object, ...]]) -> str:
    """Make a ledger in bank-b; return its address."""
    with closing(sqlite3.connect(system.bank_b)) as connection, connection:
        connection.execute(f"create table booking ({columns})")
        connection.executemany(f"insert into booking values ({', '.join('?' * len(rows[0]))})", rows)
    return f"sqlite:///{system.bank_b}#booking"


def test_branches_are_numbers(spark: SparkSession, system: System) -> None:
    plant(system, nowadays([Case(gid, "", barriers=BOTH, ledger=(), branches=TWO) for gid in ("a", "b", "c")]))
    rows: list[tuple[object, ...]] = [("a", 1), ("a", 2), ("b", "1"), ("b", "02"), ("c", 1)]

    report = audited(spark, system, book(system, "gid text, branch_id", rows))

    assert report.result.violations == 1
    assert found(system, report) == {"c": ["missing_effect"]}


def test_branch_ids_of_another_form_are_remarked(spark: SparkSession, system: System) -> None:
    plant(system, nowadays([Case("a", "", ledger=())]))

    report = audited(spark, system, book(system, "gid text, branch_id text", [("a", "booked")]))

    assert found(system, report) == {"a": ["missing_effect", "unguarded_effect"]}
    assert "ledgers, perhaps swapped, or with branch ids of another form" in [line.what for line in report.coverage]


def test_an_effect_has_several_rows_by_design(spark: SparkSession, system: System) -> None:
    cases = [Case(gid, "", barriers=BOTH, ledger=(), branches=TWO) for gid in ("whole", "swap", "half", "thrice")]
    plant(system, nowadays([*cases, Case("stray", "", barriers=(), ledger=())]))
    pairs = {
        "whole": ("01", "01", "02", "02"),
        "swap": ("01", "01", "01", "01"),  # the right number of rows, of one branch
        "half": ("01", "01", "02"),
        "thrice": ("01", "01", "01", "02", "02"),
        "stray": ("01",),
    }
    rows: list[tuple[object, ...]] = [(gid, branch) for gid, branches in pairs.items() for branch in branches]
    rows += [("whole", "00"), ("whole", "")]

    ledger = book(system, "gid text, branch_id text", rows)
    report = audited(spark, system, f"{ledger}?rows_per_effect=2")

    assert found(system, report) == {
        "swap": ["duplicate_effect", "missing_effect"],
        "half": ["missing_effect"],
        "thrice": ["duplicate_effect"],
        "stray": ["missing_effect", "unguarded_effect"],
    }


def test_an_effect_in_part_is_not_called_again(spark: SparkSession, system: System) -> None:
    """A call would book all of its rows once more."""
    unguarded = Case("unguarded", "", barriers=(), ledger=())
    plant(system, nowadays([Case("half", "", ledger=()), Case("cancelled", "", ledger=()), unguarded]))
    rows: list[tuple[object, ...]] = [("half", "01", None), ("unguarded", "01", None), ("cancelled", "01", 1)]
    ledger = book(system, "gid text, branch_id text, voided_at int", rows)

    report = audited(spark, system, f"{ledger}?where=voided_at+is+null&rows_per_effect=2")

    shown = "-- in the database of bank-b: select * from booking where gid = '{}' order by branch_id;"
    steps = {sample.gid: [(step.flag, step.command) for step in sample.repairs] for sample in report.result.samples}
    guard = steps["unguarded"].pop()
    assert steps == {gid: [("missing_effect", shown.format(gid))] for gid in ("half", "cancelled", "unguarded")}
    assert guard[0] == "unguarded_effect"
    assert guard[1].startswith("-- in the database of bank-b: insert into barrier ")


def test_a_lost_messages_effect_without_a_barrier_row_is_not_called_again(spark: SparkSession, system: System) -> None:
    """Nothing would turn the call away."""
    gids = ("booked", "barred", "cancelled")
    cases = [Case(gid, "", State.FAILED, "msg", (), (), "abort", branches=TWO) for gid in gids]
    barred = msgspec.structs.replace(cases[1], barriers=(("bank-b", "01"),))
    plant(system, nowadays([cases[0], barred, cases[2]]))
    rows: list[tuple[object, ...]] = [(gid, "01", 1 if gid == "cancelled" else None) for gid in gids]
    ledger = book(system, "gid text, branch_id text, voided_at int", rows)

    report = audited(spark, system, f"{ledger}?where=voided_at+is+null")

    steps = {sample.gid: [step.command for step in sample.repairs] for sample in report.result.samples}
    called = {gid: re.findall(r"branch_id=(\d+)", " ".join(commands)) for gid, commands in steps.items()}
    assert called == {"booked": ["02"], "barred": ["01", "02"], "cancelled": ["02"]}


@pytest.fixture(params=["on the driver", "by key", "everything again"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the way in which the looks read their rows."""
    way: str = request.param
    if way != "on the driver":
        monkeypatch.setattr(inputs_source, "GIDS_ON_DRIVER_MAX", 0)
    if way == "everything again":
        monkeypatch.setattr(inputs_source, "GIDS_BY_KEY_MAX", 0)
    return way


WHERE = urlencode({"where": "kind like '1%%'"})


@pytest.mark.usefixtures("path")
def test_rows_that_do_not_count_are_left_out(spark: SparkSession, system: System) -> None:
    plant(system, nowadays([Case(gid, "", ledger=()) for gid in ("a", "b", "c", "d")]))
    rows: list[tuple[object, ...]] = [("a", "01", "100%"), ("a", "01", "void"), ("c", "01", None)]
    rows += [("b", "01", "void"), ("b", "01", "void")]
    ledger = book(system, "gid text, branch_id text, kind text", rows)

    report = audited(spark, system, f"{ledger}?{WHERE}")

    assert found(system, report) == {"b": ["left_out"], "c": ["left_out"], "d": ["missing_effect"]}
    assert (report.result.violations, report.result.counts["left_out"]) == (1, 2)
    repairs = {sample.gid: [step.command for step in sample.repairs] for sample in report.result.samples}
    shown = "-- in the database of bank-b: select * from booking where gid = '{}' order by branch_id;"
    assert (repairs["b"], repairs["c"]) == ([shown.format("b")], [shown.format("c")])


def test_a_cancelled_effect_is_no_violation_that_the_next_run_would_look_for(
    spark: SparkSession, system: System
) -> None:
    plant(system, nowadays([Case("a", "", ledger=()), Case("b", "", ledger=())]))
    ledger = book(system, "gid text, branch_id text, voided_at int", [("a", "01", 1), ("b", "01", None)])

    report = audited(spark, system, f"{ledger}?where=voided_at+is+null", state=True)

    after = read_state(system.folder / "state")
    assert after is not None
    assert (report.verdict, found(system, report), after.carried) == (Verdict.CLEAN, {"a": ["left_out"]}, ())


def test_an_increment_finds_what_was_cancelled_since(spark: SparkSession, system: System) -> None:
    plant(system, nowadays([Case("first", "", ledger=())]))
    ledger = book(system, "gid text, branch_id text, voided_at int", [("first", "01", None)])
    address = f"{ledger}?where=voided_at+is+null"
    assert audited(spark, system, address, state=True).verdict is Verdict.CLEAN
    plant(system, nowadays([Case("cancelled", "", ledger=()), Case("missing", "", ledger=())]))
    system.execute(system.bank_b, "insert into booking values ('cancelled', '01', 1)")

    report = audited(spark, system, address, state=True)

    assert found(system, report) == {"cancelled": ["left_out"], "missing": ["missing_effect"]}


@pytest.mark.usefixtures("path")
def test_an_effect_of_several_rows_is_cancelled_as_a_whole(spark: SparkSession, system: System) -> None:
    rows = {"whole": (None, None), "cancelled": (1, 1), "twice": (1, 1, 1, 1), "half": (1, None), "one": (1,)}
    plant(system, nowadays([Case(gid, "", ledger=()) for gid in rows]))
    booked: list[tuple[object, ...]] = [(gid, "01", voided) for gid, values in rows.items() for voided in values]
    ledger = book(system, "gid text, branch_id text, voided_at int", booked)

    report = audited(spark, system, f"{ledger}?where=voided_at+is+null&rows_per_effect=2")

    assert found(system, report) == {
        "cancelled": ["left_out"],
        "twice": ["left_out"],
        "half": ["missing_effect"],
        "one": ["missing_effect"],
    }


def test_an_effect_that_is_booked_and_cancelled_between_the_looks_is_left_out(
    spark: SparkSession, system: System
) -> None:
    plant(system, nowadays([Case("a", "", ledger=())]))
    ledger = book(system, "gid text, branch_id text, voided_at int", [("other", "00", None)])
    locations = (
        parse_coordinator(f"sqlite:///{system.coordinator}"),
        parse_named(Role.CONSUMER, f"bank-b=sqlite:///{system.bank_b}"),
        parse_named(Role.LEDGER, f"bank-b={ledger}?where=voided_at+is+null"),
    )
    plan = Plan(locations, grace_s=100_000)  # longer ago than the message, which counts as young

    def cancel(_: float) -> None:
        system.execute(system.bank_b, "insert into booking values ('a', '01', 1)")

    result = run(spark, plan, look_into(plan), pause=cancel).result

    assert (result.suspects, result.settled, result.counts["left_out"]) == (1, 1, 1)


def test_a_condition_that_is_no_sql_is_reported(spark: SparkSession, system: System) -> None:
    ledger = book(system, "gid text, branch_id text", [("a", "01")])

    with pytest.raises(CannotRead, match="bank-b"):
        audited(spark, system, f"{ledger}?where=no+such")


@pytest.mark.postgres
@pytest.mark.usefixtures("path")
def test_gids_are_uuids_in_any_spelling(
    spark: SparkSession,
    system: System,
    postgres_database: ServerDatabase,
) -> None:
    values = [uuid.UUID(int=number << 64 | 0xABC) for number in range(1, 6)]
    spelled = [str(values[0]), str(values[1]).upper(), values[2].hex, values[3].hex.upper(), str(values[4]).upper()]
    cancelled = uuid.UUID(int=9 << 64 | 0xABC)
    cases = [Case(gid, "", ledger=()) for gid in (*spelled, "no-uuid", cancelled.hex)]
    plant(system, nowadays([msgspec.structs.replace(case) for case in cases]))
    with psycopg.connect(postgres_database.dsn) as connection:
        connection.execute("create table booking (gid uuid, branch_id smallint, kind text)")
        for value in values[:4]:
            connection.execute("insert into booking values (%s, 1, '100%%')", (value,))
        connection.execute("insert into booking values (%s, 1, 'void')", (cancelled,))

    where = urlencode({"where": "kind like '100%'"})
    report = audited(spark, system, f"{postgres_database.dsn}#booking?{where}")

    assert found(system, report) == {
        str(values[4]): ["missing_effect"],
        "no-uuid": ["missing_effect"],
        str(cancelled): ["left_out"],
    }
    assert "gids that are UUIDs, in one spelling" in [line.what for line in report.coverage]


@pytest.mark.postgres
def test_an_increment_finds_messages_of_another_spelling(
    spark: SparkSession, system: System, postgres_database: ServerDatabase
) -> None:
    first, second = uuid.UUID(int=1 << 64 | 0xABC), uuid.UUID(int=2 << 64 | 0xABC)
    with psycopg.connect(postgres_database.dsn) as connection:
        connection.execute("create table booking (gid uuid, branch_id text)")
        connection.execute("insert into booking values (%s, '01')", (first,))
    plant(system, nowadays([Case(first.hex.upper(), "", ledger=())]))
    ledger = f"{postgres_database.dsn}#booking"
    assert audited(spark, system, ledger, state=True).verdict is Verdict.CLEAN

    plant(system, nowadays([Case(str(second).upper(), "", ledger=())]))
    report = audited(spark, system, ledger, state=True)

    assert found(system, report) == {str(second): ["missing_effect"]}


@pytest.mark.postgres
@pytest.mark.parametrize("odd", ["aBcDeF01-0000-4000-8000-00000000000a", "abcdef010000-4000-8000-00000000000a"])
def test_a_spelling_in_which_no_message_is_found_again_is_refused(
    spark: SparkSession, system: System, postgres_database: ServerDatabase, odd: str
) -> None:
    """A second look would not find that lost message, and the audit would be clean."""
    good = str(uuid.UUID(int=1 << 64 | 0xABC))
    plant(system, nowadays([Case(good, "", ledger=()), Case(odd, "lost", state=None, barriers=(), ledger=())]))
    with psycopg.connect(postgres_database.dsn) as connection:
        connection.execute("create table booking (gid uuid, branch_id text)")
        connection.execute("insert into booking values (%s, '01')", (good,))

    with pytest.raises(CannotRead, match=f"bank-a.*{odd}"):
        audited(spark, system, f"{postgres_database.dsn}#booking")


LIVE = Case("live", "in_flight", State.SUBMITTED, created_ms=NOW_MS - 100)
TWICE = [
    Case("final", ""),
    LIVE,
    msgspec.structs.replace(LIVE, gid="late", expected="late", created_ms=NOW_MS - 60_000),
    msgspec.structs.replace(LIVE, gid="parked", expected="parked", parked=True),
    Case("entry", "", None, entries=(0,), branches=(QUEUED,)),
]
"""Rows of a second coordinator about messages that the first one has delivered.

With the classes that each message then has.
"""


def test_gids_at_two_coordinators_are_remarked(spark: SparkSession, tmp_path: Path) -> None:
    east, west = make_system(tmp_path), System(tmp_path / "west")
    west.folder.mkdir()
    plant(make_system(west.folder), nowadays(TWICE))
    plant(east, nowadays([*(Case(case.gid, "") for case in TWICE), Case("once", "")]))
    locations = (
        parse_coordinator(f"east=sqlite:///{east.coordinator}"),
        parse_coordinator(f"west=sqlite:///{west.coordinator}"),
        parse_named(Role.PRODUCER, f"bank-a=sqlite:///{east.bank_a}"),
        parse_named(Role.CONSUMER, f"bank-b=sqlite:///{east.bank_b}"),
    )
    plan = Plan(locations, grace_s=0, findings=str(east.folder / "findings"))

    report = run(spark, plan, look_into(plan))

    assert (report.verdict, report.result.doubled) == (Verdict.CLEAN, len(TWICE))
    assert found(east, report) == {case.gid: case.flags for case in TWICE if case.flags}
    assert "one gid at two coordinators" in [line.what for line in report.coverage]
