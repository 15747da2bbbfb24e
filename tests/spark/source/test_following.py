"""The stream's reader, without Spark.

The tests cover offsets, limits, the frozen end, new nodes and gaps.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.spark.source import reads
from tests.spark.source.stores import BORN_MS, StoreUnderTest, finish, reach, remove
from twophase.core.errors import CannotRead, ConfigurationError, HistoryGap
from twophase_spark.source.stream import Offset

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def _always_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase_spark.source.stream.LOOKS_SECONDS_MIN", 0.0)


def test_where_it_begins(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 9)
    finish(store, 2, 1, 3)
    remove(store, 1, 1, 4)
    remove(store, 2, 1, 3)

    def begins(start: str) -> Offset:
        return reads.stream(url=store.url, start=start).initialOffset()

    assert begins("earliest") == {"1": 4, "2": 3}
    assert begins("latest") == {"1": 9, "2": 3}
    assert begins("beginning") == {"1": 0, "2": 0}
    assert begins('{"1": 6}') == {"1": 6, "2": 0}
    with pytest.raises(ConfigurationError, match="do not exist yet"):
        begins('{"1": 10}')


def test_batches_go_on_where_the_last_one_ended(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 5)
    reader = reads.stream(url=store.url, columns="node,seq")

    first = reader.latestOffset(reader.initialOffset(), ALL)
    finish(store, 1, 6, 7)
    second = reader.latestOffset(first, ALL)

    assert (first, second) == ({"1": 5, "behind": {"1": 0}}, {"1": 7, "behind": {"1": 5}})
    assert [row["seq"] for row in reads.between(reader, first, second)] == [6, 7]
    assert reader.latestOffset(second, ALL) == second


def test_the_limit_is_shared_by_the_nodes(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 2)
    finish(store, 2, 1, 500)
    reader = reads.stream(url=store.url, maxRowsPerBatch=100)

    assert reader.getDefaultReadLimit() == ReadMaxRows(100)
    end = reader.latestOffset({"1": 0, "2": 0}, ReadMaxRows(100))
    assert end == {"1": 2, "2": 98, "behind": {"1": 0, "2": 0}}


def test_available_now_ends_where_it_was_frozen(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 5)
    reader = reads.stream(url=store.url)

    reader.prepareForTriggerAvailableNow()
    finish(store, 1, 6, 9)
    finish(store, 2, 1, 1)

    end = reader.latestOffset({"1": 0}, ReadMaxRows(3))
    assert end["1"] == 3
    end = reader.latestOffset(end, ReadMaxRows(3))
    assert end == reader.latestOffset(end, ReadMaxRows(3)) == {"1": 5, "2": 0, "behind": {"1": 3, "2": 0}}


def test_the_latest_row_is_not_behind_what_was_frozen(store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase_spark.source.stream.LOOKS_SECONDS_MIN", 3_600.0)
    finish(store, 1, 1, 5)
    reader = reads.stream(url=store.url, start="latest")

    reader.prepareForTriggerAvailableNow()
    finish(store, 1, 6, 9)
    start = reader.initialOffset()

    assert start == reader.latestOffset(start, ALL) == {"1": 9}


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_the_first_batch_begins_where_it_was_planned(store: StoreUnderTest, start: str) -> None:
    finish(store, 1, 1, 5)
    reader = reads.stream(url=store.url, start=start, columns="seq", onGap="report")
    begun = reader.initialOffset()
    finish(store, 1, 6, 9)
    end = reader.latestOffset(begun, ALL)

    remove(store, 1, 1, 7)  # while no driver reads: it was killed before the batch was committed
    finish(store, 1, 10, 12)
    again = reads.stream(url=store.url, start=start, columns="seq", onGap="report")

    gap_rows = {"earliest": 7, "latest": 2}[start]
    rows = reads.between(again, again.initialOffset(), end)
    assert [(row["seq"], row["gap_rows"]) for row in rows] == [(8, None), (9, None), (7, gap_rows)]
    assert reads.between(again, end, again.latestOffset(end, ALL))[0]["seq"] == 10


def test_a_node_that_appears_is_read_from_its_first_row(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 2)
    reader = reads.stream(url=store.url, columns="node,seq", start="latest")
    start = reader.initialOffset()

    finish(store, 2, 1, 2)
    end = reader.latestOffset(start, ALL)

    assert [(row["node"], row["seq"]) for row in reads.between(reader, start, end)] == [(2, 1), (2, 2)]


def test_rows_that_are_gone_end_the_stream(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 9)
    remove(store, 1, 2, 3)
    remove(store, 1, 7, 7)
    reader = reads.stream(url=store.url, start="beginning")

    with pytest.raises(HistoryGap) as raised:
        reads.between(reader, {"1": 0}, {"1": 9})
    assert "3 rows" in raised.value.message
    assert "node 1, seq 2 to 3 and 1 more places" in raised.value.message
    assert "onGap=report" in raised.value.remedy


def test_rows_that_are_gone_are_reported_in_rows(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 9)
    remove(store, 1, 2, 3)
    remove(store, 1, 9, 9)
    reader = reads.stream(url=store.url, start="beginning", onGap="report", columns="gid", states="failed")

    assert reads.between(reader, {"1": 0}, {"1": 9}) == [
        {"gid": None, "node": 1, "seq": 3, "gap_rows": 2},
        {"gid": None, "node": 1, "seq": 9, "gap_rows": 1},
    ]


def test_a_whole_stretch_may_be_gone(store: StoreUnderTest) -> None:
    reach(store, 1, 4)
    reader = reads.stream(url=store.url, onGap="report", columns="gid")

    assert [row["gap_rows"] for row in reads.between(reader, {"1": 0}, {"1": 4})] == [4]


def test_filters_make_no_gap(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 9)
    reader = reads.stream(url=store.url, columns="seq", gidPrefix="n1-000000", states="failed")

    assert reads.between(reader, {"1": 0}, {"1": 9}) == []


def test_a_store_that_went_back_is_refused(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 3)

    with pytest.raises(CannotRead, match="restored from a backup"):
        reads.stream(url=store.url).latestOffset({"1": 5}, ALL)
    with pytest.raises(CannotRead, match="restored from a backup"):
        reads.stream(url=store.url).latestOffset({"1": 3, "7": 1}, ALL)


@pytest.mark.parametrize("on_gap", ["fail", "report"])
def test_a_store_that_went_back_after_a_batch_was_planned_is_no_gap(store: StoreUnderTest, on_gap: str) -> None:
    """A standby that was behind took over.

    It gives the numbers to other messages, which a report of a gap would skip.
    """
    finish(store, 1, 1, 9)
    reader = reads.stream(url=store.url, onGap=on_gap)
    end = reader.latestOffset({"1": 0}, ALL)
    remove(store, 1, 6, 9)
    reach(store, 1, 5)

    with pytest.raises(CannotRead, match="a standby that was behind"):
        reads.between(reader, {"1": 0}, end)


def test_a_batch_is_cut_into_tasks_that_cover_it_once(store: StoreUnderTest) -> None:
    reader = reads.stream(url=store.url, partitions=3)

    parts: list[Any] = list(reader.partitions({"1": 10}, {"1": 100_010, "2": 5}))
    stretches = [part.stretch for part in parts]

    covered = [(one.node, seq) for one in stretches for seq in range(one.first, one.last + 1)]
    assert covered == [*((1, seq) for seq in range(11, 100_011)), *((2, seq) for seq in range(1, 6))]
    assert len(stretches) == 4


def test_a_report_has_the_lag_in_rows_and_time(store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The age is that of the oldest row that no batch has taken."""
    monkeypatch.setattr("twophase_spark.source.stream._now_ms", lambda: BORN_MS + 60_000)
    finish(store, 1, 1, 5)
    finish(store, 2, 1, 2)
    reader = reads.stream(url=store.url)

    before = reader.reportLatestOffset()
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(4))
    behind = reader.reportLatestOffset()
    last = reader.latestOffset(first, ALL)
    done = reader.reportLatestOffset()

    assert before == {"1": 5, "2": 2}
    assert first == {"1": 2, "2": 2, "behind": {"1": 0, "2": 0}}
    assert behind == {"1": 5, "2": 2, "lag": {"rows": 3, "ms": 60_000 - 3 - 20}}
    assert done == {"1": 5, "2": 2, "lag": {"rows": 0, "ms": 0}}
    assert reader.latestOffset(last, ALL) == last
