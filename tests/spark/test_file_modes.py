"""The modes of files that commands and a notebook make, under the usual umask."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import twophase_spark
from tests.spark.cases import BROKEN, IN_ORDER
from tests.spark.plant import System, make_system, one_service, plant
from tests.spark.source.conftest import sqlite_store
from tests.spark.source.stores import SqliteUnderTest, finish
from tests.spark.truth import nowadays

__all__ = ["sqlite_store"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.long]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that every user may enter, under the usual umask."""
    before = os.umask(0o022)
    made = tmp_path / "written"
    made.mkdir(mode=0o755)
    yield made
    os.umask(before)


@pytest.fixture
def system(tmp_path: Path) -> System:
    made = make_system(tmp_path)
    plant(made, nowadays([case for case in [*IN_ORDER, *BROKEN] if one_service(case)]))
    return made


def run(folder: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> None:
    """Run a command in the folder."""
    command = [sys.executable, "-m", "twophase", "spark", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, umask=0o022)
    assert done.returncode in codes, done.stderr


def open_to_others(folder: Path) -> list[str]:
    """Return what another user may read or write below a folder that lets it in."""
    return sorted(
        f"{path.relative_to(folder)}: {path.lstat().st_mode & 0o777:o}"
        for path in folder.rglob("*")
        if path.lstat().st_mode & 0o077
    )


def test_an_audit_and_a_measurement_write_for_their_user_alone(folder: Path, system: System) -> None:
    reports = [f"--{kind}={folder / f'audit.{kind}'}" for kind in ("html", "json", "junit")]
    kept = [f"--findings={folder / 'findings'}", f"--state={folder / 'state'}"]
    known = f"--write-baseline={folder / 'known'}"

    run(folder, "audit", *system.arguments, "--grace=0", "--late=1e12", *reports, *kept, known, codes=(1,))
    slo = [f"--html={folder / 'slo.html'}", f"--json={folder / 'slo.json'}"]
    run(folder, "slo", f"--coordinator=sqlite:///{system.coordinator}", *slo, codes=(0, 1))
    run(folder, "bundle", "-o", str(folder / "twophase.zip"))

    names = {path.name for path in folder.iterdir()}
    reported = {"audit.html", "audit.json", "audit.junit", "slo.html", "slo.json"}
    assert names == reported | {"findings", "known", "state", "twophase.zip"}
    assert list(folder.glob("findings/*.parquet"))
    assert list(folder.glob("findings/_delta_log/*.json"))
    assert open_to_others(folder) == []


def test_an_archive_its_purge_and_a_query_write_for_their_user_alone(
    folder: Path, sqlite_store: SqliteUnderTest
) -> None:
    finish(sqlite_store, 1, 1, 20)
    Path(f"{sqlite_store.path}-lock").unlink(missing_ok=True)
    store, lake = f"--store={sqlite_store.url}", f"--lake={folder / 'lake'}"

    run(folder, "archive", store, lake)
    run(folder, "archive", store, lake, "--purge", "--older-than=1")
    run(folder, "query", "select count(*) from history", lake)

    assert list(folder.glob("lake/history/*/*.parquet"))
    assert {path.name for path in folder.iterdir()} == {"lake"}, "Spark leaves nothing where it was started"
    assert open_to_others(folder) == []
    assert Path(f"{sqlite_store.path}-lock").stat().st_mode & 0o077 == 0


def test_an_audit_in_a_notebook_writes_its_point_for_its_user_alone(
    folder: Path, system: System, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    sides = [
        [text.partition("=")[2] for text in system.arguments if text.startswith(f"--{role}=")]
        for role in ("coordinator", "producer", "consumer", "ledger")
    ]
    with twophase_spark.audit(spark, *sides, grace_s=0, late_s=1e12, state=folder / "state") as (report, findings):
        assert findings.count() > 0
        assert report.result.messages > 0

    assert {path.name for path in folder.iterdir()} == {"state"}
    assert open_to_others(folder) == []
