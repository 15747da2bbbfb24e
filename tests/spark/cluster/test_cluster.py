"""The bundle of `twophase spark bundle` holds all of twophase for executors.

It is tried on a real master with two workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from tests.crash.checker import rows
from tests.docs.pages import ROOT
from tests.servers.missing import not_tested
from tests.spark.cases import BROKEN, IN_ORDER
from tests.spark.cluster.job import ATTEMPTS, ORDERS, ORDERS_APART, orders_of
from tests.spark.cluster.standalone import Cluster, standalone
from tests.spark.plant import make_system, one_service, plant
from tests.spark.plugin import BUNDLE, MASTER
from tests.spark.sink.harness import Harness, running_harness
from tests.spark.source.stores import SqliteUnderTest, finish
from tests.spark.truth import nowadays
from twophase.core.errors import ConfigurationError
from twophase.core.lifecycle import State
from twophase_spark._java import find_java
from twophase_spark.cli.commands import app
from twophase_spark.cluster.bundle import bundle
from twophase_spark.sink.naming import gid_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ROWS = 40_000  # cut into two tasks
JOB = Path(__file__).with_name("job.py")
PIPELINE_JOB = Path(__file__).with_name("pipeline_job.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        find_java(tmp_path_factory.mktemp("java"))
    except ConfigurationError as error:
        not_tested("Spark on a cluster", error.message)
    with standalone(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """A harness to which executors publish."""
    with running_harness(
        tmp_path, f"sqlite:///{tmp_path / 'store.db'}", f"sqlite:///{tmp_path / 'ledger.db'}"
    ) as found:
        yield found


@pytest.mark.long
def test_a_job_reads_on_both_executors_and_publishes_once_what_two_attempts_write(
    cluster: Cluster, tmp_path: Path, harness: Harness
) -> None:
    store = SqliteUnderTest(tmp_path)
    finish(store, 1, 1, ROWS)
    zipped = bundle(tmp_path / "twophase-spark.zip").path

    done = subprocess.run(
        [*map(str, (cluster.python, JOB, cluster.master, zipped, store.url, tmp_path)), json.dumps(harness.options())],
        env={**cluster.environment, "PYSPARK_PYTHON": str(cluster.python)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3_000:]
    said = json.loads(done.stdout.splitlines()[-1])
    found, troubles = said["found"], said["troubles"]
    assert sum(row["rows"] for row in found) == ROWS
    assert len({row["folder"] for row in found}) == 2, "both executors had a part"
    assert all("twophase-spark.zip" in row["source"] for row in found)
    missing = "coordinator store: there is no file /nowhere/store.db."
    assert sorted(troubles) == ["", "", missing, missing]

    places = [(tmp_path / f"attempt-{number}").read_text() for number in range(ATTEMPTS)]
    assert len(set(places)) == 2, "both attempts had prepared all they had, each on an executor of its own"
    runs = rows(harness.ledger, "select won, count(*) from twophase_spark_writer group by won order by won")
    assert runs == [(0, 1), (1, 1)]
    left = {str(int(State.PREPARED)): ORDERS_APART}
    harness.until(
        lambda: len(harness.receiver.counted) >= ORDERS and harness.live() == left, "one attempt's orders came"
    )
    assert dict(harness.receiver.counted) in [
        {gid_of("orders", [order]): 1 for order in orders_of(number)} for number in range(ATTEMPTS)
    ]


@pytest.mark.long
def test_a_job_audits_streams_and_archives_on_the_executors(cluster: Cluster, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    live = {State.PREPARED, State.SUBMITTED}
    cases = nowadays([case for case in (*IN_ORDER, *BROKEN) if one_service(case) and case.state not in live])
    plant(system, cases)
    system.execute(system.coordinator, "insert into node select 1, 1, '', max(seq), 0, 0 from history")
    last = sum(case.state is not None for case in cases)
    zipped = bundle(tmp_path / "twophase-spark.zip").path
    locations = {
        "coordinators": [f"sqlite:///{system.coordinator}"],
        "producers": [f"bank-a=sqlite:///{system.bank_a}"],
        "consumers": [f"bank-b=sqlite:///{system.bank_b}"],
        "ledgers": [f"bank-b=sqlite:///{system.bank_b}#ledger?gid=gid&branch=branch_id"],
    }

    done = subprocess.run(
        [*map(str, (cluster.python, PIPELINE_JOB, cluster.master, zipped, tmp_path)), json.dumps(locations)],
        # A stream is planned by a process that Java starts, and that does not get the files of the job.
        env={**cluster.environment, "PYSPARK_PYTHON": str(cluster.python), "PYTHONPATH": str(zipped)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["broken"] == {case.gid: case.flags for case in cases if case.flags}
    assert (found["messages"], found["archived"]) == (len(cases), last)
    assert found["files"] > 1, "more than one task wrote"
    seqs = sorted(pq.read_table(tmp_path / "stream")["seq"].to_pylist())
    assert seqs == list(range(1, last + 1))
    assert sorted(DeltaTable(tmp_path / "lake" / "history").to_pyarrow_table()["seq"].to_pylist()) == seqs


@pytest.mark.long
def test_the_pages_run_on_the_executors(cluster: Cluster, tmp_path: Path) -> None:
    """The driver has all of twophase, for the pages' coordinators.

    The executors have the bundle's.
    """
    zipped = bundle(tmp_path / "twophase-spark.zip").path
    sources = os.pathsep.join([str(ROOT / "src"), str(ROOT / "packages" / "twophase-spark" / "src")])
    # This path reaches the driver, its coordinators and the process that plans a stream, and no executor.
    driver = {MASTER: cluster.master, BUNDLE: str(zipped), "PYTHONPATH": sources}

    done = subprocess.run(
        [str(cluster.python), "-m", "pytest", "tests/spark/test_pages.py", "-n", "0", "-p", "no:cacheprovider", "-q"],
        env={**cluster.environment, **driver},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-5_000:]
    assert "4 passed, 0 failed, 0 skipped" in done.stdout


def test_the_bundle_is_the_same_each_time_and_has_no_server(tmp_path: Path) -> None:
    one, other = bundle(tmp_path / "one.zip"), bundle(tmp_path / "other.zip")

    assert one.path.read_bytes() == other.path.read_bytes()
    names = zipfile.ZipFile(one.path).namelist()
    assert {"twophase_spark/source/data_source.py", "twophase/core/message.py"} <= set(names)
    assert not [name for name in names if name.startswith(("twophase/server/", "twophase/cli/")) or ".pyc" in name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.zip", "other.zip"]


def test_a_bundle_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bundle", "-o", str(tmp_path / "none" / "x.zip")])
    assert result.exit_code == 2
    assert "cannot be written: No such file or directory" in result.output


def test_doctor_sends_no_password_to_a_cluster() -> None:
    result = CliRunner().invoke(app, ["doctor", "--store=postgresql://me:s3cret@db/x", "--master=spark://127.0.0.1:1"])
    assert result.exit_code == 2
    assert "does not travel to a cluster" in result.output
    assert "s3cret" not in result.output
