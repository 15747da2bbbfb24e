"""`df.write.format("twophase")`: one message a row, once a key."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.sink.scene import Scene
from twophase.spark import register
from twophase.spark.sink.ledger import Decision
from twophase.spark.sink.naming import gid_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def save(frame: DataFrame, scene: Scene, **options: str) -> None:
    frame.write.format("twophase").mode("append").options(**scene.options(**options)).save()


def orders(spark: SparkSession, first: int, last: int) -> DataFrame:
    register(spark)
    return spark.range(first, last + 1, numPartitions=2).selectExpr("id", "concat('o', id) as name")


def test_one_message_a_row(spark: SparkSession, scene: Scene) -> None:
    save(orders(spark, 1, 500), scene, connections="2", rowsPerRequest="50")

    scene.until_delivered(500)
    assert set(scene.receiver.counted.values()) == {1}
    assert scene.receiver.counted.keys() == {gid_of("orders", [number]) for number in range(1, 501)}
    assert {"id": 7, "name": "o7"} in scene.receiver.bodies()
    [batch] = scene.book.batches("orders")
    assert (batch.decision, batch.messages, batch.published_ms is None) == (Decision.PUBLISHED, 500, False)
