"""Audits and reads through Spark Connect, whose sessions have no SparkContext."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.spark.cases import BROKEN, IN_ORDER
from tests.spark.plant import make_system, one_service, plant
from tests.spark.truth import nowadays
from twophase_spark._java import find_java

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]


def test_an_audit_and_a_read_through_spark_connect(tmp_path: Path) -> None:
    cases = [case for case in (*IN_ORDER, *BROKEN) if one_service(case)]
    plant(make_system(tmp_path), nowadays(cases))
    (tmp_path / "java").mkdir()
    java = find_java(tmp_path / "java")
    environment = os.environ | {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connected", str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4_000:]
    said = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert said["verdict"] == "violations"
    assert said["found"] == {case.gid: case.flags for case in cases if case.flags}
    assert said["late"] == 0
    assert said["rows"] == sum(case.producer is not None for case in cases)
