"""One Spark for all tests of this folder, started when the first one asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from twophase.spark.session import SessionSettings, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with open_session(SessionSettings(cores=2, memory_mb=1024, name="tests", short=True)) as session:
        yield session
