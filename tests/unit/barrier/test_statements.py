"""The SQL files: complete for each database, free of an application's values."""

from __future__ import annotations

import importlib.resources
import re

import pytest

from twophase.barrier.dialect import (
    MYSQL,
    POSTGRESQL,
    SQLITE,
    Dialect,
    constraint_of,
    dialect_named,
    meta_table,
    validate_table,
)
from twophase.barrier.placeholders import numbered, pyformat
from twophase.core.errors import ConfigurationError

DIALECTS = pytest.mark.parametrize("dialect", [SQLITE, POSTGRESQL, MYSQL], ids=lambda dialect: dialect.name)
COMMON = (
    "insert_producer insert_open_producer insert_branch insert_check_back verify write_branches remove_producer"
    " read_identity read_meta"
    " create_table create_meta insert_identity list_columns add_token add_body add_prepared_at"
    " read_flaws finish_branch confirm_branch now clean_page clean_horizon clean_producers clean_branches"
)


@DIALECTS
@pytest.mark.parametrize("statement", COMMON.split())
def test_every_database_has_every_common_statement(dialect: Dialect, statement: str) -> None:
    assert statement in dialect.statements


def test_keys_of_two_long_table_names_have_names_of_their_own() -> None:
    names = {constraint_of("b" * 62 + end) for end in "xy"}
    assert len(names) == 2
    assert max(map(len, names)) <= 63


@DIALECTS
def test_every_database_is_asked_whether_it_keeps_what_it_confirms(dialect: Dialect) -> None:
    assert len({"read_durability", "read_own_durability"} & dialect.statements) == 1


@DIALECTS
def test_every_file_is_one_statement(dialect: Dialect) -> None:
    folder = importlib.resources.files("twophase.barrier") / "dialects" / dialect.name
    for file in folder.iterdir():
        sql = dialect.sql(file.name.removesuffix(".sql"))
        assert ";" not in sql, file.name
        assert not re.search(r"--|\{|\}", sql), file.name


@DIALECTS
def test_the_row_of_an_open_message_differs_by_an_empty_body_alone(dialect: Dialect) -> None:
    row, open_row = dialect.sql("insert_producer"), dialect.sql("insert_open_producer")
    empty = "''" if dialect is POSTGRESQL else "x''"
    assert open_row == row.replace("token, prepared_at", "token, body, prepared_at", 1).replace(
        ":token, :prepared_at", f":token, {empty}, :prepared_at", 1
    )


@DIALECTS
def test_a_table_s_name_stands_in_every_statement_that_names_it(dialect: Dialect) -> None:
    assert "bank.rows" in dialect.sql("insert_producer", "bank.rows")
    assert "bank.twophase_meta" in dialect.sql("read_meta", "bank.rows")
    assert meta_table("rows") == "twophase_meta"


@pytest.mark.parametrize("table", ["", "a b", "a;b", "a.b.c", 'a"b', "1a", "a" * 64, "a.", ".a", "ä", "a\n", "{meta}"])
def test_an_impossible_table_is_refused(table: str) -> None:
    with pytest.raises(ConfigurationError):
        validate_table(table)
    with pytest.raises(ConfigurationError):
        SQLITE.sql("insert_producer", table)


def test_names_of_databases() -> None:
    assert [dialect_named(name) for name in ("sqlite", "postgresql", "mysql", "mariadb", "oracle")] == [
        SQLITE,
        POSTGRESQL,
        MYSQL,
        MYSQL,
        None,
    ]


def test_a_percent_sign_survives_translation() -> None:
    assert pyformat("select '%f', :gid") % {"gid": "x"} == "select '%f', x"


def test_times_in_literals_are_no_parameters() -> None:
    assert numbered("select '00:00:00', :gid") == ("select '00:00:00', $1", ("gid",))
