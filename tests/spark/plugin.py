"""One Spark for all tests of a worker, the audit's own and the crash suite's.

It starts when the first test needs it: a local one, or with `TWOPHASE_TESTS_MASTER` and `TWOPHASE_TESTS_BUNDLE` an
application on that cluster, whose executors have the bundle.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.servers.missing import not_tested

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MASTER: Final = "TWOPHASE_TESTS_MASTER"
BUNDLE: Final = "TWOPHASE_TESTS_BUNDLE"
_PYSPARKS_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class SharedSpark:
    """A session that starts at the first request for it.

    Arguments:
        folder: where a Java that is found in a package is made ready.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = contextlib.ExitStack()
        self._session: SparkSession | None = None

    def session(self) -> SparkSession:
        """Return the session; end the present test when none can run here."""
        if self._session is None:
            from tests.spark import home, java_classes
            from tests.spark.cluster.pipeline_job import OPTIONS
            from twophase.core.errors import ConfigurationError
            from twophase_spark._java import find_java
            from twophase_spark.cluster.reach import cluster_session
            from twophase_spark.session import SessionSettings, open_session

            if MASTER in os.environ:
                on_cluster = cluster_session(os.environ[MASTER], Path(os.environ[BUNDLE]), tuple(OPTIONS.items()))
                self._session = self._open.enter_context(on_cluster)
                return self._session
            java_classes.use()
            home.use()
            try:
                find_java(self._folder)
            except ConfigurationError as error:
                not_tested("Spark", error.message)
            settings = SessionSettings(cores=2, memory_mb=1024, name="tests", rows=0)
            self._session = self._open.enter_context(open_session(settings))
        return self._session

    def stop(self) -> None:
        """Stop the session, if it was started."""
        self._open.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Forget PySpark's loggers of errors, which it makes anew.

    They are cut off from all others, so pytest would give them the handler of `caplog`, whose format they change.
    """
    try:
        yield
    finally:
        for name in _PYSPARKS_LOGGERS:
            logging.Logger.manager.loggerDict.pop(name, None)


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSpark]:
    one = SharedSpark(tmp_path_factory.mktemp("java"))
    yield one
    one.stop()


@pytest.fixture(scope="session")
def spark(shared_spark: SharedSpark) -> SparkSession:
    return shared_spark.session()
