"""`twophase spark` as machines use it: exit codes and files.

It also reports when it cannot check.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.spark.cases import BROKEN, IN_ORDER, MOVING, UNKNOWABLE
from tests.spark.plant import System, make_system, one_service, plant
from tests.spark.truth import nowadays
from twophase_spark.cli.commands import app
from twophase_spark.locations import Location
from twophase_spark.readers.probe import Source, probe

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
GOOD = [case for case in IN_ORDER if one_service(case)]
BAD = [case for case in BROKEN if one_service(case)]
PLANTED = [*GOOD, *BAD, *MOVING, *(case for case in UNKNOWABLE if one_service(case))]


@pytest.fixture
def system(tmp_path: Path) -> System:
    return make_system(tmp_path)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, which starts a Spark of its own."""
    return subprocess.run(
        [sys.executable, "-m", "twophase", "spark", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.long
def test_violations_end_with_1_and_stand_in_both_reports(system: System) -> None:
    plant(system, nowadays(PLANTED))
    html, report = system.folder / "report.html", system.folder / "report.json"

    done = run("audit", *system.arguments, "--grace=0", "--late=1e12", f"--html={html}", f"--json={report}")

    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("VIOLATIONS")
    plain = json.loads(report.read_bytes())
    counts = plain["result"]["counts"]
    assert plain["verdict"] == "violations"
    for flag in (
        "lost",
        "ghost",
        "duplicate_effect",
        "missing_effect",
        "orphan",
        "contrary_verdict",
        "unguarded_effect",
    ):
        assert counts[flag] == sum(flag in case.flags for case in BAD), flag
    for flag in ("parked", "stopped", "unchecked"):
        assert counts[flag] == sum(flag in case.flags for case in PLANTED), flag
    assert plain["result"]["messages"] == len(PLANTED)
    assert "booked_twice" in html.read_text()
    assert "Traceback" not in done.stderr
    assert all(line.startswith("twophase: ") for line in done.stderr.splitlines()), done.stderr


@pytest.fixture
def tests_own_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process use the tests' Spark instead of starting one."""
    monkeypatch.setattr("twophase_spark.session.open_session", lambda settings: contextlib.nullcontext(spark))


@pytest.fixture
def much_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase_spark.progress.SECONDS_BETWEEN", 0.01)


@pytest.mark.usefixtures("tests_own_spark", "much_told")
def test_a_clean_system_ends_with_0_and_says_how_far_it_is(system: System) -> None:
    plant(system, nowadays([*GOOD, *MOVING]))

    done = CliRunner().invoke(app, ["audit", *system.arguments])

    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("CLEAN")
    assert "tasks done" in done.stderr


@pytest.mark.usefixtures("tests_own_spark")
@pytest.mark.parametrize(
    "name", ["committed_and_no_message", "effect_without_a_message", "succeeded_without_any_effect"]
)
def test_a_violation_is_found_when_it_is_the_only_row_of_its_side(system: System, name: str) -> None:
    """The second pass then reads no row at all from some of the sides."""
    alone = [case for case in BAD if case.gid == name]
    assert len(alone) == 1
    plant(system, nowadays(alone))

    done = CliRunner().invoke(app, ["audit", *system.arguments, "--grace=0"])

    assert done.exit_code == 1, done.stderr
    assert done.stdout.startswith("VIOLATIONS")


@pytest.mark.usefixtures("tests_own_spark")
def test_what_fails_in_a_worker_is_reported_in_one_line(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file disappears between the first look and the reading."""

    def probe_and_lose(location: Location, slices_max: int) -> Source:
        source = probe(location, slices_max)
        system.bank_a.unlink(missing_ok=True)
        return source

    monkeypatch.setattr("twophase_spark.readers.probe.probe", probe_and_lose)

    done = CliRunner().invoke(app, ["audit", *system.arguments[:2]])

    assert done.exit_code == 2
    assert "Could not check. TP-8002: producer bank-a: there is no file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("tests_own_spark")
def test_doctor_says_that_spark_works_here() -> None:
    done = CliRunner().invoke(app, ["doctor"])

    assert done.exit_code == 0, done.stdout
    assert "100 rows through Java and Python" in done.stdout


def test_doctor_names_a_library_that_is_too_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase_spark.doctor.importlib.metadata.version", lambda name: "99.0")

    done = CliRunner().invoke(app, ["doctor"])

    assert done.exit_code == 2
    assert "Needed: at least 4.3, below 4.4" in done.stdout
    assert "small job" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--coordinator=sqlite:///none.db", "--producer=a=sqlite:///a.db"], "there is no file none.db"),
        (["--coordinator=mongo://x"], "must begin with"),
        (
            ["--coordinator=sqlite:///x.db", "--consumer=b=sqlite:///b.db#barrier?where=1"],
            "TP-7000: --consumer b: Option",
        ),
        (["--coordinator=sqlite:///x.db", "--producer=sqlite:///a.db"], "NAME=URL"),
        (["--coordinator=sqlite:///x.db", "--ledger=b=sqlite:///b.db#ledger"], "no --consumer b"),
        (["--coordinator=sqlite:///x.db", "--producer=a=sqlite:///a.db", "--html=/no/x.html"], "no folder /no;"),
        (["--coordinator=sqlite:///x.db"], "nothing to compare"),
        (["--producer=a=sqlite:///a.db"], "No coordinator"),
        (["--config=/no/audit.toml"], "/no/audit.toml cannot be read"),
        (["--coordinator=sqlite:///x.db", "--producer=a=sqlite:///a.db", "--every=5"], "--every needs --state"),
    ],
)
def test_what_cannot_be_checked_ends_with_2_and_a_remedy(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["audit", *arguments])

    assert result.exit_code == 2
    assert "Could not check." in result.stderr
    assert said in result.stderr


@pytest.mark.usefixtures("tests_own_spark")
@pytest.mark.parametrize(("option", "code", "word"), [([], 2, "NOTHING"), (["--allow-empty"], 0, "CLEAN")])
def test_empty_databases_prove_nothing_unless_that_is_expected(
    system: System, option: list[str], code: int, word: str
) -> None:
    done = CliRunner().invoke(app, ["audit", *system.arguments, *option])

    assert done.exit_code == code, done.stderr
    assert done.stdout.startswith(word)


@pytest.mark.usefixtures("tests_own_spark")
def test_an_empty_store_beside_full_banks_is_no_clean_one(system: System) -> None:
    plant(system, nowadays(GOOD))
    system.execute(system.coordinator, "delete from history")

    done = CliRunner().invoke(app, ["audit", *system.arguments, "--grace=0"])

    assert done.exit_code == 1, done.stderr
    assert "lost" in done.stdout


def test_a_crash_of_ours_is_no_violation(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("twophase_spark.session.open_session", crash)

    result = CliRunner().invoke(app, ["audit", *system.arguments])

    assert result.exit_code == 2
    assert "RuntimeError: out of luck" in result.stderr
