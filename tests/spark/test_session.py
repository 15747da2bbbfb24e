"""The sockets by which rows of Spark reach this process."""

from __future__ import annotations

import socket

import pyspark
import pyspark.util
import pytest
from pyspark.sql import SparkSession


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
