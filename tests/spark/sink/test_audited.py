"""The audit of what the sink publishes.

The decisions of its batches are the producer's rows.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.sink.harness import Harness
from tests.spark.sink.test_publishing import GIDS, GROUP, written
from twophase_spark.auditing.run import look_into, run
from twophase_spark.inputs.plan import Plan
from twophase_spark.locations import Role, parse_coordinator, parse_named
from twophase_spark.readers.rows import CLOCKS_APART_MS
from twophase_spark.reports.report import Report, Verdict
from twophase_spark.sink.batch import publish
from twophase_spark.sink.bulk import BulkClient
from twophase_spark.sink.ledger import Batch
from twophase_spark.sink.naming import gid_of, stream_batch
from twophase_spark.sink.options import parse

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def audited(spark: SparkSession, harness: Harness, folder: Path, *, late_s: float = 3600.0) -> Report:
    """Audit the harness's coordinator against the sink's ledger as its producer."""
    reference = harness.ledger
    if reference.startswith("file:"):
        reference = Path(reference.removeprefix("file:")).read_text()
    locations = (parse_coordinator(harness.store), parse_named(Role.PRODUCER, f"pipeline={reference}"))
    plan = Plan(
        locations,
        grace_s=0,
        late_s=late_s,
        findings=str(folder / "findings"),
        state=folder / "audit.state",
        overlap_s=0,
    )
    return run(spark, plan, look_into(plan))


def found(folder: Path, report: Report) -> dict[str, list[str]]:
    """Return what this run appended to the findings."""
    table = folder / "findings"
    rows = DeltaTable(table).to_pyarrow_table().to_pylist() if table.exists() else []
    return {row["gid"]: row["flags"] for row in rows if row["run_id"] == report.run_id}


def test_what_was_published_is_clean(spark: SparkSession, harness: Harness, tmp_path: Path) -> None:
    publish(parse(harness.options()), [written(harness, GIDS)])
    harness.until_delivered(len(GIDS))

    report = audited(spark, harness, tmp_path)

    assert (report.verdict, report.result.messages, found(tmp_path, report)) == (Verdict.CLEAN, len(GIDS), {})


def test_a_run_that_did_not_count_is_open_until_its_batch_is_given_up(
    spark: SparkSession, harness: Harness, tmp_path: Path
) -> None:
    written(harness, GIDS, check_after_ms=1_000)
    publish(parse(harness.options()), [written(harness, GIDS[:6], check_after_ms=1_000)])
    harness.until(lambda: len(harness.receiver.counted) == 6, "six")

    report = audited(spark, harness, tmp_path)
    assert report.verdict is Verdict.CLEAN
    assert found(tmp_path, report) == {gid: ["in_flight"] for gid in GIDS[6:]}

    harness.book.give_up(GROUP)
    harness.until(lambda: not harness.live(), "rolled back")
    report = audited(spark, harness, tmp_path)
    assert report.verdict is Verdict.CLEAN
    assert found(tmp_path, report) == {}


def test_a_message_published_without_its_batch_is_a_ghost_and_one_dropped_is_lost(
    spark: SparkSession, harness: Harness, tmp_path: Path
) -> None:
    lost = gid_of("orders", ["never prepared"])
    written(harness, GIDS[:2])  # of a batch that never is decided
    with BulkClient(harness.url) as client:
        client.submit(iter(GIDS[:1]), 1, lambda _gid, _result: None)
    other = stream_batch("orders", "query", 2)
    harness.book.begin(Batch(other, "orders", "query", 2), "id")
    writer = harness.book.begin_run(other)
    harness.book.write_down(writer, [lost])
    harness.book.decide(other, [writer], 1)
    harness.until(lambda: harness.state(GIDS[0]) == "succeed", "the ghost is delivered")

    report = audited(spark, harness, tmp_path)

    assert report.verdict is Verdict.VIOLATIONS
    assert found(tmp_path, report) == {GIDS[0]: ["ghost"], GIDS[1]: ["in_flight"], lost: ["lost"]}


def test_an_executor_whose_clock_is_ahead_makes_no_forgotten_message_a_lost_one(
    spark: SparkSession, sqlite_scene: Harness, tmp_path: Path
) -> None:
    gids = {ahead_s: gid_of("orders", [ahead_s]) for ahead_s in (30, CLOCKS_APART_MS // 1_000 + 30)}
    horizon_ms = time.time_ns() // 1_000_000 - 3_600_000
    for number, (ahead_s, gid) in enumerate(gids.items()):
        group = stream_batch("orders", "query", number)
        sqlite_scene.book.begin(Batch(group, "orders", "query", number), "id")
        writer = sqlite_scene.book.begin_run(group)
        sqlite_scene.book.write_down(writer, [gid])
        sqlite_scene.book.decide(group, [writer], 1)
        sqlite_scene.set_begun(group, horizon_ms + ahead_s * 1_000)
    sqlite_scene.forget_history(horizon_ms)

    report = audited(spark, sqlite_scene, tmp_path)

    young, old = gids.values()
    assert found(tmp_path, report) == {young: ["unchecked"], old: ["lost"]}
    assert report.result.unknown == {"older than history": 1}


def test_the_next_run_finds_what_was_published_since(spark: SparkSession, harness: Harness, tmp_path: Path) -> None:
    publish(parse(harness.options()), [written(harness, GIDS)])
    harness.until_delivered(len(GIDS))
    assert audited(spark, harness, tmp_path).verdict is Verdict.CLEAN
    lost = gid_of("orders", ["never prepared"])
    other = stream_batch("orders", "query", 2)
    harness.book.begin(Batch(other, "orders", "query", 2), "id")
    writer = harness.book.begin_run(other)
    harness.book.write_down(writer, [lost])
    harness.book.decide(other, [writer], 1)

    report = audited(spark, harness, tmp_path)

    assert found(tmp_path, report) == {lost: ["lost"]}
