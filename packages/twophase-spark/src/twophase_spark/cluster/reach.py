"""A check that a cluster's executors reach a store, with the Python they have.

The executors themselves make it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import platform
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from twophase.core.errors import TwophaseError
from twophase_spark.cluster.bundle import NEEDED
from twophase_spark.lake.marks import store_at
from twophase_spark.readers.database import open_database
from twophase_spark.session import SessionSettings, open_session
from twophase_spark.source.options.address import ENVIRONMENT, FILE

_COLUMNS = "place string, python string, versions map<string,string>, trouble string"
_SCHEMA = pa.schema(
    [
        ("place", pa.string()),
        ("python", pa.string()),
        ("versions", pa.map_(pa.string(), pa.string())),
        ("trouble", pa.string()),
    ]
)
_TASKS_PER_CORE = 2
_WAIT_SECONDS_MAX = 60
Settings = tuple[tuple[str, str], ...]
"""Settings of Spark: names and values."""


class Seen(msgspec.Struct, frozen=True):
    """One executor. `trouble`: why it does not read the store, empty when it does."""

    place: str
    python: str
    versions: dict[str, str]
    trouble: str


@contextlib.contextmanager
def cluster_session(master: str, bundle: Path, extra: Settings = ()) -> Iterator[SparkSession]:
    """Open a small session on a cluster, with twophase's packages on its executors.

    `extra` are settings that win.

    Raises:
        SparkUnavailable: the master does not answer, or gives no executor.
    """
    address = _address_towards(master)
    known = (
        ("spark.master", master),
        ("spark.submit.pyFiles", str(bundle)),
        ("spark.driver.bindAddress", address),
        ("spark.driver.host", address),
        ("spark.executor.memory", "512m"),
        ("spark.scheduler.minRegisteredResourcesRatio", "1.0"),
        ("spark.scheduler.maxRegisteredResourcesWaitingTime", f"{_WAIT_SECONDS_MAX}s"),
        ("spark.locality.wait", "0"),
    )
    with open_session(SessionSettings(cores=2, memory_mb=512, name="twophase doctor", extra=(*known, *extra))) as spark:
        yield spark


def _address_towards(master: str) -> str:
    """Return this machine's address as the master sees it.

    Executors call the driver back.
    """
    host = master.partition("://")[2].split(",")[0].rpartition(":")[0].strip("[]")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing: it only chooses the route
            address: str = probe.getsockname()[0]
            return address
    except OSError:
        return socket.gethostname()


def reach(spark: SparkSession, reference: str | None) -> list[Seen]:
    """Return the report of each executor on which a task happened to run.

    Arguments:
        reference: the store as option `url` names it; None to look at Python only.
    """
    tasks = max(2, spark.sparkContext.defaultParallelism * _TASKS_PER_CORE)
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(functools.partial(_look, reference), _COLUMNS).collect()
    seen = {(row.place, row.trouble): Seen(row.place, row.python, dict(row.versions), row.trouble) for row in rows}
    return [seen[key] for key in sorted(seen)]


def trouble_with(reference: str) -> str:
    """Return the reason why this process does not read the store; empty when it does."""
    try:
        with open_database(store_at(reference)) as database:
            if not database.columns("history"):
                return "it is a database without a table history: is this a coordinator's store?"
    except TwophaseError as error:
        return error.message
    return ""


def remedy_for(reference: str, trouble: str) -> str:
    """Return the remedy for a trouble.

    >>> remedy_for("file:/run/secrets/store", "Option url: file:…: the file cannot be read: …")
    'Put the file /run/secrets/store on every executor, readable by its user.'
    >>> remedy_for("file:/run/secrets/store", "Option url: file:…: every user of this machine may use the file …")
    'On every executor: chmod 600 /run/secrets/store'
    """
    if reference.startswith(ENVIRONMENT) and "environment variable" in trouble:
        name = reference.removeprefix(ENVIRONMENT)
        return f"Set {name} where executors are started; spark.executorEnv.{name} would show it, with its password."
    if reference.startswith(FILE) and "cannot be read" in trouble:
        return f"Put the file {reference.removeprefix(FILE)} on every executor, readable by its user."
    if reference.startswith(FILE) and "every user of this machine" in trouble:
        return f"On every executor: chmod 600 {shlex.quote(reference.removeprefix(FILE))}"
    if "there is no file" in trouble:
        return "A SQLite file lies on one machine: read it there in local mode, or keep the store in PostgreSQL."
    if "needs the driver" in trouble:
        return "Install that package in the executors' Python, or ship one with --archives (see the page on clusters)."
    return (
        "Let executors connect: name resolution, firewall, pg_hba.conf; the host in the URL must mean the same there."
    )


def differing(seen: Seen) -> str:
    """Return what differs in an executor's Python; empty when nothing important does."""
    ours = _python()
    found = [] if seen.python.rpartition(".")[0] == ours.rpartition(".")[0] else [f"Python {seen.python}, here {ours}"]
    for name, version in _versions().items():
        there = seen.versions.get(name)
        if there is None:
            found.append(f"no {name}")
        elif there.split(".")[0] != version.split(".")[0]:
            found.append(f"{name} {there}, here {version}")
    return ", ".join(found)


def _look(reference: str | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        trouble = "" if reference is None else trouble_with(reference)
        place = f"{socket.gethostname()}, {Path.cwd()}"
        row = {"place": place, "python": _python(), "versions": list(_versions().items()), "trouble": trouble}
        yield pa.RecordBatch.from_pylist([row], _SCHEMA)


def _python() -> str:
    return f"{platform.python_version()}" if sys.implementation.name == "cpython" else sys.implementation.name


def _versions() -> dict[str, str]:
    found = {}
    for name in NEEDED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
