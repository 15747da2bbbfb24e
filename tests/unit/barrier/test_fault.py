"""The meaning of a database's error, whichever library wraps it.

Its text stays out of logs.
"""

from __future__ import annotations

import pytest
from pymysql.err import OperationalError
from sqlalchemy.exc import DBAPIError

from twophase.barrier.fault import Fault, code_of, described, fault_of, timed_out


class PostgresError(Exception):
    """An error like psycopg's and asyncpg's: with a SQLSTATE."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("the text with hush-hush in it")
        self.sqlstate = sqlstate


class Psycopg2Error(Exception):
    """An error like psycopg2's: with a `pgcode`, None when the connection failed."""

    def __init__(self, pgcode: str | None) -> None:
        super().__init__("hush")
        self.pgcode = pgcode


class SqliteError(Exception):
    """An error like sqlite3's: with an error code."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.sqlite_errorcode = code


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03", "57014"])
def test_postgresql_says_busy(sqlstate: str) -> None:
    assert fault_of(PostgresError(sqlstate)) is Fault.BUSY


@pytest.mark.parametrize("number", [1205, 1213, 1020, 1969, 3024])
def test_mysql_says_busy(number: int) -> None:
    assert fault_of(OperationalError(number, "text")) is Fault.BUSY


@pytest.mark.parametrize("code", [5, 6, 261, 517, 262])
def test_sqlite_says_busy_also_in_extended_codes(code: int) -> None:
    assert fault_of(SqliteError(code)) is Fault.BUSY


@pytest.mark.parametrize(
    "error", [PostgresError("23505"), OperationalError(1062, "text"), SqliteError(2067), SqliteError(1555)]
)
def test_a_taken_key_is_a_duplicate(error: Exception) -> None:
    assert fault_of(error) is Fault.DUPLICATE


@pytest.mark.parametrize(
    "error",
    [
        PostgresError("42P01"),
        PostgresError("42703"),
        OperationalError(1146, "text"),
        SqliteError(1, "no such table: barrier"),
        SqliteError(1, "table barrier has no column named token"),
    ],
)
def test_a_missing_table_or_column_is_reported(error: Exception) -> None:
    assert fault_of(error) is Fault.TABLE_MISSING


@pytest.mark.parametrize(
    "error",
    [
        PostgresError("42P10"),
        PostgresError("55000"),
        OperationalError(1178, "text"),
        SqliteError(1, "ON CONFLICT clause does not match any PRIMARY KEY or UNIQUE constraint"),
    ],
)
def test_a_table_without_the_key_or_transactions_is_unusable(error: Exception) -> None:
    assert fault_of(error) is Fault.TABLE_UNUSABLE


@pytest.mark.parametrize(
    "error",
    [ValueError(), OSError(1205, "text"), PostgresError("25P02"), OperationalError(2013, "gone"), SqliteError(11)],
)
def test_everything_else_is_no_answer(error: Exception) -> None:
    assert fault_of(error) is Fault.OTHER


def test_a_wrapped_error_is_found() -> None:
    wrapped = DBAPIError("select 1", {}, PostgresError("55P03"))
    outer = RuntimeError()
    outer.__cause__ = wrapped
    assert fault_of(outer) is Fault.BUSY


def test_a_code_is_reported_and_the_text_is_not() -> None:
    assert code_of(DBAPIError("select 1", {"body": "hush"}, PostgresError("55P03"))) == "SQLSTATE 55P03"
    assert code_of(OperationalError(1205, "hush")) == "MySQL error 1205"
    assert code_of(SqliteError(5, "hush")) == "SQLite error 5"
    assert code_of(KeyError("hush")) == "KeyError"


def test_a_code_is_described_with_the_class_of_the_driver_and_without_the_text() -> None:
    assert described(DBAPIError("select 1", {}, PostgresError("40P01"))) == "SQLSTATE 40P01, PostgresError"
    assert described(OperationalError(1213, "hush")) == "MySQL error 1213, OperationalError"
    assert described(KeyError("hush")) == "KeyError"


def test_a_timeout_of_a_statement_is_told_from_a_lock() -> None:
    timeouts = [PostgresError("57014"), OperationalError(1969, "text"), OperationalError(3024, "text")]
    assert all(timed_out(error) for error in timeouts)
    assert timed_out(DBAPIError("select 1", {}, PostgresError("57014")))
    locks = [PostgresError("55P03"), OperationalError(1205, "text"), OperationalError(1213, "text"), SqliteError(5)]
    assert not any(timed_out(error) for error in [*locks, TimeoutError()])


def test_psycopg2_and_pg8000_carry_the_sqlstate_elsewhere() -> None:
    assert fault_of(Psycopg2Error("55P03")) is Fault.BUSY
    assert fault_of(Psycopg2Error(None)) is Fault.OTHER
    assert fault_of(Exception({"S": "ERROR", "C": "23505", "M": "hush"})) is Fault.DUPLICATE
    assert code_of(Exception({"C": "23505", "M": "hush"})) == "SQLSTATE 23505"


def test_a_circle_of_causes_ends() -> None:
    one, two = RuntimeError(), RuntimeError()
    one.__cause__, two.__cause__ = two, one
    assert fault_of(one) is Fault.OTHER
