"""A streaming batch that cannot be published returns until its rows are right.

It may also be given up.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.sink.harness import Harness
from twophase.core.verdict import Verdict
from twophase_spark import register, sink_progress
from twophase_spark.sink.ledger import Decision
from twophase_spark.sink.naming import gid_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
GOOD = '{"id":1}\n{"id":2}\n'
TWICE = '{"id":3}\n{"id":4}\n{"id":3}\n'


class Stream:
    """A query over files of a folder, one file a batch."""

    def __init__(self, spark: SparkSession, harness: Harness, folder: Path) -> None:
        self._spark = register(spark)
        self._scene = harness
        self.rows = folder / "rows"
        self.rows.mkdir()
        self._checkpoint = folder / "checkpoint"

    def start(self) -> StreamingQuery:
        """Start the query, which runs to the end of the files."""
        frame = self._spark.readStream.schema("id long").option("maxFilesPerTrigger", "1").json(str(self.rows))
        return (
            frame.observe("orders", F.count("id").alias("seen"), F.max("id").alias("highest"))
            .writeStream.format("twophase")
            .options(**self._scene.options(checkAfter="1"))
            .option("checkpointLocation", str(self._checkpoint))
            .queryName("publish orders")
            .trigger(availableNow=True)
            .start()
        )

    def run(self) -> StreamingQuery:
        """Run the query to its end."""
        query = self.start()
        query.awaitTermination()
        return query

    def restore_first_checkpoint(self) -> None:
        """Let the checkpoint be as it was before the first batch, and of the same query."""
        for name in ("offsets", "commits", "sources"):
            shutil.rmtree(self._checkpoint / name)

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self._checkpoint)

    def fail(self, code: str) -> None:
        with pytest.raises(StreamingQueryException) as caught:
            self.run()
        assert code in str(caught.value)


@pytest.fixture
def stream(spark: SparkSession, sqlite_scene: Harness, tmp_path: Path) -> Stream:
    return Stream(spark, sqlite_scene, tmp_path)


def test_a_batch_that_failed_comes_back_and_is_published(stream: Stream, sqlite_scene: Harness) -> None:
    harness = sqlite_scene
    (stream.rows / "0.json").write_text(GOOD)
    stream.run()
    (stream.rows / "1.json").write_text(TWICE)
    stream.fail("TP-8101")
    stream.fail("TP-8101")
    harness.until_delivered(2)

    (stream.rows / "1.json").write_text('{"id":3}\n{"id":4}\n')
    stream.run()

    harness.until_delivered(4)
    assert dict(harness.receiver.counted) == {gid_of("orders", [number]): 1 for number in range(1, 5)}


def test_a_batch_that_is_given_up_is_passed_over(stream: Stream, sqlite_scene: Harness) -> None:
    harness = sqlite_scene
    (stream.rows / "0.json").write_text(TWICE)
    stream.fail("TP-8101")
    [batch] = harness.book.batches("orders")
    assert (batch.decision, batch.number) == (Decision.OPEN, 0)

    harness.book.give_up(batch.group)
    (stream.rows / "1.json").write_text(GOOD)
    stream.run()

    harness.until_delivered(2)
    assert dict(harness.receiver.counted) == {gid_of("orders", [number]): 1 for number in (1, 2)}
    assert harness.book.verdict(gid_of("orders", [1])) is Verdict.COMMITTED


def test_a_published_batch_that_comes_back_with_other_rows_is_refused(stream: Stream, sqlite_scene: Harness) -> None:
    harness = sqlite_scene
    (stream.rows / "0.json").write_text(GOOD)
    stream.run()
    stream.restore_first_checkpoint()
    stream.run()  # the same rows: nothing to do
    stream.restore_first_checkpoint()
    (stream.rows / "0.json").write_text('{"id":2}\n{"id":3}\n')

    stream.fail("published with other rows")

    harness.until_delivered(2)
    assert not harness.state(gid_of("orders", [3])), "nothing is prepared"
    stream.lose_checkpoint()
    stream.run()
    harness.until_delivered(3)
    assert dict(harness.receiver.counted) == {gid_of("orders", [number]): 1 for number in (1, 2, 3)}


def test_progress_tells_what_a_batch_published_and_left_out(stream: Stream, sqlite_scene: Harness) -> None:
    (stream.rows / "0.json").write_text(GOOD)
    (stream.rows / "1.json").write_text('{"id":2}\n{"id":0}\n')  # in either order, 2 stands in both batches

    query = stream.run()

    progress = sink_progress(sqlite_scene.ledger, "orders", query)
    assert progress is not None
    assert (progress.query, progress.batch, progress.decision) == (query.id, 1, "published")
    assert (progress.messages, progress.left_out, progress.contrary, progress.waiting_s) == (1, 1, 0, 0)
    assert progress.published_at is not None
    assert progress.published_at >= progress.begun_at
    [report] = [one for one in query.recentProgress if one.batchId == 1 and one.numInputRows]
    assert report.name == "publish orders"
    assert report.observedMetrics["orders"].asDict() == {"seen": 2, "highest": 2}


def test_a_batch_that_waits_for_the_coordinator_is_seen_before_spark_reports_it(
    stream: Stream, sqlite_scene: Harness
) -> None:
    (stream.rows / "0.json").write_text(GOOD)
    assert sink_progress(sqlite_scene.ledger, "orders") is None
    sqlite_scene.kill()
    query = stream.start()

    def waits() -> bool:
        progress = sink_progress(sqlite_scene.ledger, "orders", query)
        return progress is not None and progress.waiting_s > 0

    sqlite_scene.until(waits, "a batch that waits")
    progress = sink_progress(sqlite_scene.ledger, "orders", query)
    assert progress is not None
    assert (progress.batch, progress.decision, progress.left_out) == (0, "undecided", None)
    assert query.lastProgress is None

    sqlite_scene.start()
    query.awaitTermination()
    progress = sink_progress(sqlite_scene.ledger, "orders", query)
    assert progress is not None
    assert (progress.decision, progress.messages, progress.left_out, progress.waiting_s) == ("published", 2, 0, 0)
