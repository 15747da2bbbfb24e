"""The sockets by which rows of Spark reach this process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyspark
import pyspark.util
import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import Case
from tests.spark.plant import make_system, plant
from tests.spark.truth import nowadays
from tests.support.waiting import PATIENCE_S, blocked_until

KILLED = """
import os, signal, sys
from pathlib import Path
from pyspark import SparkContext
from twophase.core.errors import SparkUnavailable
from twophase_spark.cli.audit import perform, read_plan
from twophase_spark.locations import Role
from twophase_spark.reports.unmade import ReportFiles
from twophase_spark.session import SessionSettings, open_session

def kill_java(*_):
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

coordinator, producer, state = sys.argv[1:]
asked = {"grace": 0, "every": 0.1, "cores": 1, "memory": 512, "state": Path(state)}
plan = read_plan(asked, {Role.COORDINATOR: [coordinator], Role.PRODUCER: [producer]}, None)
try:
    perform(plan, ReportFiles(), lambda _: None, kill_java)
except SparkUnavailable as error:
    print(error.message)
with open_session(SessionSettings(cores=1, memory_mb=512)) as spark:
    print([row["id"] for row in spark.range(2).collect()])
"""

STARTED = """
import signal
from twophase_spark.session import open_session

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
with open_session():
    pass
"""

SLOW_JAVA = """#!/bin/bash
case "$*" in
*-version*) echo 'openjdk version "17.0.1"' >&2 ;;
*launcher.Main*) printf '\\n%s\\0' "$0" ;;
*) echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 600 ;;
esac
"""

LOST = """
import sys
from pathlib import Path
from twophase_spark.auditing import run
from twophase_spark.cli.commands import app

compare = run.differences_of

def lose(*arguments, **named):
    Path(sys.argv[1]).unlink()
    return compare(*arguments, **named)

run.differences_of = lose
app(["audit", *sys.argv[2:]])
"""


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


def alone(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a Spark of its own."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)


def test_ctrl_c_while_java_starts_leaves_no_java(tmp_path: Path) -> None:
    """A Java that is left keeps the output open, and a pipe never ends."""
    program, mark = tmp_path / "bin" / "java", tmp_path / "pid"
    program.parent.mkdir()
    program.write_text(SLOW_JAVA.format(mark=mark))
    program.chmod(0o755)

    with subprocess.Popen(
        [sys.executable, "-c", STARTED],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        blocked_until(mark.exists)
        java = int(mark.read_text())
        try:
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(java, signal.SIGKILL)
    assert "KeyboardInterrupt" in said


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_job_that_fails_is_told_when_its_java_is_gone(tmp_path: Path) -> None:
    """Spark's errors ask Java for their text.

    A failure to tell one ended with 1, as a broken promise does.
    """
    system = make_system(tmp_path)
    plant(system, nowadays([Case("g", "")]))
    ledger = f"--ledger=bank-b=sqlite:///{system.bank_b}#ledger?agrees=ledger.amount%3D30"
    files = ["--cores=1", "--memory=512", f"--json={tmp_path / 'report.json'}"]

    done = alone(LOST, str(system.bank_b), *system.arguments[:3], ledger, *files)

    assert done.returncode == 2, done.stderr[-2_000:]
    assert "Could not check. TP-8002: ledger bank-b" in done.stderr
    assert '"not-made"' in (tmp_path / "report.json").read_text()


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_rounds_end_with_their_java_which_is_named(tmp_path: Path) -> None:
    """Each later round would say that a connection was refused."""
    system = make_system(tmp_path)
    plant(system, nowadays([Case("g", "", ledger=())]))
    places = [f"sqlite:///{system.coordinator}", f"bank-a=sqlite:///{system.bank_a}", str(tmp_path / "state")]

    done = alone(KILLED, *places)

    assert done.returncode == 0, done.stderr[-2_000:]
    assert "Java has ended in the middle of the work, by signal 9" in done.stdout
    assert done.stdout.endswith("[0, 1]\n"), "another session has a Java of its own"
