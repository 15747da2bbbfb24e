"""Ledgers whose ids are no text.

The ids that a slice gives are found again by gid, and an empty gid is no gid.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text

from tests.servers.database import Database as ServerDatabase
from tests.spark.plant import System, make_system
from tests.spark.test_readers import business, everything, rows_in
from twophase.core.errors import CannotRead
from twophase_spark.locations import Role, parse_named
from twophase_spark.readers.probe import probe
from twophase_spark.readers.rows import read_gids

pytestmark = pytest.mark.spark


@pytest.fixture
def system(tmp_path: Path) -> System:
    return make_system(tmp_path)


def test_ids_are_found_again_as_their_column_keeps_them(system: System) -> None:
    """A suspect that the second look cannot find is not checkable.

    Its violation would not be reported.
    """
    for number, kind in enumerate(("", "text", "integer", "blob", "varchar(40)")):
        system.execute(system.bank_b, f"create table odd{number} (gid {kind}, branch_id)")
        system.execute(system.bank_b, f"insert into odd{number} values (x'6731', '01'), (7, '02'), ('g 3 ', '03')")
        ledger = business(Role.LEDGER, system.bank_b, f"#odd{number}")

        read = everything(ledger)

        assert {(row["gid"], row["branch_id"]) for row in read} == {("g1", "01"), ("7", "02"), ("g 3 ", "03")}
        assert rows_in(read_gids(ledger, ["g1", "7", "g 3 ", "tp01", "9" * 30])) == read, kind


def test_a_collation_finds_no_other_gid(system: System) -> None:
    """It would count as a message of the run."""
    system.execute(system.bank_b, "create table odd (gid text collate nocase, branch_id)")
    system.execute(system.bank_b, "insert into odd values ('g1', '01'), ('G1', '02')")

    assert [row["gid"] for row in rows_in(read_gids(business(Role.LEDGER, system.bank_b, "#odd"), ["G1"]))] == ["G1"]


def test_an_empty_gid_is_none(system: System) -> None:
    """The ledger also books what belongs to no message, in a column that is not null."""
    system.execute(system.bank_b, "create table odd (gid not null default '', branch_id)")
    system.execute(system.bank_b, "insert into odd values ('', '01'), ('  ', '01'), (x'', '01'), (0, '01')")
    ledger = business(Role.LEDGER, system.bank_b, "#odd")

    assert [row["gid"] for row in everything(ledger)] == ["0"]
    assert rows_in(read_gids(ledger, ["", "  "])) == []


def _find_again(url: str, kinds: dict[str, str]) -> None:
    """Ask for suspects of any shape in each type of column.

    Each column holds an id of its own, and an empty one where it can.
    """
    suspects = ["tp01", "7", "07", "-1", "", "9" * 20, "00000000-0000-4000-8000-00000000000a", "G1"]
    engine = create_engine(url)
    with engine.begin() as connection:
        for number, (kind, gid) in enumerate(kinds.items()):
            connection.execute(text(f"create table odd{number} (gid {kind}, branch_id char(4))"))
            connection.execute(text(f"insert into odd{number} values ({gid}, '01'), (null, '01')"))
            if any(name in kind for name in ("char", "text")):
                connection.execute(text(f"insert into odd{number} values ('', '01'), ('  ', '01')"))
        connection.execute(text("create table fractions (gid decimal(5, 2), branch_id varchar(9))"))
    engine.dispose()
    for number, (kind, gid) in enumerate(kinds.items()):
        ledger = probe(parse_named(Role.LEDGER, f"bank={url}#odd{number}"), 1)
        read = everything(ledger)
        assert [(row["gid"] in suspects, row["branch_id"]) for row in read] == [(True, "01")], (kind, gid)
        assert rows_in(read_gids(ledger, suspects)) == read, kind
    with pytest.raises(CannotRead, match="a gid is text, an integer, a uuid or bytes"):
        probe(parse_named(Role.LEDGER, f"bank={url}#fractions"), 1)


@pytest.mark.postgres
def test_ids_are_found_again_on_postgresql(postgres_database: ServerDatabase) -> None:
    kinds = {
        "integer": "7",
        "bigint": "-1",
        "uuid": "'00000000-0000-4000-8000-00000000000a'",
        "bytea": "'tp01'",
        "char(9)": "'tp01'",
        "varchar(9)": "'tp01'",
        "text": "'7'",
        "narrower": "'tp01'",
    }
    with psycopg.connect(postgres_database.dsn) as bank:
        bank.execute("create domain wide as varchar(9)")
        bank.execute("create domain narrower as wide")
    _find_again(postgres_database.sqlalchemy_url("psycopg"), kinds)


@pytest.mark.mariadb
def test_ids_are_found_again_on_mariadb(mariadb_database: ServerDatabase) -> None:
    kinds = {"integer": "7", "bigint unsigned": "7", "varbinary(9)": "'tp01'", "blob": "'tp01'"}
    texts = {"char(9)": "'tp01'", "varchar(9)": "'tp01'", "text": "'7'"}
    _find_again(mariadb_database.sqlalchemy_url("pymysql"), kinds | texts)


@pytest.mark.mariadb
def test_ids_that_binary_fills_up_are_refused_on_mariadb(mariadb_database: ServerDatabase) -> None:
    """They would count as other ids, so that every effect is an orphan."""
    url = mariadb_database.sqlalchemy_url("pymysql")
    engine = create_engine(url)
    with engine.begin() as connection:
        for name, gid, branch in (("odd", 9, 2), ("odd_branch", 4, 4), ("full", 4, 2)):
            connection.execute(text(f"create table {name} (gid binary({gid}), branch_id binary({branch}))"))
            connection.execute(text(f"insert into {name} values ('tp01', '01')"))
        trimmed = "trim(trailing x'00' from gid) as gid, branch_id"
        connection.execute(text(f"create view trimmed as select {trimmed} from odd"))
    engine.dispose()

    for name, column in (("odd", "gid"), ("odd_branch", "branch_id")):
        with pytest.raises(CannotRead, match=f"has a {column} that ends with a zero byte"):
            everything(probe(parse_named(Role.LEDGER, f"bank={url}#{name}"), 1))
    for name in ("full", "trimmed"):
        ledger = probe(parse_named(Role.LEDGER, f"bank={url}#{name}"), 1)
        read = everything(ledger)
        assert [(row["gid"], row["branch_id"]) for row in read] == [("tp01", "01")]
        assert rows_in(read_gids(ledger, ["tp01"])) == read
