"""Doctor's questions to executors: can they read the store?

Where they cannot, doctor names a remedy.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.spark.source.stores import SqliteUnderTest
from twophase.core.errors import SparkUnavailable
from twophase_spark.cli.commands import app
from twophase_spark.cluster.reach import Seen, differing, reach, remedy_for, trouble_with
from twophase_spark.doctor import Finding

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_executors_say_whether_they_reach_a_store(spark: SparkSession, tmp_path: Path) -> None:
    store = SqliteUnderTest(tmp_path)

    [good] = reach(spark, store.url)
    [bad] = reach(spark, "sqlite:////nowhere/store.db")

    assert (good.trouble, differing(good)) == ("", "")
    assert "there is no file /nowhere/store.db" in bad.trouble


def test_doctor_looks_from_here_and_from_executors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`test_cluster.py` runs its job in `cluster_session` itself."""
    monkeypatch.setattr("twophase_spark.session.open_session", lambda *_: contextlib.nullcontext(spark))
    monkeypatch.setattr("twophase_spark.doctor._job", lambda: Finding("a small job", good=True, found="left out"))
    asked: list[tuple[str, bool]] = []

    def cluster_session(url: str, bundle: Path) -> contextlib.nullcontext[SparkSession]:
        asked.append((url, bundle.is_file()))
        return contextlib.nullcontext(spark)

    monkeypatch.setattr("twophase_spark.cluster.reach.cluster_session", cluster_session)
    store = SqliteUnderTest(tmp_path)

    well = CliRunner().invoke(app, ["doctor", f"--store={store.url}", "--master=spark://127.0.0.1:7077"])
    ill = CliRunner().invoke(app, ["doctor", f"--store=sqlite:///{tmp_path}/none.db"])

    assert (well.exit_code, ill.exit_code) == (0, 2), (well.output, ill.output)
    assert asked == [("spark://127.0.0.1:7077", True)]
    assert "reached from here" in well.stdout
    assert "reads the store" in well.stdout
    assert re.search(r"bad +the store +.*there is no file", ill.stdout)
    assert re.search(r"bad +executor +.*there is no file", ill.stdout)
    assert "A SQLite file lies on one machine" in ill.stdout


def test_doctor_says_that_a_cluster_gives_no_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_session(*_: object) -> None:
        raise SparkUnavailable("Spark did not start:\nAll masters are unresponsive!")

    monkeypatch.setattr("twophase_spark.cluster.reach.cluster_session", no_session)

    done = CliRunner().invoke(app, ["doctor", "--master=spark://127.0.0.1:1"])

    assert done.exit_code == 2
    assert re.search(r"bad +executors +All masters are unresponsive!", done.stdout)
    assert "Look at the master's page" in done.stdout


@pytest.mark.parametrize(
    ("reference", "remedy"),
    [
        ("env:NO_SUCH_STORE", "Set NO_SUCH_STORE where executors are started"),
        ("file:/nowhere/url", "Put the file /nowhere/url on every executor"),
        ("sqlite:////nowhere/store.db", "A SQLite file lies on one machine"),
        ("postgresql://me@127.0.0.1:1/store", "Let executors connect"),
    ],
)
def test_each_trouble_has_its_remedy(reference: str, remedy: str) -> None:
    trouble = trouble_with(reference)
    assert trouble
    assert remedy_for(reference, trouble).startswith(remedy)


def test_a_database_that_is_no_store_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    assert "is this a coordinator's store?" in trouble_with(f"sqlite:///{tmp_path}/x.db")


def test_other_versions_on_executors_are_reported() -> None:
    seen = Seen("host", "3.9.1", {"pyspark": "3.5.0", "pyarrow": "1.0"}, "")
    found = differing(seen)
    assert "Python 3.9.1, here 3." in found
    assert "pyspark 3.5.0, here 4." in found
    assert "no msgspec" in found
