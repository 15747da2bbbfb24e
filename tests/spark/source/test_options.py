"""The options: their meaning, and what is refused before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.secret_files import secret_in
from twophase.core.errors import ConfigurationError
from twophase_spark.references import looked_up
from twophase_spark.sink.database import engine_of
from twophase_spark.source.options.address import locate, require_no_secret
from twophase_spark.source.options.read_options import parse

URL = "sqlite:///tp.db"


def test_times_are_iso_or_milliseconds() -> None:
    wanted = parse(
        {"url": URL, "table": "history", "createdAfter": "2027-01-15T08:00:00Z", "createdBefore": "1800000000001"}
    )

    assert (wanted.created_after_ms, wanted.created_before_ms) == (1_800_000_000_000, 1_800_000_000_001)


def test_names_are_taken_in_any_case() -> None:
    assert parse({"URL": URL, "Table": "HISTORY", "gidprefix": "tp"}).gid_prefix == "tp"


def test_a_stream_is_of_history_by_default() -> None:
    assert parse({"url": URL}, streaming=True).kind == "history"


@pytest.mark.parametrize("table", ["message", "history", "journal", "attempt", "barrier"])
def test_a_cut_in_the_future_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    monkeypatch.setattr("twophase_spark.source.options.read_options.now_ms", lambda: 1_800_000_000_000)
    options = {"url": URL, "table": table}

    assert parse({**options, "asOf": "2027-01-15T08:00:00Z"}).as_of_ms == 1_800_000_000_000
    for moment in ("1800000000001", "2027-01-15T08:00:00.001+00:00"):
        with pytest.raises(ConfigurationError, match="asOf is in the future") as raised:
            parse({**options, "asOf": moment})
        assert moment in raised.value.message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "history"}, "url is missing"),
        ({"url": URL}, "table is one of message, history"),
        ({"url": URL, "table": "journl"}, "table is one of"),
        ({"url": URL, "table": "history", "stats": "failed"}, "'stats' of this source. Did you mean states"),
        ({"url": URL, "table": "history", "states": "done"}, "states is one of prepared"),
        ({"url": URL, "table": "history", "asOf": "yesterday"}, "asOf is a time"),
        ({"url": URL, "table": "journal", "asOf": '{"1": 2}'}, "is for table history"),
        ({"url": URL, "table": "history", "asOf": '{"1": "x"}'}, "JSON, node to seq"),
        ({"url": URL, "table": "history", "partitions": "0"}, "from 1 to 1024"),
        ({"url": URL, "table": "history", "maxRowsPerBatch": "5"}, "maxRowsPerBatch is not one of read"),
        (
            {"url": URL, "table": "history", "tableName": "x"},
            "tableName is not one of read of table history; it is for barrier, ledger",
        ),
        ({"url": URL, "table": "attempt", "states": "failed"}, "states is not one of read of table attempt"),
        ({"url": URL, "table": "ledger"}, "tableName is missing"),
        ({"url": URL, "table": "ledger", "tableName": "x; drop"}, "not a table or column name"),
        ({"url": URL, "table": "ledger", "tableName": "x", "asOf": "1"}, "asOf is not one of read of table ledger"),
        (
            {"url": URL, "table": "barrier", "gidColumn": "x"},
            "gidColumn is not one of read of table barrier; it is for ledger.",
        ),
        ({"url": URL, "table": "history", "snapshot": "1'; drop"}, "pg_export_snapshot"),
    ],
)
def test_a_wrong_option_is_refused_with_what_it_may_be(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse(options)
    assert said in raised.value.message


def test_only_what_never_changes_can_be_followed() -> None:
    with pytest.raises(ConfigurationError, match="Only tables history and queue_entry"):
        parse({"url": URL, "table": "message"}, streaming=True)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@db/bank",
        "postgresql://me:s3%zzcret@db/bank",
        "postgresql://me:s3c/ret@db/bank",
        "postgresql://me:s3c@ret@db/bank",
        "postgresql://me:s3cret@db:port/bank",
        "postgresql://db/bank?user=me&password=s3cret",
        "postgresql://db/bank?sslpassword=s3cret",
        "mysql://me:@db/bank?passwd=s3cret",
    ],
)
def test_a_password_in_the_option_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        require_no_secret(url)
    for piece in ("s3", "cret"):
        assert piece not in str(raised.value).replace("secrets", "")
    assert "env:" in raised.value.message


def test_a_url_stands_in_the_environment_or_in_a_file(tmp_path: Path) -> None:
    held = secret_in(tmp_path / "url", "postgresql+psycopg://me:s3cret@db/bank\n")

    for reference in ("env:STORE", held):
        location = locate(reference, "source", {"STORE": "postgresql+psycopg://me:s3cret@db/bank"})
        assert location.url == "postgresql://me:s3cret@db/bank"
        assert "s3cret" not in location.shown


@pytest.mark.parametrize(
    ("held", "said"), [("", "does not have"), ("no url s3cret", "holds no URL"), ("redis://x", "must begin with")]
)
def test_a_reference_to_nothing_useful_is_refused(held: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        locate("env:STORE", "source", {"STORE": held})
    assert said in raised.value.message
    assert "s3cret" not in str(raised.value)


def test_an_error_about_a_url_names_the_option_that_has_it() -> None:
    with pytest.raises(ConfigurationError, match=r"^TP-7000: Option url: the URL must begin with"):
        locate("store.db", "source")
    with pytest.raises(ConfigurationError, match=r"^TP-7000: Option url: env:STORE: a SQLite URL is"):
        locate("env:STORE", "source", {"STORE": "sqlite:store.db"})
    with pytest.raises(ConfigurationError, match=r"^TP-7000: Option ledger: the URL must begin with"):
        engine_of("ledger.db")


def test_a_file_that_every_user_may_read_is_refused(tmp_path: Path) -> None:
    reference = secret_in(tmp_path / "url", "postgresql://me:s3cret@db/bank")
    (tmp_path / "url").chmod(0o644)
    for option, look in (
        ("url", lambda: locate(reference, "source")),
        ("ledger", lambda: engine_of(reference)),
        ("authorization", lambda: looked_up("authorization", reference)),
    ):
        with pytest.raises(ConfigurationError, match=f"Option {option}: .*every user of this machine.*0644") as raised:
            look()
        assert raised.value.remedy == f"chmod 600 {tmp_path / 'url'}"
        assert "s3cret" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        locate(f"file:{tmp_path / 'none'}", "source")
