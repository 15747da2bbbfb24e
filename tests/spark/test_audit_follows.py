"""The audit that follows history's stream.

It audits once what the stream brings, whatever is killed, and stops cleanly.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.servers.database import Database
from tests.spark.auditor import GO_ON, plan_of
from tests.spark.cases import Case
from tests.spark.plant import System, body_of, make_system, plant
from tests.spark.truth import LATE_S, nowadays
from twophase.core.errors import ConfigurationError
from twophase.core.lifecycle import State
from twophase.stores.postgres.migrating import migrate_database
from twophase_spark.auditing import following as following_module
from twophase_spark.auditing.following import Follower, Following, checkpoints_of, references_of
from twophase_spark.cli.audit import read_order
from twophase_spark.fleet import Options
from twophase_spark.inputs.increment import VerifiedPoint, read_state, write_state
from twophase_spark.inputs.plan import Plan
from twophase_spark.locations import Role, parse_coordinator
from twophase_spark.reports.report import Report

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
NONE: tuple[tuple[str, str], ...] = ()
SECONDS_MAX = 270
_NODE = """insert into node values (%s, 1, 1, '', 1, 1, 1, '{}') on conflict (id) do update set seq = node.seq + 1"""
_HISTORY = """
insert into history
    (node, seq, gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, done, body)
select %s, seq, %s, %s, %s, %s, %s, 'submit', '', 0, 1, %s from node where id = %s"""
NOT_IN_TIME = "Python worker failed to connect back"
"""The text of a late start of a source's Python.

