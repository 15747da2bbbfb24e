"""Barrier and ledger tables of the business databases, of three engines."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine

from tests.servers.database import Database
from tests.spark.source import reads
from tests.support.secret_files import secret_in
from twophase.barrier.installing import install
from twophase.core.errors import CannotRead, ConfigurationError

MANY = 300
Bank = tuple[str, Engine]


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ]
)
def bank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bank]:
    """A business database with a barrier: the reference to its URL, and an engine."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'bank.db'}"
    else:
        server: Database = request.getfixturevalue(f"{request.param}_database")
        url = server.sqlalchemy_url("psycopg" if request.param == "postgres" else "pymysql")
    install(url)
    engine = create_engine(url)
    yield secret_in(tmp_path / "bank-url", url), engine
    engine.dispose()


def execute(engine: Engine, sql: str, rows: list[dict[str, object]] | None = None) -> None:
    with engine.begin() as connection:
        connection.execute(text(sql), rows or {})


def test_a_barrier(bank: Bank) -> None:
    url, engine = bank
    began = dt.datetime.now(dt.UTC).timestamp() * 1000
    execute(
        engine,
        "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason, prepared_at) "
        "values ('msg', :gid, :branch, :op, '01', :op, :prepared)",
        [
            {"gid": "g", "branch": "00", "op": "msg", "prepared": 99},
            {"gid": "g", "branch": "01", "op": "action", "prepared": None},
        ],
    )

    rows = reads.batch(url=url, table="barrier")
    ended = dt.datetime.now(dt.UTC).timestamp() * 1000

    assert [(row["trans_type"], row["gid"], row["branch_id"], row["op"], row["reason"]) for row in rows] == [
        ("msg", "g", "00", "msg", "msg"),
        ("msg", "g", "01", "action", "action"),
    ]
    assert [row["prepared_ms"] for row in rows] == [99, None]
    assert all(began - 5_000 < row["created_ms"] < ended + 5_000 for row in rows)
    assert reads.batch(url=url, table="barrier", createdBefore=1) == []


@pytest.mark.parametrize("driver", ["python", "auto"])
def test_filters_of_a_barrier(bank: Bank, driver: str) -> None:
    """Times are compared in the form in which they are read, as MySQL's have no zone."""
    url, engine = bank
    zone = "" if engine.name == "mysql" else "+00:00"
    execute(
        engine,
        "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason, create_time) "
        "values ('msg', :gid, '00', 'msg', '01', 'msg', :at)",
        [{"gid": gid, "at": f"2024-03-01 12:00:0{n}{zone}"} for n, gid in enumerate(["n1-a", "N1-b", "n2-c"])],
    )
    options = {"url": url, "table": "barrier", "driver": driver}
    a, b, c = (row["created_ms"] for row in reads.batch(**options, columns="created_ms"))
    assert (b - a, c - b) == (1_000, 1_000)

    def gids(**filters: object) -> list[str]:
        return [row["gid"] for row in reads.batch(**options, columns="gid", **filters)]

    assert gids(createdAfter=b) == ["N1-b", "n2-c"]
    assert gids(createdBefore=b) == ["n1-a"]
    assert gids(asOf=b) == ["n1-a", "N1-b"]
    assert gids(gidPrefix="n1-") == ["n1-a"]
    assert gids(gidPrefix="n", createdAfter=a + 1, asOf=c) == ["n2-c"]


def test_a_barrier_made_by_dtm(tmp_path: Path) -> None:
    file = tmp_path / "dtm.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("create table barrier (trans_type text, gid text, branch_id text, op text, "
                           "barrier_id text, reason text)")  # fmt: skip
        connection.execute("insert into barrier values ('msg', 'g', '00', 'msg', '01', 'msg')")

    [row] = reads.batch(url=f"sqlite:///{file}", table="barrier")

    assert (row["gid"], row["id"], row["prepared_ms"], row["created_ms"]) == ("g", None, None, None)


def test_a_ledger_with_the_types_of_its_database(bank: Bank) -> None:
    url, engine = bank
    execute(
        engine, "create table booking (tx varchar(64), step varchar(9), amount decimal(9, 2), count bigint, at date)"
    )
    execute(
        engine,
        "insert into booking values (:tx, :step, :amount, 3, '2026-11-21')",
        [
            {"tx": "g", "step": "01", "amount": 30.25},
            {"tx": "h", "step": None, "amount": None},
            {"tx": None, "step": "", "amount": 1},
        ],
    )
    options = {"url": url, "table": "ledger", "tableName": "booking", "gidColumn": "tx", "branchColumn": "step"}

    rows = reads.batch(**options, columns="gid,branch_id,amount,count,at")

    assert [(row["gid"], row["branch_id"]) for row in rows] == [("g", "01"), ("h", None)]
    if engine.name == "sqlite":  # it has no exact numbers and no dates
        assert (rows[0]["amount"], rows[0]["count"], rows[0]["at"]) == ("30.25", 3, "2026-11-21")
    else:
        assert (rows[0]["amount"], rows[0]["count"], rows[0]["at"]) == (
            Decimal("30.25"),
            3,
            dt.date(2026, 11, 21),
        )
    assert rows[1]["amount"] is None
    assert reads.batch(**options, gidPrefix="h") == [{"gid": "h", "branch_id": None}]
    if engine.name == "sqlite":  # it keeps a fraction in a column of whole numbers
        execute(engine, "update booking set count = 3.5")
        with pytest.raises(CannotRead):
            reads.batch(**options, columns="count")


