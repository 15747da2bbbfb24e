"""The source inside Spark.

The tests cover load, schema, SQL, streams with checkpoints, and one cut over tables.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.spark.source.follower import NOT_IN_TIME, STARTS_MAX
from tests.spark.source.stores import (
    PostgresUnderTest,
    SqliteUnderTest,
    StoreUnderTest,
    add_history,
    finish,
    gid_of,
    history_row,
    live,
    remove,
)
from twophase_spark import consistent_cut, register, stream_lag

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def with_source(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def history(spark: SparkSession, store: StoreUnderTest, **options: object) -> DataFrame:
    reader = spark.read.format("twophase").option("url", store.url).option("table", "history")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def test_history_is_a_dataframe(with_source: SparkSession, store: StoreUnderTest) -> None:
    finish(store, 1, 1, 5)

    frame = history(with_source, store, columns="gid,state,seq,branches")

    assert frame.where("seq = 5").select("gid", "state", F.col("branches")[0]["url"]).collect() == [
        (gid_of(1, 5), "succeeded", "http://b/in")
    ]


def test_a_body_is_decoded_only_for_columns_that_are_named(with_source: SparkSession, store: StoreUnderTest) -> None:
    finish(store, 1, 1, 1)

    named = history(with_source, store).columns

    assert not {"branches", "check_url", "protocol", "delay_ms", "payloads"}.intersection(named)
    assert history(with_source, store, columns="check_url").collect() == [("http://a/check?barrier=id",)]


def test_times_are_timestamps_too(with_source: SparkSession, store: StoreUnderTest) -> None:
    finish(store, 1, 1, 3)
    live(store, [gid_of(1, 9)])
    frame = history(with_source, store)

    wrong = frame.where(
        "created_at <> timestamp_millis(created_ms) or finished_at <> timestamp_millis(finished_ms) "
        "or decided_at <> timestamp_millis(decided_ms) or created_at is null"
    )
    journal = with_source.read.format("twophase").options(url=store.url, table="journal").load()

    assert (frame.count(), wrong.count()) == (3, 0)
    assert journal.where("finished_at is null and due_at = timestamp_millis(due_ms)").count() == 1
    assert frame.groupBy(F.window("finished_at", "1 hour")).count().count() == 1


def test_some_gids_are_looked_up(with_source: SparkSession, store: StoreUnderTest) -> None:
    finish(store, 1, 1, 5)
    live(store, [gid_of(1, 9)])
    gids = ",".join((gid_of(1, 2), gid_of(1, 9), "nobody's", "a'b"))

    found = with_source.read.format("twophase").options(url=store.url, table="journal", gids=gids).load()

    assert sorted(row["gid"] for row in found.collect()) == [gid_of(1, 2), gid_of(1, 9)]
    assert found.rdd.getNumPartitions() <= 2


def test_a_table_is_made_of_the_source(with_source: SparkSession, sqlite_store: StoreUnderTest) -> None:
    finish(sqlite_store, 1, 1, 5)
    with_source.sql("drop table if exists ended")
    with_source.sql(f"create table ended using twophase options (url '{sqlite_store.url}', table 'history')")
    try:
        assert with_source.sql("select count(*), max(seq) from ended where state = 'succeeded'").collect() == [(5, 5)]
        assert with_source.table("ended").columns[:3] == ["node", "seq", "gid"]
        assert with_source.read.option("states", "failed").table("ended").count() == 0
    finally:
        with_source.sql("drop table ended")


def test_one_dataframe_may_be_used_twice(with_source: SparkSession, store: StoreUnderTest) -> None:
    """In Spark 4.3 filters pushed into one use of a Python source leak into others.

    This source accepts no filters.
    """
    finish(store, 1, 1, 10)
    frame = history(with_source, store, columns="gid,seq")

    rest = frame.join(frame.where("seq > 5"), "gid", "left_anti")

    assert (rest.count(), frame.count()) == (5, 10)


def test_a_schema_of_the_user_chooses_columns(with_source: SparkSession, sqlite_store: StoreUnderTest) -> None:
    finish(sqlite_store, 1, 1, 1)
    reader = with_source.read.format("twophase").option("url", sqlite_store.url).option("table", "history")

    assert reader.schema("gid string, seq bigint").load().collect() == [(gid_of(1, 1), 1)]
    with pytest.raises(PySparkException, match="seq is string; it is int64"):
        reader.schema("seq string").load().collect()


def test_what_is_wrong_is_reported_by_its_code(with_source: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"TP-8002.*there is no file"):
        with_source.read.format("twophase").option("url", "sqlite:////none.db").option(
            "table", "message"
        ).load().count()


def test_one_cut_over_two_tables(with_source: SparkSession, store: StoreUnderTest) -> None:
    live(store, [gid_of(1, 1), gid_of(1, 2)])
    with consistent_cut(store.url) as cut:
        store.many("delete from message where gid = ?", [(gid_of(1, 1),)])
        add_history(store, history_row(1, 1))
        reader = with_source.read.format("twophase").options(**cut)
        live_gids = {row.gid for row in reader.option("table", "message").load().collect()}
        final_gids = {row.gid for row in reader.option("table", "history").load().collect()}

    assert (live_gids, final_gids) == ({gid_of(1, 1), gid_of(1, 2)}, set())


def ended_by_itself(stream: DataStreamWriter) -> StreamingQuery:
    """Run it to its end; return the query.

    It is started anew where the machine was too slow for Spark to begin it.
    """
    for left in reversed(range(STARTS_MAX)):
        query = stream.start()
        try:
            assert query.awaitTermination(120)
        except StreamingQueryException as error:
            if NOT_IN_TIME not in str(error) or not left:
                raise
        else:
            return query
    raise AssertionError("no start is allowed")


def follow(spark: SparkSession, store: StoreUnderTest, folder: Path, **options: object) -> list[Any]:
    """Run the stream to its end into a Parquet folder; return its rows by seq."""
    reader = spark.readStream.format("twophase").option("url", store.url)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    stream = (
        reader.load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "rows"))
        .trigger(availableNow=True)
    )
    ended_by_itself(stream)
    return spark.read.parquet(str(folder / "rows")).orderBy("node", "seq").collect()


def test_a_stream_goes_on_from_its_checkpoint(with_source: SparkSession, store: StoreUnderTest, tmp_path: Path) -> None:
    options = {"columns": "node,seq,gid", "maxRowsPerBatch": 4}
    finish(store, 1, 1, 10)
    first = follow(with_source, store, tmp_path, **options)
    finish(store, 1, 11, 12)
    finish(store, 2, 1, 3)
    second = follow(with_source, store, tmp_path, **options)

    assert [row.seq for row in first] == list(range(1, 11))
    assert [(row.node, row.seq) for row in second] == [*((1, seq) for seq in range(1, 13)), (2, 1), (2, 2), (2, 3)]


def test_progress_says_how_far_a_stream_is_behind(
    with_source: SparkSession, sqlite_store: SqliteUnderTest, tmp_path: Path
) -> None:
    finish(sqlite_store, 1, 1, 10)
    sqlite_store.many("update history set finished_ms = ?", [(1_000_000_000_000,)])  # long ago
    reader = with_source.readStream.format("twophase").options(url=sqlite_store.url, maxRowsPerBatch="4")
    writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path)).queryName("lagging")

    query = ended_by_itself(writer.trigger(availableNow=True))

    reports = [progress for progress in query.recentProgress if progress.numInputRows]
    lags = [stream_lag(cast(StreamingQuery, SimpleNamespace(lastProgress=progress))) for progress in reports]
    assert [progress.numInputRows for progress in reports] == [4, 4, 2]
    assert [(lag.rows, lag.seconds > 0) for lag in lags if lag is not None] == [(6, True), (2, True), (0, False)]
    last = stream_lag(query)
    assert last is not None
    assert (last.rows, last.seconds) == (0, 0)


def test_a_query_without_our_source_or_a_report_has_no_lag() -> None:
    other = SimpleNamespace(sources=[SimpleNamespace(latestOffset=text) for text in ("None", '{"1": 7}', None)])

    assert stream_lag(cast(StreamingQuery, SimpleNamespace(lastProgress=None))) is None
    assert stream_lag(cast(StreamingQuery, SimpleNamespace(lastProgress=other))) is None


def test_a_gap_ends_the_stream_or_stands_in_it(
    with_source: SparkSession, sqlite_store: SqliteUnderTest, tmp_path: Path
) -> None:
    options = {"columns": "gid", "start": "beginning"}
    finish(sqlite_store, 1, 1, 10)
    remove(sqlite_store, 1, 1, 4)

    with pytest.raises(PySparkException, match=r"TP-8003.*node 1, seq 1 to 4"):
        follow(with_source, sqlite_store, tmp_path / "fail", **options)

    rows = follow(with_source, sqlite_store, tmp_path / "report", **options, onGap="report")
    assert [(row.seq, row.gap_rows) for row in rows] == [(4, 4), *((seq, None) for seq in range(5, 11))]


def test_a_lent_snapshot_that_ended_is_reported(with_source: SparkSession, postgres_store: PostgresUnderTest) -> None:
    with consistent_cut(postgres_store.url) as cut:
        pass
    with pytest.raises(PySparkException, match=r"TP-8002.*snapshot"):
        with_source.read.format("twophase").options(**cut).option("table", "message").load().count()
