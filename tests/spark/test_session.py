"""The Python that Spark starts, and its PySpark."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pyspark.util
import pytest
from pyspark.sql import SparkSession

from twophase_spark.session import SessionSettings, python_for


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_workers_take_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    """Spark itself puts its zipped PySpark first.

    Python would compile that anew in each worker.
    """

    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__], "program": [sys.executable]})

    rows = spark.range(1).mapInArrow(where, "file string, program string").collect()

    assert {(row["file"], row["program"]) for row in rows} == {(pyspark.__file__, sys.executable)}


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_stranger_who_connects_first_disturbs_no_collect(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port of Spark's may have been another server's a moment ago.

    That server's clients still connect.
    """
    connect = pyspark.util.local_connect_and_auth
    places: list[str | int | None] = []

    def after_a_stranger(place: str | int | None, secret: str | None) -> tuple[object, ...]:
        places.append(place)
        if isinstance(place, int):
            with socket.create_connection(("127.0.0.1", place)) as stranger:
                stranger.sendall(b"POST /api/dtmsvr/submit HTTP/1.1\r\n\r\n")
                stranger.recv(1)
        return connect(place, secret)

    monkeypatch.setattr(pyspark.util, "local_connect_and_auth", after_a_stranger)

    assert [row["id"] for row in spark.range(2).collect()] == [0, 1]
    assert places, "the rows came through a socket"


def test_a_path_of_ones_own_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/it's/mine")
    program = python_for(SessionSettings(), tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/put/in/front.zip:/it's/mine")

    command = [program, "-c", "import sys; print(*sys.path)"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert "/it's/mine" in path
    assert "/put/in/front.zip" not in path


def test_executors_elsewhere_get_a_python_that_is_there_too(tmp_path: Path) -> None:
    """A cluster's executors start it by the same path.

    The driver's temporary files are not there.
    """
    settings = SessionSettings(extra=(("spark.master", "spark://127.0.0.1:7077"),))

    assert python_for(settings, tmp_path) == sys.executable
