"""Both passes over real databases, which change between them."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import IN_ORDER, Case
from tests.spark.plant import make_system, one_service, plant
from tests.spark.test_increment import locations
from tests.spark.truth import LATE_S, nowadays
from twophase.core.lifecycle import State
from twophase_spark.auditing.run import look_into, run
from twophase_spark.inputs.plan import Plan
from twophase_spark.reports.report import Verdict

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_a_row_that_arrives_in_the_grace_time_settles_its_suspect(spark: SparkSession, tmp_path: Path) -> None:
    """A message has just succeeded, and nothing is in flight.

    The consumer's replica has its rows a moment later.
    """
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

    assert paused == [grace_s]
    result = report.result
    assert (result.suspects, result.settled, result.waited, result.violations) == (1, 1, True, 0)
    assert report.verdict == Verdict.CLEAN
