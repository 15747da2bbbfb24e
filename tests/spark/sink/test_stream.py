"""A streaming batch that cannot be published returns until its rows are right.

It may also be given up.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.sink.harness import Harness
from twophase.core.verdict import Verdict
from twophase_spark import register
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
        self._folder = folder
        self.rows = folder / "rows"
        self.rows.mkdir()

    def run(self) -> None:
        """Run the query to the end of the files."""
        frame = self._spark.readStream.schema("id long").option("maxFilesPerTrigger", "1").json(str(self.rows))
        query = (
            frame.writeStream.format("twophase")
            .options(**self._scene.options(checkAfter="1"))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

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