Spark gives it 10 s, whatever the machine is doing; the audit then starts the stream anew.
"""


def good(gid: str) -> Case:
    return Case(gid, "")


def broken(gid: str) -> Case:
    return Case(gid, "missing_effect", barriers=NONE, ledger=())


def happen(system: System, *cases: Case) -> None:
    """Let messages end, as a flush of the coordinator leaves them."""
    plant(system, nowadays(list(cases)))
    system.execute(system.coordinator, "delete from node")
    system.execute(
        system.coordinator, "insert into node select 1, 1, '', coalesce(max(seq), 0), 1, 1 from history where node = 1"
    )


class SharedStore:
    """A PostgreSQL store into which nodes write history.

    The other sides of their messages stand in a system's banks.
    """

    def __init__(self, dsn: str, system: System) -> None:
        self._dsn = dsn
        self._system = system
        asyncio.run(migrate_database(dsn))

    def happen(self, *ended: tuple[int, Case]) -> None:
        """Let messages end, given with their nodes, in one commit."""
        cases = nowadays([case for _, case in ended])
        with psycopg.connect(self._dsn) as connection:
            for (node, _), case in zip(ended, cases, strict=True):
                connection.execute(_NODE, (node,))
                connection.execute(
                    _HISTORY, (node, case.gid, int(case.state or 0), *[case.created_ms] * 3, body_of(case), node)
                )
        plant(self._system, [msgspec.structs.replace(case, state=None) for case in cases])


def following(stop: threading.Event, show: Callable[[Report], None], plan: Plan) -> Following:
    def failed(error: Exception) -> None:
        if NOT_IN_TIME not in str(error):
            raise AssertionError("no round failed") from error

    return Following(references_of(plan.locations), stop, lambda _: None, show, failed, every_s=0.5)


def state_of(plan: Plan) -> VerifiedPoint:
    assert plan.state is not None
    state = read_state(plan.state)
    assert state is not None
    return state


def follow(spark: SparkSession, plan: Plan, *steps: Callable[[], None], through: int = 0) -> tuple[int, list[Report]]:
    """Follow, and take the next step after each report.

    The last report, with seq `through`, ends it.
    """
    reports: list[Report] = []
    left = list(steps)
    stop = threading.Event()

    def look() -> None:
        if not left and len(reports) > len(steps) and state_of(plan).verified["coordinator"].get(1, 0) >= through:
            stop.set()

    def show(report: Report) -> None:
        reports.append(report)
        look()
        if left:
            left.pop(0)()

    terms = following(stop, show, plan)
    return Follower(spark, plan, msgspec.structs.replace(terms, say=lambda _: look())).run(), reports


@pytest.mark.long
def test_what_ends_is_audited_once_and_what_no_history_tells_is_found_too(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    plan = plan_of(system)
    happen(system, good("a"))

    code, reports = follow(
        spark,
        plan,
        lambda: happen(system, good("b"), broken("c")),
        lambda: happen(system, Case("d", "lost", None, "msg", NONE, ())),
        through=3,
    )

    assert [report.result.primary for report in reports] == [
        {},
        {"missing_effect": 1},
        {"lost": 1, "missing_effect": 1},
    ]
    state = state_of(plan)
    assert (code, state.verified, state.carried, state.batch) == (1, {"coordinator": {1: 3}}, ("c", "d"), 0)

    # Without its checkpoint another stream begins, at the verified point.
    shutil.rmtree(checkpoints_of(plan.state or tmp_path))
    happen(system, good("e"))
    code, reports = follow(spark, plan, through=4)
    assert (code, reports[0].result.violations) == (1, 2)
    assert (state_of(plan).verified, state_of(plan).batch) == ({"coordinator": {1: 4}}, 0)
    assert state_of(plan).stream != state.stream


def test_a_batch_that_is_in_the_verified_point_is_not_audited_again(spark: SparkSession, tmp_path: Path) -> None:
    plan = plan_of(make_system(tmp_path))
    assert plan.state is not None
    write_state(plan.state, VerifiedPoint(verified={"coordinator": {1: 1}}, batch=3))

    def show(report: Report) -> None:
        raise AssertionError("it was audited again")

    follower = Follower(spark, plan, following(threading.Event(), show, plan))
    follower.take(spark.createDataFrame([], "coordinator string, node int, seq long, gid string"), 3)


def test_a_gap_in_what_is_verified_already_is_none(spark: SparkSession) -> None:
    """Another audit of the same state ran while this one was stopped.

    Since then history was cleaned.
    """
    rows = [("bank", 1, 50, None, 10), ("bank", 1, 90, None, 5), ("bank", 1, 91, "g", None)]
    frame = spark.createDataFrame(rows, "coordinator string, node int, seq long, gid string, gap_rows long")

    arrived = following_module._arrived(frame, VerifiedPoint(verified={"bank": {1: 60}}), 3)

    assert [line.note for line in arrived.remarks] == ["history 86 to 90 was cleaned before this audit read it"]
    assert arrived.verified == {"bank": {1: 91}}


class _AtTheGraceTime(threading.Event):
    """A stop in the moment when a round begins to wait."""

    def wait(self, timeout: float | None = None) -> bool:
        if timeout == 600:
            self.set()
        return super().wait(timeout)


@pytest.mark.long
def test_a_stop_cuts_no_grace_time_short(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    plan = msgspec.structs.replace(plan_of(system), grace_s=600)
    happen(system, good("a"))
    stop = _AtTheGraceTime()
    shown: list[str] = []
    late: list[Exception] = []

    def show(report: Report) -> None:
        shown.append(report.verdict)
        happen(system, broken("b"), Case("waiting", "in_flight", State.SUBMITTED, "msg", NONE, ()))

    terms = following(stop, show, plan)

    def failed(error: Exception) -> None:
        terms.failed(error)
        late.append(error)

    code = Follower(spark, plan, msgspec.structs.replace(terms, failed=failed)).run()

    assert code == (following_module.NOT_CHECKED if late else 0), "of the last round that was not given up"
    assert shown == ["clean"]
    assert state_of(plan).verified == {"coordinator": {1: 1}}
    code, reports = follow(spark, plan_of(system))
    assert (code, reports[0].result.primary) == (1, {"missing_effect": 1})


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.postgres
def test_a_batch_that_was_killed_behind_the_state_is_not_reported_twice(
    tmp_path: Path, postgres_database: Database
) -> None:
    """The driver dies by kill -9 between the audit's state and Spark's note.

    The command continues there, and ends by SIGTERM. Two nodes share the store, whose URL has a password; the second
    one begins when the first batch is awaited.
    """
    system, dsn = make_system(tmp_path), postgres_database.dsn
    plan, store = plan_of(system, dsn), SharedStore(dsn, system)
    store.happen((1, good("a")))
    with program(tmp_path, "tests.spark.auditor", str(tmp_path), dsn) as process:
        wait_for(lambda: "shown: 1 clean" in said(tmp_path), process, tmp_path)
        store.happen((2, good("b")), (1, broken("c")))
        (tmp_path / GO_ON).touch()
        wait_for((tmp_path / "at-point").exists, process, tmp_path)
        os.killpg(process.pid, signal.SIGKILL)
    assert (state_of(plan).verified, state_of(plan).batch) == ({"coordinator": {1: 2, 2: 1}}, 0)
    store.happen((2, good("d")))

    databases = [f"--coordinator={dsn}", *system.arguments[1:]]
    terms = [f"--state={plan.state}", f"--late={LATE_S}", "--grace=0.1", "--overlap=0", "--every=0.5", "--cores=1"]
    with program(tmp_path, "twophase", "spark", "audit", "--follow", *databases, *terms) as process:
        wait_for(lambda: state_of(plan).verified == {"coordinator": {1: 2, 2: 2}}, process, tmp_path)
        process.terminate()
        assert process.wait(SECONDS_MAX) == 1, said(tmp_path)

    assert said(tmp_path).splitlines()[-1].startswith("twophase: stopped")
    assert [line.messages for line in state_of(plan).runs[:2]] == [1, 2]
    assert state_of(plan).batch == 1
    failures = [line for line in said(tmp_path).splitlines() if "failed:" in line or "could not check" in line]
    assert [line for line in failures if NOT_IN_TIME not in line] == []


@contextlib.contextmanager
def program(folder: Path, *module: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module as a process, in a group with all that it starts.

    The group is killed at the end of the block.
    """
    command = [sys.executable, "-m", *module]
    with (folder / "said").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def said(folder: Path) -> str:
    return (folder / "said").read_text()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert process.poll() is None, said(folder)
        assert time.monotonic() < deadline, said(folder)
        time.sleep(0.05)


