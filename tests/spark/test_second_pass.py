"""Both passes over real databases, which change between them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import IN_ORDER, Case
from tests.spark.plant import make_system, one_service, plant
from tests.spark.test_increment import locations
from tests.spark.truth import LATE_S, nowadays
from twophase.core.lifecycle import State
from twophase_spark.auditing.run import look_into, run
from twophase_spark.inputs import ahead
from twophase_spark.inputs.plan import Plan
from twophase_spark.inputs.source import again_from, local_gids, scope_of
from twophase_spark.locations import Role
from twophase_spark.readers.probe import Slice, Source
from twophase_spark.readers.rows import read_slice
from twophase_spark.reports.report import Verdict

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.mark.parametrize("rows_max", [0, ahead.ROWS_MAX], ids=["read by tasks", "read by the driver"])
def test_a_row_that_arrives_in_the_grace_time_settles_its_suspect(
    spark: SparkSession, tmp_path: Path, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message has just succeeded, and nothing is in flight.

    The consumer's replica has its rows a moment later. The grace time counts from the reading of the first look.
    """
    monkeypatch.setattr(ahead, "ROWS_MAX", rows_max)
    system = make_system(tmp_path)
    grace_s = 3_600.0  # the wait is not real; the message is young however long the machine takes to read it
    plan = Plan(locations(system), grace_s=grace_s, late_s=LATE_S, cores=1)
    succeeded = Case("just-now", "", State.SUCCEEDED, created_ms=time.time_ns() // 1_000_000)
    plant(system, nowadays([case for case in IN_ORDER if one_service(case)]))
    plant(system, [msgspec.structs.replace(succeeded, barriers=(), ledger=())])
    paused: list[float] = []

    def arrive(seconds: float) -> None:
        paused.append(seconds)
        plant(system, [msgspec.structs.replace(succeeded, state=None, producer=None)])

    report = run(spark, plan, look_into(plan), pause=arrive)

    assert len(paused) == 1
    assert grace_s - 600 < paused[0] < grace_s
    result = report.result
    assert (result.suspects, result.settled, result.waited, result.violations) == (1, 1, True, 0)
    assert report.verdict == Verdict.CLEAN


def test_the_grace_time_has_passed_when_the_first_look_took_longer(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    plan = Plan(locations(system), grace_s=1e-6, late_s=LATE_S, cores=1)
    plant(system, nowadays([case for case in IN_ORDER if one_service(case)]))
    soon_ms = time.time_ns() // 1_000_000 + 60_000  # young however late the look begins
    young = Case("effectless", "", State.SUCCEEDED, created_ms=soon_ms)
    plant(system, [msgspec.structs.replace(young, barriers=(), ledger=())])
    said: list[str] = []
    paused: list[float] = []

    report = run(spark, plan, look_into(plan), said.append, paused.append)

    assert (report.result.waited, report.result.violations) == (True, 1)
    assert paused == []
    assert said[-1] == "looking at the suspects again"


def test_a_message_that_came_between_two_slices_is_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gid does not tell its birth.

    So its effect alone would be older than history.
    """
    system = make_system(tmp_path)
    plant(system, nowadays([case for case in IN_ORDER if one_service(case)]))
    retained_ms = time.time_ns() // 1_000_000 - 3_600_000
    system.execute(system.coordinator, f"update store_meta set value = {retained_ms} where name = 'history_horizon_ms'")
    late = Case("order-1", "", State.SUCCEEDED, created_ms=time.time_ns() // 1_000_000)
    planted: list[str] = []

    def read_later(source: Source, part: Slice, *, is_shared: bool) -> Iterator[pa.RecordBatch]:
        if source.location.role is Role.CONSUMER and not planted:
            planted.append(late.gid)
            plant(system, [late])
        return read_slice(source, part, is_shared=is_shared)

    monkeypatch.setattr(ahead, "read_slice", read_later)
    plan = Plan(locations(system), grace_s=0, late_s=LATE_S, cores=1)

    result = run(spark, plan, look_into(plan)).result

    assert planted
    assert (result.violations, result.unchecked) == (0, 0)


def test_the_grace_time_counts_from_the_slices_only_where_nothing_has_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    system = make_system(tmp_path)
    plant(system, nowadays([case for case in IN_ORDER if one_service(case)]))
    sources = look_into(Plan(locations(system), cores=1))
    kept = ahead.read_ahead(sources).kept()
    assert kept is not None
    gids = sorted(kept.tables[Role.COORDINATOR].column("gid").to_pylist())[:3]
    asked, scope = local_gids(spark, gids), scope_of(sources, 0, 0)
    long_ago = msgspec.structs.replace(kept, read_s=1.0)
    unchanged = again_from(spark, sources, scope, kept=long_ago)

    first, second = unchanged.first(asked, len(gids)), unchanged.second(asked, len(gids))

    assert (first.read_s, first.is_unchanged) == (1.0, False)
    assert (second.read_s > 1.0, second.is_unchanged) == (True, True)
    system.execute(system.coordinator, "delete from history where gid = ?", gids[0])
    changed = again_from(spark, sources, scope, kept=long_ago)
    assert changed.first(asked, len(gids)).read_s > 1.0