@pytest.mark.parametrize("driver", ["python", "auto"])
def test_a_ledgers_columns_are_read_as_they_were_named(bank: Bank, driver: str) -> None:
    """Names may be in any case, and may mean something else in SQL.

    One is also the name of a coordinator's column.
    """
    url, engine = bank
    user = '"user"' if engine.name == "postgresql" else "user"
    execute(
        engine,
        "create table ledger (gid varchar(40), branch_id varchar(9), amount bigint, note varchar(9), "
        f"{user} varchar(9), body varchar(9), protocol varchar(9))",
    )
    execute(engine, "insert into ledger values ('g', '01', 30, 'paid', 'me', 'none', 'by hand')")
    options = {"url": url, "table": "ledger", "tableName": "ledger", "driver": driver}

    assert reads.batch(**options, columns="gid,Amount,amount,NOTE,User,body,protocol") == [
        {"gid": "g", "Amount": 30, "amount": 30, "NOTE": "paid", "User": "me", "body": "none", "protocol": "by hand"}
    ]
    assert reads.batch(**options, columns="Amount", gidColumn="GID", gidPrefix="g") == [{"Amount": 30}]


def test_a_column_that_only_quotes_can_name_is_refused(postgres_database: Database, tmp_path: Path) -> None:
    url = postgres_database.sqlalchemy_url("psycopg")
    engine = create_engine(url)
    execute(engine, 'create table ledger (gid text, branch_id text, "Amount" bigint)')
    engine.dispose()
    reference = secret_in(tmp_path / "url", url)

    for driver in ("python", "auto"):
        with pytest.raises(CannotRead, match='column "amount" does not exist'):
            reads.batch(url=reference, table="ledger", tableName="ledger", columns="Amount", driver=driver)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("keyed", [True, False])
def test_a_large_ledger_is_cut_into_parts_that_hold_every_row_once(bank: Bank, keyed: bool) -> None:
    url, engine = bank
    execute(engine, "create table ledger (number bigint primary key, gid varchar(40), branch_id varchar(9))")
    execute(engine, "create index ledger_gid on ledger (gid)")
    execute(
        engine,
        "insert into ledger values (:n, :gid, '01')",
        [{"n": n, "gid": f"tp{n // 3:07}"} for n in range(MANY)],
    )
    options: dict[str, object] = {"keyColumn": "number"} if keyed else {}

    found = reads.parts(url=url, table="ledger", tableName="ledger", partitions=3, **options)

    assert sorted(row["gid"] for part in found for row in part) == sorted(f"tp{n // 3:07}" for n in range(MANY))
    assert len([part for part in found if part]) > 1


def test_a_ledger_without_branch_or_index_is_read_by_one_task(bank: Bank) -> None:
    url, engine = bank
    execute(engine, "create table ledger (gid varchar(40))")
    execute(engine, "insert into ledger values ('g')")

    found = reads.parts(url=url, table="ledger", tableName="ledger", branchColumn="")

    assert found == [[{"gid": "g", "branch_id": None}]]

    execute(engine, "create view counted as select distinct gid from ledger")
    assert reads.parts(url=url, table="ledger", tableName="counted", branchColumn="") == found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tableName": "nothing"}, "there is no table nothing; name it by tableName"),
        ({"tableName": "ledger", "gidColumn": "tx"}, "has no column ['tx']"),
        ({"tableName": "ledger", "columns": "gid,amount"}, "no column ['amount']"),
    ],
)
def test_a_ledger_of_another_shape_is_refused(bank: Bank, options: dict[str, str], said: str) -> None:
    url, engine = bank
    execute(engine, "create table ledger (gid varchar(40), branch_id varchar(9))")

    with pytest.raises(CannotRead) as raised:
        reads.batch(url=url, table="ledger", **options)
    assert said in raised.value.message


def test_a_key_that_some_rows_lack_is_refused(bank: Bank) -> None:
    """They would be in no range of it, and missing without a word."""
    url, engine = bank
    execute(engine, "create table ledger (gid varchar(40), branch_id varchar(9), seq bigint)")
    execute(engine, "insert into ledger values ('g', '01', 1), ('h', '01', null)")

    with pytest.raises(ConfigurationError, match="seq is null in some rows"):
        reads.batch(url=url, table="ledger", tableName="ledger", keyColumn="seq")


@pytest.mark.usefixtures("small_parts")
def test_text_keys_are_cut_right_under_a_collation_that_is_not_by_bytes(
    postgres_database: Database, tmp_path: Path
) -> None:
    """Case and punctuation sort otherwise than bytes; the database's order decides."""
    url = postgres_database.sqlalchemy_url("psycopg")
    engine = create_engine(url)
    execute(engine, "create collation odd (provider = icu, locale = 'und', deterministic = true)")
    execute(engine, "create table ledger (gid varchar(40) collate odd, branch_id varchar(9))")
    execute(engine, "create index on ledger (gid)")
    gids = [f"{letter}{n}" for n in range(60) for letter in "aAbB-_zZ"]
    execute(engine, "insert into ledger values (:gid, '01')", [{"gid": gid} for gid in gids])
    engine.dispose()
    reference = secret_in(tmp_path / "url", url)

    found = reads.parts(url=reference, table="ledger", tableName="ledger", partitions=5)

    assert sorted(row["gid"] for part in found for row in part) == sorted(gids)
    assert len(found) > 1
