"""History and attempts reach the lake complete and once.

Each run continues from the end of the last one.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.spark.lake.archiving import DAY_MS, ROWS_PER_TASK, Archive, InProcess, StoppedClock, fail_early
from tests.spark.source.stores import (
    BORN_MS,
    PostgresUnderTest,
    SqliteUnderTest,
    StoreUnderTest,
    add_history,
    finish,
    gid_of,
    history_row,
    remove,
)
from twophase.core.errors import ArchiveRefused, CannotRead, HistoryGap, LakeDamaged
from twophase.core.message import decode
from twophase_spark.lake import marks
from twophase_spark.lake.copying import Task, copy
from twophase_spark.lake.spans import spans_between
from twophase_spark.lake.tables import Extent
from twophase_spark.lake.workers import here
from twophase_spark.source.options.looking import location_of, looked_into
from twophase_spark.source.options.read_options import parse
from twophase_spark.source.schema.sql import select
from twophase_spark.source.schema.tables import Kind

pytestmark = pytest.mark.spark


def released_ms(store: StoreUnderTest) -> int | None:
    """Return the time up to which the coordinator's cleaning may delete."""
    import psycopg

    query = "select value from store_meta where name = 'archived_until_ms'"
    if isinstance(store, SqliteUnderTest):
        with closing(sqlite3.connect(store.path)) as connection:
            row = connection.execute(query).fetchone()
    else:
        assert isinstance(store, PostgresUnderTest)
        with psycopg.connect(store.dsn) as connection:
            row = connection.execute(query).fetchone()
    return None if row is None else int(row[0])


def test_every_row_is_in_the_lake_with_all_that_the_store_has(store: StoreUnderTest, archive: Archive) -> None:
    finish(store, 1, 1, 25)
    finish(store, 2, 1, 3)
    fail_early(store, ["n1-0000001", "n1-0000002"])

    done = archive.run(store)

    assert (done.history, done.attempts, done.missing, done.through) == (28, 2, 0, {1: 25, 2: 3})
    assert archive.places() == [*((1, seq) for seq in range(1, 26)), *((2, seq) for seq in range(1, 4))]
    row = archive.rows()[6]
    assert (row["gid"], row["state"], row["finished_ms"]) == (gid_of(1, 7), "succeeded", BORN_MS + 7 + 20)
    assert row["branches"][0]["url"] == "http://b/in"
    assert decode(row["body"]).branches[0].payload == b'{"amount":30}'
    assert [row["gid"] for row in archive.rows("attempt")] == ["n1-0000001", "n1-0000002"]
    assert released_ms(store) == done.until_ms


def test_attempts_of_an_outage_are_many_files_and_each_is_in_one(store: StoreUnderTest, archive: Archive) -> None:
    finish(store, 1, 1, 1)
    gids = [f"o-{number:02}" for number in range(35)]
    fail_early(store, gids[:17], apart_ms=700)
    fail_early(store, gids[17:], apart_ms=-800)  # ids in the order of times are usual, and not certain
    asked: list[int] = []

    class Workers(InProcess):
        def __call__(self, rows: int) -> InProcess:
            asked.append(rows)
            return self

    done = archive.run(store, workers=Workers())

    assert (asked, done.attempts) == ([36], 35)
    assert sorted(row["gid"] for row in archive.rows("attempt")) == gids
    files = archive.files("attempt")
    assert len(files) >= 4
    assert max(file.rows for file in files) <= ROWS_PER_TASK
    assert all(before.last_ms < after.first_ms for before, after in itertools.pairwise(files))


def test_no_task_reads_all_attempts_of_a_sqlite_store(sqlite_store: SqliteUnderTest) -> None:
    """No index by time exists.

    A span's rows are found by the ids between which they lie.
    """
    fail_early(sqlite_store, [f"o-{number:02}" for number in range(35)], apart_ms=700)
    wanted = parse({"url": sqlite_store.url, "table": "attempt"})
    with looked_into(wanted) as (database, _):
        spans = spans_between(database, "attempts", 0, BORN_MS, ROWS_PER_TASK)
    tasks = [Task(wanted, "", 0, one.first_ms, one.until_ms, "", whole=False, ids=one.ids) for one in spans]

    assert [one.ids for one in spans] == [(1, 10), (11, 20), (21, 30), (31, 35)]
    with closing(sqlite3.connect(sqlite_store.path)) as connection:
        for task in tasks:
            statement = select(["gid"], "attempt", task.range.conditions)
            [plan] = connection.execute(f"explain query plan {statement}").fetchall()
            assert plan[-1] == "SEARCH attempt USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"


