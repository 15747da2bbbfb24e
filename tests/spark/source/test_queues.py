"""Entries and progress of queues, read as batches and followed as a stream."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.spark.source import reads
from tests.spark.source.stores import BORN_MS, StoreUnderTest, append
from twophase.core.errors import CannotRead, ConfigurationError, HistoryGap
from twophase_spark import register
from twophase_spark.source.stream import Offset

ALL = ReadAllAvailable()
SHOP = "shop/it's-%-é"
"""A topic with characters that mean something elsewhere."""


@pytest.fixture(autouse=True)
def _always_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase_spark.source.stream.LOOKS_SECONDS_MIN", 0.0)


def clean(store: StoreUnderTest, topic: str, below: int) -> None:
    store.many("delete from queue_entry where topic = ? and number < ?", [(topic, below)])


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return sorted((row["topic"], row["queue"], row["number"]) for row in rows)


@pytest.mark.parametrize("driver", ["python", "adbc"])
def test_entries_with_their_places(store: StoreUnderTest, driver: str) -> None:
    append(store, SHOP, 3, 0, 7)
    clean(store, SHOP, 7)

    [row] = reads.batch(url=store.url, table="queue_entry", driver=driver)

    stored_at = datetime.fromtimestamp((BORN_MS + 7) / 1000, UTC)
    assert row == {
        "topic": SHOP, "queue": 3, "number": 7, "gid": f"{SHOP}-3-7", "branch": 1, "stored_ms": BORN_MS + 7,
        "stored_at": stored_at,
    }  # fmt: skip


@pytest.mark.parametrize("driver", ["python", "adbc"])
def test_progress_of_groups(store: StoreUnderTest, driver: str) -> None:
    columns = "(consumers, topic, queue, next_number, unfinished, changed_ms)"
    values = [("billing", "orders", 0, 7, b"", BORN_MS)]
    store.many(f"insert into queue_progress {columns} values (?, ?, ?, ?, ?, ?)", values)

    [row] = reads.batch(url=store.url, table="queue_progress", driver=driver)

    changed_at = datetime.fromtimestamp(BORN_MS / 1000, UTC)
    assert list(row.values()) == ["billing", "orders", 0, 7, BORN_MS, changed_at]


def test_large_queues_are_cut_and_small_ones_share_a_task(store: StoreUnderTest, small_parts: None) -> None:
    append(store, "large", 0, 0, 99)
    for queue in range(5):
        append(store, "small", queue, 0, 2)

    parts = reads.parts(url=store.url, table="queue_entry", partitions=4)

    found = [place for part in parts for place in places(part)]
    assert len(found) == len(set(found)) == 115
    assert [len(part) for part in parts] == [33, 33, 34, 15]
    assert {topic for topic, _, _ in places(parts[-1])} == {"small"}


def test_entries_that_come_after_the_plan_are_not_of_the_read(store: StoreUnderTest) -> None:
    append(store, "orders", 0, 0, 4)
    reader, parts = reads.planned(url=store.url, table="queue_entry")

    append(store, "orders", 0, 5, 9)

    assert [row["number"] for part in parts for row in reads.rows_of(reader, part)] == [0, 1, 2, 3, 4]


def test_filters_of_entries(store: StoreUnderTest) -> None:
    append(store, "orders", 0, 0, 9)

    assert len(reads.batch(url=store.url, table="queue_entry", createdAfter=BORN_MS + 5)) == 5
    assert len(reads.batch(url=store.url, table="queue_entry", gids="orders-0-3,orders-0-4,other")) == 2
    with pytest.raises(ConfigurationError, match="states"):
        reads.batch(url=store.url, table="queue_entry", states="failed")
    with pytest.raises(ConfigurationError, match="gids"):
        reads.batch(url=store.url, table="queue_progress", gids="g")


def test_where_a_stream_of_entries_begins(store: StoreUnderTest) -> None:
    append(store, "orders", 0, 0, 8)
    append(store, SHOP, 1, 0, 2)
    clean(store, "orders", 4)
    clean(store, SHOP, 3)

    def begins(start: str) -> Offset:
        return reads.stream(url=store.url, table="queue_entry", start=start).initialOffset()

    assert begins("earliest") == {"orders/0": 4, f"{SHOP}/1": 3}
    assert begins("latest") == {"orders/0": 9, f"{SHOP}/1": 3}
    assert begins("beginning") == {"orders/0": 0, f"{SHOP}/1": 0}
    assert begins('{"orders/0": 6}') == {"orders/0": 6, f"{SHOP}/1": 0}
    with pytest.raises(ConfigurationError, match="do not exist yet"):
        begins('{"orders/0": 10}')
    for wrong in ('{"orders": 1}', '{"orders/0": -1}', "{1}"):
        with pytest.raises(ConfigurationError, match="topic and queue to number"):
            begins(wrong)


def test_a_stream_of_entries_has_each_once_and_takes_new_queues(store: StoreUnderTest) -> None:
    append(store, "orders", 0, 0, 4)
    reader = reads.stream(url=store.url, table="queue_entry", columns="topic,queue,number")

    first = reader.latestOffset(reader.initialOffset(), ALL)
    append(store, "orders", 0, 5, 6)
    append(store, SHOP, 1, 0, 1)
    second = reader.latestOffset(first, ReadMaxRows(3))
    third = reader.latestOffset(second, ALL)

    assert first == {"orders/0": 5, "behind": {"orders/0": 0}}
    assert third == {"orders/0": 7, f"{SHOP}/1": 2, "behind": {"orders/0": 7, f"{SHOP}/1": 1}}
    rows = [reads.between(reader, start, end) for start, end in ((reader.initialOffset(), first), (first, second))]
    assert places(rows[0]) == [("orders", 0, number) for number in range(5)]
    assert places(rows[1]) == [("orders", 0, 5), ("orders", 0, 6), (SHOP, 1, 0)]
    assert places(reads.between(reader, second, third)) == [(SHOP, 1, 1)]


def test_entries_that_were_cleaned_before_they_were_read(store: StoreUnderTest) -> None:
    append(store, "orders", 0, 0, 9)
    clean(store, "orders", 4)
    options = {"url": store.url, "table": "queue_entry", "start": "beginning"}

    failing = reads.stream(**options)
    end = failing.latestOffset(failing.initialOffset(), ALL)
    with pytest.raises(
        HistoryGap, match="4 entries were removed before the stream read them: queue 0 of orders, number 0 to 3"
    ):
        reads.between(failing, failing.initialOffset(), end)

    reporting = reads.stream(**options, onGap="report", columns="gid")
    rows = reads.between(reporting, reporting.initialOffset(), end)
    assert [(row["number"], row["gap_rows"]) for row in rows if row["gap_rows"]] == [(3, 4)]
    assert len(rows) == 7


def test_a_store_whose_queues_went_back_ends_the_stream(store: StoreUnderTest) -> None:
    append(store, "orders", 0, 0, 4)
    reader = reads.stream(url=store.url, table="queue_entry")

    with pytest.raises(CannotRead, match="orders/0"):
        reader.latestOffset({"orders/0": 9}, ALL)
    with pytest.raises(CannotRead, match="orders/0"):
        reads.between(reader, {"orders/0": 0}, {"orders/0": 9})


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_follows_entries(spark: SparkSession, store: StoreUnderTest, tmp_path: Path) -> None:
    register(spark)
    options = {"url": store.url, "table": "queue_entry"}

    def follow() -> None:
        entries = spark.readStream.format("twophase").options(**options).load()
        writer = entries.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start()
        query.awaitTermination()

    append(store, "orders", 0, 0, 4)
    follow()
    append(store, "orders", 0, 5, 6)
    append(store, "bills", 2, 0, 0)
    follow()

    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("topic", "queue", "number").collect()
    assert [(row["topic"], row["queue"], row["number"]) for row in rows] == [
        ("bills", 2, 0), *(("orders", 0, number) for number in range(7)),
    ]  # fmt: skip
    assert spark.read.format("twophase").options(**options).load().count() == 8
