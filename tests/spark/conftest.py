"""One Spark for all tests of this folder, started when the first one asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.servers.missing import not_tested
from tests.spark import java_classes
from twophase.core.errors import ConfigurationError
from twophase.spark._java import find_java
from twophase.spark.session import SessionSettings, open_session

java_classes.use()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        find_java(tmp_path_factory.mktemp("java"))
    except ConfigurationError as error:
        not_tested("Spark", error.message)
    with open_session(SessionSettings(cores=2, memory_mb=1024, name="tests", short=True)) as session:
        yield session
