"""The doctor for Spark: each thing an audit needs, and at last a tiny job."""

from __future__ import annotations

import contextlib
import importlib.metadata
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from twophase.core.errors import TwophaseError
from twophase_spark._java import find_java

PYSPARK = ("pyspark", (4, 3), (4, 4))
PANDAS = ("pandas", (2, 2), (3, 0))
PYARROW = ("pyarrow", (18, 0), None)
_INSTALL = "Run `pip install twophase-spark`."


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at, and what to do when it is not `good`."""

    what: str
    good: bool
    found: str
    remedy: str = ""


def examine(store: str | None = None, master: str | None = None) -> Iterator[Finding]:
    """Yield all findings in their order.

    The job is tried only when everything before it is good.

    Arguments:
        store: option `url` of a store that is to be reached (env:NAME, file:PATH or a URL without password).
        master: of a cluster, whose executors are looked at instead of this machine's.
    """
    good = True
    for look in (
        _python,
        lambda: _package(*PYSPARK),
        lambda: _package(*PYARROW),
        lambda: _package(*PANDAS),
        _bash,
        _java,
        lambda: _driver("SQLite", "", "adbc-driver-sqlite", "sqlite"),
        lambda: _driver("PostgreSQL", "psycopg", "adbc-driver-postgresql", "postgres"),
        lambda: _driver("MySQL", "PyMySQL", "", "mysql"),
    ):
        finding = look()
        good = good and finding.good
        yield finding
    if good and master is None:
        yield _job()
    if good and store is not None:
        yield _store(store)
    if good and (store is not None or master is not None):
        yield from _executors(store, master)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", sys.version_info >= (3, 11), f"{version}, {sys.executable}", "Use Python 3.11 or newer.")


def _package(name: str, least: tuple[int, int], end: tuple[int, int] | None) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, good=False, found="not installed", remedy=_INSTALL)
    major, minor = (int(part) for part in version.split(".")[:2])
    fits = least <= (major, minor) and (end is None or (major, minor) < end)
    expected = f"at least {least[0]}.{least[1]}" + (f", below {end[0]}.{end[1]}" if end else "")
    return Finding(name, fits, version, "" if fits else f"Needed: {expected}. {_INSTALL}")


def _bash() -> Finding:
    found = shutil.which("bash")
    return Finding("bash", found is not None, found or "not found", "" if found else "Install bash: it starts Spark.")


def _java() -> Finding:
    with tempfile.TemporaryDirectory(prefix="twophase-doctor-") as folder:
        try:
            java = find_java(Path(folder))
        except TwophaseError as error:
            return Finding("Java", good=False, found="none", remedy=error.message)
        return Finding("Java", good=True, found=f"{java.version}, by {java.found}")


def _driver(what: str, driver: str, adbc: str, extra: str) -> Finding:
    """Return the finding about the drivers of a database.

    A missing driver is no fault: not every system has such a database.
    """
    plain = _version(driver) if driver else "sqlite3"
    if plain is None:
        return Finding(what, good=True, found=f"no driver; to read it: pip install 'twophase-spark[{extra}]'")
    fast = _version(adbc) if adbc else None
    if fast is not None:
        return Finding(what, good=True, found=f"{fast}, {plain}")
    slow = f"; twice as fast with pip install 'twophase-spark[{extra}]'" if adbc else ""
    return Finding(what, good=True, found=f"{plain}{slow}")


def _version(name: str) -> str | None:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return None


def _job() -> Finding:
    from twophase_spark.session import SessionSettings, open_session  # noqa: PLC0415 -- PySpark may be missing

    try:
        with open_session(SessionSettings(cores=2, memory_mb=512)) as spark:
            rows = spark.range(0, 100, numPartitions=2).mapInArrow(_unchanged, "id bigint").count()
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the diagnosis
        return Finding(
            "a small job", good=False, found=str(error).strip().splitlines()[-1], remedy="See the text above."
        )
    return Finding("a small job", rows == 100, f"{rows} rows through Java and Python")


def _store(reference: str) -> Finding:
    from twophase_spark.cluster.reach import remedy_for, trouble_with  # noqa: PLC0415 -- PySpark may be missing

    trouble = trouble_with(reference)
    return Finding("the store", not trouble, trouble or "reached from here", remedy_for(reference, trouble))


def _executors(reference: str | None, master: str | None) -> Iterator[Finding]:
    """Yield the findings of executors.

    Each is examined only if Spark gives it a task.
    """
    from twophase_spark.cluster import reach  # noqa: PLC0415 -- PySpark may be missing
    from twophase_spark.cluster.bundle import bundle  # noqa: PLC0415 -- the same
    from twophase_spark.session import SessionSettings, open_session  # noqa: PLC0415 -- the same

    try:
        with tempfile.TemporaryDirectory(prefix="twophase-doctor-") as folder, contextlib.ExitStack() as stack:
            if master is None:
                session = open_session(SessionSettings(cores=2, memory_mb=512, rows=0))
            else:
                session = reach.cluster_session(master, bundle(Path(folder) / "twophase-spark.zip").path)
            seen = reach.reach(stack.enter_context(session), reference)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the diagnosis
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        remedy = "Look at the master's page for workers that are alive and free, and whether they reach this machine."
        yield Finding("executors", good=False, found=lines[-1] if lines else type(error).__name__, remedy=remedy)
        return
    for one in seen:
        unlike = reach.differing(one)
        found = f"{one.place}: {one.trouble or unlike or 'reads the store' * (reference is not None) or 'good'}"
        remedy = reach.remedy_for(reference or "", one.trouble) if one.trouble else "Give executors the same packages."
        yield Finding("executor", not one.trouble and not unlike, found, remedy)


def _unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    return batches