def test_the_next_run_brings_what_is_new(store: StoreUnderTest, archive: Archive) -> None:
    finish(store, 1, 1, 12)
    archive.run(store)
    finish(store, 1, 13, 15)
    finish(store, 3, 1, 2)

    second = archive.run(store)
    third = archive.run(store)

    assert (second.history, third.history) == (5, 0)
    assert archive.places() == [*((1, seq) for seq in range(1, 16)), (3, 1), (3, 2)]
    assert third.through == {1: 15, 3: 2}


def test_rows_lie_in_the_folder_of_the_day_they_finished(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    for seq, days in ((1, 0), (2, 0), (3, 1)):
        node, number, gid, state, born, decided, finished, *rest = history_row(1, seq)
        add_history(sqlite_store, (node, number, gid, state, born, decided, finished - days * DAY_MS, *rest))

    archive.run(sqlite_store)

    tasks = {file.path.partition("/")[0]: (file.task, file.rows) for file in archive.files("history")}
    assert tasks == {
        "dt=2027-01-14": ("n1-000000000001-000000000003", 1),
        "dt=2027-01-15": ("n1-000000000001-000000000003", 2),
    }
    assert {(row["seq"], str(row["dt"])) for row in archive.rows()} == {
        (1, "2027-01-15"),
        (2, "2027-01-15"),
        (3, "2027-01-14"),
    }
    for path in archive.folder.glob("history/dt=*/*"):
        group = pq.read_metadata(path).row_group(0)
        assert {group.column(place).compression for place in range(group.num_columns)} == {"ZSTD"}


def test_rows_gone_before_the_first_run_are_counted_and_not_held_against_it(
    sqlite_store: SqliteUnderTest, archive: Archive
) -> None:
    finish(sqlite_store, 1, 1, 20)
    remove(sqlite_store, 1, 1, 4)
    remove(sqlite_store, 1, 9, 9)

    done = archive.run(sqlite_store)

    assert (done.history, done.missing) == (15, 1)
    assert archive.verify().faults == ()


def test_a_node_without_rows_at_the_first_run_is_followed_from_there(
    sqlite_store: SqliteUnderTest, archive: Archive
) -> None:
    finish(sqlite_store, 1, 1, 5)
    finish(sqlite_store, 2, 1, 3)
    remove(sqlite_store, 2, 1, 3)
    first = archive.run(sqlite_store)
    finish(sqlite_store, 2, 4, 6)
    finish(sqlite_store, 3, 1, 0)  # it has finished nothing yet
    second = archive.run(sqlite_store)
    version = DeltaTable(archive.folder / "history").version()
    archive.run(sqlite_store)

    assert DeltaTable(archive.folder / "history").version() == version, "a run without news adds no commit"
    assert (first.through, second.through) == ({1: 5, 2: 3}, {1: 5, 2: 6})
    assert (second.history, second.missing) == (3, 0)


def test_rows_removed_behind_the_archives_back_are_reported(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 5)
    archive.run(sqlite_store)
    finish(sqlite_store, 1, 6, 9)
    remove(sqlite_store, 1, 7, 8)

    with pytest.raises(
        HistoryGap, match="2 rows of history were removed before they were archived: node 1, seq 7 to 8"
    ):
        archive.run(sqlite_store)
    assert archive.extent.through == {1: 5}

    assert archive.run(sqlite_store, accept_gaps=True).missing == 2
    assert archive.places() == [(1, seq) for seq in (1, 2, 3, 4, 5, 6, 9)]


def test_a_copy_that_differs_is_not_taken(
    sqlite_store: SqliteUnderTest, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(sqlite_store, 1, 1, 5)

    def flipped(store: StoreUnderTest) -> None:
        store.many("update history set attempts = attempts + 1 where seq = ?", [(3,)])

    with pytest.raises(LakeDamaged, match="differs from the store: 5 rows"):
        archive.run(sqlite_store, reached=lambda point: flipped(sqlite_store) if point == "copied" else None)

    assert archive.extent == Extent()
    assert archive.places() == []
    assert released_ms(sqlite_store) == 0
    assert archive.run(sqlite_store).history == 5


def test_only_one_attempt_of_a_task_counts(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    """Spark may run a task twice, after a failure or to be quicker.

    The other attempt may still write.
    """
    finish(sqlite_store, 1, 1, 25)

    def spread(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        done = here(function, items)
        if function is copy:  # the same stretches under the same names, cut off after their first row
            here(function, [msgspec.structs.replace(item, last=item.first, whole=False) for item in items])
        return done

    archive.run(sqlite_store, spread)

    assert archive.places() == [(1, seq) for seq in range(1, 26)]
    assert archive.verify().faults == ()


def test_a_restored_store_is_refused(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 9)
    archive.run(sqlite_store)
    remove(sqlite_store, 1, 6, 9)
    sqlite_store.many("update node set seq = ?", [(5,)])

    with pytest.raises(ArchiveRefused, match="restored from a backup"):
        archive.run(sqlite_store)


def test_a_restored_store_is_refused_when_it_has_grown_beyond_the_lake(store: StoreUnderTest, archive: Archive) -> None:
    """Its new rows under old numbers are not in the lake.

    They must not be released as if they were.
    """
    finish(store, 1, 1, 9)
    archive.run(store)
    until_ms = released_ms(store)
    remove(store, 1, 6, 9)
    for seq in range(6, 13):
        add_history(store, (1, seq, f"after-{seq}", *history_row(1, seq)[3:]))

    with pytest.raises(ArchiveRefused, match="another message or act than the lake under node 1, seq 9"):
        archive.run(store, clock=StoppedClock(BORN_MS + 3 * DAY_MS))
    assert released_ms(store) == until_ms


def test_a_store_goes_into_one_lake(sqlite_store: SqliteUnderTest, archive: Archive, tmp_path: Path) -> None:
    finish(sqlite_store, 1, 1, 3)
    archive.run(sqlite_store)
    other = Archive(tmp_path / "other")

    with pytest.raises(ArchiveRefused, match="archived into another lake"):
        other.run(sqlite_store)

    marks.detach(location_of(parse({"url": sqlite_store.url, "table": "history"})))
    assert released_ms(sqlite_store) is None
    assert other.run(sqlite_store).history == 3


def test_an_empty_store_is_archived_too(store: StoreUnderTest, archive: Archive) -> None:
    assert archive.run(store).history == 0
    assert archive.verify().faults == ()


def test_a_store_that_is_not_there(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(CannotRead):
        archive.run(_Nowhere(f"sqlite:///{tmp_path / 'none.db'}"))
    assert not (tmp_path / "none.db").exists()
    assert not archive.folder.exists(), "an empty lake would verify as whole"


def test_a_lake_that_cannot_be_written_is_reported(sqlite_store: SqliteUnderTest, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArchiveRefused, match="cannot be written: Not a directory"):
        Archive(tmp_path / "file" / "lake").run(sqlite_store)


class _Nowhere:
    def __init__(self, url: str) -> None:
        self.url = url

    def many(self, sql: str, rows: object) -> None:
        raise AssertionError("nobody writes there")


def test_facts_see_what_a_sum_would_not() -> None:
    """The facts show a row that stands twice in place of another.

    They also show two rows whose values were exchanged.
    """
    import pyarrow as pa

    from twophase_spark.lake.facts import facts_of
    from twophase_spark.lake.schemas import target_of

    def facts(*gids: str) -> object:
        schema = target_of(Kind.ATTEMPT)
        rows = [
            {
                **dict.fromkeys(schema.names, ""),
                **dict.fromkeys(("id", "at_ms", "status", "latency_ms"), 1),
                "gid": gid,
            }
            for gid in gids
        ]
        return facts_of(Kind.ATTEMPT, [pa.RecordBatch.from_pylist(rows, schema)]).digest

    assert facts("a", "b") == facts("b", "a")
    assert len({facts("a", "b"), facts("a", "a"), facts("b", "b"), facts("ab", ""), facts("a")}) == 5
