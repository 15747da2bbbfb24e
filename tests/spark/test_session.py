"""The sockets by which rows of Spark reach this process."""

from __future__ import annotations

import socket
from pathlib import Path

import pyspark
import pyspark.util
import pytest
from py4j.java_gateway import JVMView  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so


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


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_what_java_writes_is_the_users_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Java takes no part in the process's umask."""
    spark.range(3).coalesce(1).write.parquet(str(tmp_path / "rows"))

    written = [tmp_path / "rows", *(tmp_path / "rows").iterdir()]
    assert len(written) >= 3, "the folder, rows, and the mark of success"
    assert [path for path in written if path.stat().st_mode & 0o077] == []


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_ports_of_java_demand_a_secret_that_no_option_shows(spark: SparkSession) -> None:
    """Every user of the machine reaches a port of loopback."""
    options = dict(spark.sparkContext.getConf().getAll())

    assert options["spark.authenticate"] == "true"
    assert options["spark.driver.bindAddress"] == "127.0.0.1"
    assert options["spark.ui.enabled"] == "false"
    assert [name for name in options if "secret" in name] == []


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_columns_are_made_without_a_search_for_java_classes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java searches all of Spark's jars for a name without its package."""
    F.col("a")  # a process's first column asks for the session, once
    asked: list[str] = []
    monkeypatch.setattr(JVMView, "__getattr__", lambda _, name: asked.append(name))

    F.filter(F.array(F.col("a"), F.lit(1)), lambda one: (one == 1) & one.isin(1, 2)).alias("b")

    assert asked == []
