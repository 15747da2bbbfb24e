"""Views over lake and store: each row once, wherever it lies."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.spark.lake.archiving import Archive, fail_early
from tests.spark.source.stores import SqliteUnderTest, StoreUnderTest, finish, gid_of, live, remove
from twophase.core.errors import ConfigurationError
from twophase_spark.cli.commands import app
from twophase_spark.lake.query import Answer, Question, as_csv, as_json, ask
from twophase_spark.lake.workers import on

COMMAND = [sys.executable, "-m", "twophase", "spark", "query", "--memory=512", "--cores=1"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def rows(
    spark: SparkSession, sql: str, archive: Archive | None, store: StoreUnderTest | None, *, payloads: bool = False
) -> list[tuple[object, ...]]:
    lake = None if archive is None else str(archive.folder)
    url = None if store is None else store.url
    answer = ask(spark, Question(sql, lake, url, 1000, payloads=payloads), lambda _: None)
    assert not answer.more
    return answer.rows


def test_lake_and_store_are_one_history(spark: SparkSession, store: StoreUnderTest, archive: Archive) -> None:
    finish(store, 1, 1, 25)
    finish(store, 2, 1, 3)
    fail_early(store, [gid_of(1, 1), gid_of(1, 2)])
    archive.run(store, on(spark))
    remove(store, 1, 1, 9)  # as retention does
    finish(store, 1, 26, 27)
    live(store, ["x-1"])

    ask_once = "select node, seq, gid, dt from history order by node, seq"
    found = rows(spark, ask_once, archive, store)

    assert [row[:3] for row in found] == [
        *((1, seq, gid_of(1, seq)) for seq in range(1, 28)),
        *((2, seq, gid_of(2, seq)) for seq in range(1, 4)),
    ]
    assert {str(row[3]) for row in found} == {"2027-01-15"}
    joined = """select m.gid, h.n, a.n from message m, (select count(*) n from history) h,
                (select count(*) n from attempt) a"""
    assert rows(spark, joined, archive, store) == [("x-1", 30, 2)]


def test_lake_alone_store_alone_and_payloads_of_both(
    spark: SparkSession, sqlite_store: SqliteUnderTest, archive: Archive
) -> None:
    finish(sqlite_store, 1, 1, 5)
    archive.run(sqlite_store)
    finish(sqlite_store, 1, 6, 7)

    assert rows(spark, "select count(*) from history", archive, None) == [(5,)]
    assert rows(spark, "select count(*) from history", None, sqlite_store) == [(7,)]
    paid = "select cast(payloads[0] as string) p, count(*) from history group by 1"
    assert rows(spark, paid, archive, sqlite_store, payloads=True) == [('{"amount":30}', 7)]


def test_a_lake_whose_archive_was_cut_off_is_whole(
    spark: SparkSession, sqlite_store: SqliteUnderTest, archive: Archive
) -> None:
    finish(sqlite_store, 1, 1, 5)

    def cut_off(point: str) -> None:
        if point == "committed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive.run(sqlite_store, reached=cut_off)
    remove(sqlite_store, 1, 1, 5)

    assert archive.extent.until_ms == 0
    assert rows(spark, "select count(*) from history", archive, sqlite_store) == [(5,)]


def test_a_query_that_makes_no_sense_is_reported_in_one_line(
    spark: SparkSession, sqlite_store: SqliteUnderTest, archive: Archive
) -> None:
    finish(sqlite_store, 1, 1, 3)
    archive.run(sqlite_store)
    for sql, said in (
        ("select colour from history", r"does not understand the query: .*COLUMN.*colour"),
        ("select 1 / 0", r"cannot compute the query: \[DIVIDE_BY_ZERO\] .*SQLSTATE: 22012$"),
        (
            "select seq / (seq - seq)\n\nfrom history",
            r"cannot compute the query: \[DIVIDE_BY_ZERO\] .*SQLSTATE: 22012$",
        ),
        (
            "select cast(gid as int) from history",
            r"cannot compute the query: \[CAST_INVALID_INPUT\] .*SQLSTATE: 22018$",
        ),
    ):
        with pytest.raises(ConfigurationError) as caught:
            rows(spark, sql, archive, None)
        assert re.search(said, caught.value.message)
        assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("with a as (select gid from history) select * from a union all select * from a", 6),
        ("from history select gid, uuid() where seq > 1 and rand() < 2", 2),
        ("table history", 3),
        ("select gid from history where seq in (select max(seq) from history)", 1),
        ("describe history", 16),
        ("show columns in history", 16),
        ("explain select gid from history", 1),
    ],
)
def test_every_form_of_a_query_is_run(spark: SparkSession, sqlite_store: SqliteUnderTest, sql: str, count: int) -> None:
    finish(sqlite_store, 1, 1, 3)

    assert len(rows(spark, sql, None, sqlite_store)) == count


def test_more_rows_than_the_limit_are_reported(
    spark: SparkSession, sqlite_store: SqliteUnderTest, archive: Archive
) -> None:
    finish(sqlite_store, 1, 1, 3)
    archive.run(sqlite_store)
    answer = ask(spark, Question("select gid from history", str(archive.folder), None, 2), lambda _: None)
    assert (len(answer.rows), answer.more) == (2, True)


def test_the_command_writes_json_and_is_quiet(sqlite_store: SqliteUnderTest, archive: Archive) -> None:
    finish(sqlite_store, 1, 1, 3)
    archive.run(sqlite_store)

    done = subprocess.run(
        [*COMMAND, "select gid from history where seq = 2", f"--lake={archive.folder}", "--output=json"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, json.loads(done.stdout)) == (0, [{"gid": gid_of(1, 2)}]), done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("twophase: ")] == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["query", "select 1"], "Give --lake, --store or both"),
        (["query", "select 1", "--lake=/nowhere"], "is not a lake"),
        (["query", "select 1", "--store="], "--store is missing"),
        (["archive", "--store=sqlite:///x.db"], "--lake is missing"),
        (["archive", "--lake=x"], "--store is missing"),
        (["archive", "--lake=/nowhere", "--verify"], "is not a lake"),
    ],
)
def test_what_cannot_work_is_reported_before_spark_starts(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert text in result.output


def test_the_archive_command_from_first_run_to_damage(sqlite_store: SqliteUnderTest, tmp_path: Path) -> None:
    finish(sqlite_store, 1, 1, 3)
    lake = tmp_path / "lake"

    done = CliRunner().invoke(app, ["archive", f"--store={sqlite_store.url}", f"--lake={lake}"])
    whole = CliRunner().invoke(app, ["archive", f"--lake={lake}", "--verify"])
    [file] = lake.glob("history/dt=*/*")
    file.unlink()
    damaged = CliRunner().invoke(app, ["archive", f"--lake={lake}", "--verify"])
    detached = CliRunner().invoke(app, ["archive", f"--store={sqlite_store.url}", "--detach"])

    assert (done.exit_code, whole.exit_code, damaged.exit_code, detached.exit_code) == (0, 0, 1, 0)
    assert "archived 3 rows of history, 0 attempts, 0 entries of queues and 0 rows of the audit log" in done.output
    assert "WHOLE" in whole.output
    assert "it is gone" in damaged.output


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    store = "postgresql://me:s3cret%2Fword@127.0.0.1:1/none"
    for arguments in (
        ["archive", f"--store={store}", f"--lake={tmp_path}"],
        ["archive", f"--store={store}", "--detach"],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert "127.0.0.1" in result.output
        assert "s3cret" not in result.output


def test_json_refuses_two_columns_of_one_name() -> None:
    answer = Answer(["gid", "gid"], [("a", "b")], more=False)
    assert as_csv(answer) == "gid,gid\na,b\n"
    with pytest.raises(ConfigurationError, match="Two columns"):
        as_json(answer)
