"""Audits, reads, streams and publishing through Spark Connect.

Its sessions have no SparkContext.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.spark.cases import BROKEN, IN_ORDER
from tests.spark.plant import make_system, one_service, plant
from tests.spark.sink.conftest import sqlite_places
from tests.spark.sink.harness import running_harness
from tests.spark.source.stores import SqliteUnderTest, finish
from tests.spark.truth import nowadays
from twophase_spark._java import find_java
from twophase_spark.sink.naming import gid_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]


def through_connect(folder: Path, module: str, argument: str) -> Any:
    """Return what a program that uses Spark Connect prints last, which is JSON."""
    (folder / "java").mkdir(exist_ok=True)
    java = find_java(folder / "java")
    environment = os.environ | {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-m", f"tests.spark.{module}", argument],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return msgspec.json.decode(done.stdout.splitlines()[-1])


def test_an_audit_and_a_read_through_spark_connect(tmp_path: Path) -> None:
    cases = [case for case in (*IN_ORDER, *BROKEN) if one_service(case)]
    plant(make_system(tmp_path), nowadays(cases))

    said = through_connect(tmp_path, "connected", str(tmp_path))

    assert said["verdict"] == "violations"
    assert said["found"] == {case.gid: case.flags for case in cases if case.flags}
    assert said["late"] == 0
    assert said["rows"] == sum(case.producer is not None for case in cases)


def test_a_stream_and_publishing_through_spark_connect(tmp_path: Path) -> None:
    """A new session goes on from the checkpoint; each key is published once."""
    (tmp_path / "followed").mkdir()
    followed = SqliteUnderTest(tmp_path / "followed")
    finish(followed, 1, 1, 10)
    with running_harness(tmp_path, *sqlite_places(tmp_path)) as harness:
        given = {"store": followed.url, "sink": harness.options(), "folder": str(tmp_path)}

        first = through_connect(tmp_path, "connected_pipeline", msgspec.json.encode(given).decode())
        finish(followed, 1, 11, 15)
        second = through_connect(tmp_path, "connected_pipeline", msgspec.json.encode(given).decode())

        # What the refused write prepared is kept for another attempt.
        harness.until(
            lambda: len(harness.receiver.counted) >= 3 + 15 and sum(harness.live().values()) == 3, "18 delivered"
        )
        written = {gid_of("written", [number]): 1 for number in range(1, 4)}
        assert dict(harness.receiver.counted) == written | {gid_of("followed", [seq]): 1 for seq in range(1, 16)}
    for said in (first, second):
        assert said["streams"] == [{"lag": 0, "decision": "published", "left_out": 0, "is_of_query": True}]
        assert "TP-8101" in said["refused"]