def test_following_needs_a_verified_point() -> None:
    url = "sqlite:///x.db"
    texts = {Role.COORDINATOR: [url], Role.PRODUCER: ["a=sqlite:///a.db"]}
    with pytest.raises(ConfigurationError, match="--follow needs --state"):
        read_order(Options(follow=True), texts, None)
    with pytest.raises(ConfigurationError, match="above 0"):
        read_order(Options(follow=True, every=0, state="s"), texts, None)


def test_a_password_goes_into_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOPHASE_AUDIT_STORE_1", "")
    locations = [parse_coordinator("a=sqlite:///a.db"), parse_coordinator("b=postgresql://me:secret@db/x")]

    assert references_of(locations) == {"a": "sqlite:///a.db", "b": "env:TWOPHASE_AUDIT_STORE_1"}
    assert os.environ["TWOPHASE_AUDIT_STORE_1"] == "postgresql://me:secret@db/x"


@pytest.mark.parametrize(
    ("planned", "noted", "batch", "fits"),
    [
        ([], [], -1, True),  # a new one
        ([0], [], -1, True),  # killed before the state
        ([0], [], 0, True),  # killed after it
        ([0, 1], [0], 0, True),
        ([0, 1], [0, 1], 1, True),
        ([], [], 0, False),  # the checkpoint was lost: its batch 0 would be another
        ([0, 1], [0, 1], 0, False),  # the state is older
        ([0, 1], [0], 2, False),  # the checkpoint is older
    ],
)
def test_a_checkpoint_fits_the_verified_point_or_another_begins(
    tmp_path: Path, planned: list[int], noted: list[int], batch: int, fits: bool
) -> None:
    for name, numbers in (("offsets", planned), ("commits", noted)):
        (tmp_path / name).mkdir()
        for number in numbers:
            (tmp_path / name / str(number)).touch()
            (tmp_path / name / f".{number}.crc").touch()

    assert following_module._fits(tmp_path, batch) is fits
