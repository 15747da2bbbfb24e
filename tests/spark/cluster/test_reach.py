"""Doctor's questions to executors: can they read the store, and what is to be done when not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.source.stores import SqliteUnderTest
from twophase.spark.cluster.reach import Seen, differing, reach, remedy_for, trouble_with

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_executors_say_whether_they_reach_a_store(spark: SparkSession, tmp_path: Path) -> None:
    store = SqliteUnderTest(tmp_path)

    [good] = reach(spark, store.url)
    [bad] = reach(spark, "sqlite:////nowhere/store.db")

    assert (good.trouble, differing(good)) == ("", "")
    assert "there is no file /nowhere/store.db" in bad.trouble


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


def test_a_database_that_is_no_store_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    assert "is this a coordinator's store?" in trouble_with(f"sqlite:///{tmp_path}/x.db")


def test_other_versions_on_executors_are_told() -> None:
    seen = Seen("host", "3.9.1", {"pyspark": "3.5.0", "pyarrow": "1.0"}, "")
    found = differing(seen)
    assert "Python 3.9.1, here 3." in found
    assert "pyspark 3.5.0, here 4." in found
    assert "no msgspec" in found
