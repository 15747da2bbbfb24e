"""A lake or findings in an object store do what those in a folder do."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.spark.cases import Case
from tests.spark.lake.archiving import DAY_MS, ROWS_PER_TASK, InProcess, StoppedClock, fail_early
from tests.spark.lake.test_query import COMMAND
from tests.spark.plant import make_system, plant
from tests.spark.source.stores import BORN_MS, SqliteUnderTest, finish
from tests.spark.truth import nowadays
from tests.support.object_store import object_store
from twophase.core.errors import ArchiveRefused
from twophase_spark.lake.checking import verify
from twophase_spark.lake.planning import SETTLING_MS
from twophase_spark.lake.purging import PurgeSettings, purge
from twophase_spark.lake.run import Archived, Settings, archive
from twophase_spark.lake.tables import Lake, node_mark
from twophase_spark.reports.finding_columns import FINDING_COLUMNS, RUN_COLUMNS
from twophase_spark.source.schema.tables import Kind

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
PLACE = "s3://bucket/a lake"
FINDINGS = "s3://bucket/some findings"
CLOCK = StoppedClock(BORN_MS + DAY_MS + SETTLING_MS)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with object_store() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield


def archived(store: SqliteUnderTest) -> Archived:
    return archive(store.url, PLACE, Settings(CLOCK, InProcess(), rows_per_task=ROWS_PER_TASK))


def test_a_file_of_several_parts_is_written_whole() -> None:
    lake, content = Lake(PLACE), os.urandom(12 * 2**20 + 1)
    lake.create()

    lake.put(Kind.HISTORY, "dt=2026-11-20/one.parquet", io.BytesIO(content))

    with lake.files_of(Kind.HISTORY).open_input_file("dt=2026-11-20/one.parquet") as file:
        assert file.read() == content


def test_rows_are_archived_verified_and_purged(sqlite_store: SqliteUnderTest) -> None:
    finish(sqlite_store, 1, 1, 25)
    fail_early(sqlite_store, ["o-1"])

    first = archived(sqlite_store)
    finish(sqlite_store, 1, 26, 30)
    second = archived(sqlite_store)
    verified = verify(PLACE, InProcess(), lambda _: None)
    done = purge(sqlite_store.url, PLACE, PurgeSettings(CLOCK, older_than_ms=7_200_000, pause=lambda _: None))

    assert (first.history, first.attempts, second.history) == (25, 1, 5)
    assert (verified.faults, verified.history, verified.attempts) == ((), 30, 1)
    assert (done.history, done.attempts) == (30, 1)
    assert sorted(DeltaTable(f"{PLACE}/history").to_pyarrow_table()["seq"].to_pylist()) == list(range(1, 31))


def test_a_place_without_tables_is_no_lake() -> None:
    with pytest.raises(ArchiveRefused, match="is not a lake"):
        verify(PLACE, InProcess(), lambda _: None)


def test_a_mark_is_raised_once(sqlite_store: SqliteUnderTest) -> None:
    finish(sqlite_store, 1, 1, 5)
    archived(sqlite_store)
    one, other = (Lake(PLACE).snapshot() for _ in range(2))

    one.commit(Kind.HISTORY, [], {node_mark(1): 9}, 0, {})

    with pytest.raises(ArchiveRefused, match="another archive is at work"):
        other.commit(Kind.HISTORY, [], {node_mark(1): 9}, 0, {})


def test_a_query_reads_it_without_a_jar(sqlite_store: SqliteUnderTest) -> None:
    finish(sqlite_store, 1, 1, 25)
    archived(sqlite_store)
    finish(sqlite_store, 1, 26, 27)
    sql = (
        "select cast(payloads[0] as string) p, count(*) n, max(seq) top from history where dt = '2027-01-15' group by 1"
    )

    done = subprocess.run(
        [*COMMAND, sql, f"--lake={PLACE}", f"--store={sqlite_store.url}", "--payloads", "--output=json"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout and json.loads(done.stdout)) == (
        0,
        [{"p": '{"amount":30}', "n": 27, "top": 27}],
    ), done.stderr


def test_findings_of_each_run_are_appended(tmp_path: Path) -> None:
    """The first run finds nothing and makes the table; later ones append to it."""
    system = make_system(tmp_path)
    command = [sys.executable, "-m", "twophase", "spark", "audit", *system.arguments, "--grace=0", "--findings"]
    plant(system, nowadays([Case("fine", "")]))

    clean = subprocess.run([*command, FINDINGS], capture_output=True, check=False)
    columns = DeltaTable(FINDINGS).to_pyarrow_table().column_names
    system.execute(system.bank_b, "delete from barrier")
    broken = [subprocess.run([*command, FINDINGS], capture_output=True, check=False) for _ in range(2)]

    found = DeltaTable(FINDINGS).to_pyarrow_table()
    assert [run.returncode for run in (clean, *broken)] == [0, 1, 1], broken[0].stderr
    assert columns == found.column_names == [*RUN_COLUMNS, *FINDING_COLUMNS]
    assert found["gid"].to_pylist() == ["fine", "fine"]
    assert len(set(found["run_id"].to_pylist())) == 2
