"""PostgreSQL's other drivers: their reports are understood.

An unknown driver is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import TupleRow
from pymysql.converters import escape_string
from sqlalchemy.pool import NullPool

from tests.integration.barrier.test_branch import call_of, spend
from tests.support.business_databases import Bank, begin, new_gid
from tests.support.patient_locks import wait_for_locks
from twophase.barrier.asking import acheck_back, check_back
from twophase.barrier.branch import once
from twophase.barrier.branch_answer import answer_branch
from twophase.barrier.cleaning import Found, Horizons, old_rows
from twophase.barrier.dialect import MYSQL
from twophase.barrier.fault import code_of
from twophase.barrier.installing import install
from twophase.barrier.open import open_transaction
from twophase.barrier.placeholders import pyformat
from twophase.barrier.producer import begin_producer, read_identity, verify_producer, write_branches
from twophase.barrier.transaction import Row, Statement, perform
from twophase.core.errors import BarrierTableMissing, CheckBackCameFirst, UnsupportedEngine
from twophase.core.message import Branch, encode_branches
from twophase.core.verdict import Verdict


@pytest.fixture(params=["pg8000", "psycopg2"])
def engine(request: pytest.FixtureRequest, postgres_bank: Bank) -> Iterator[sqlalchemy.Engine]:
    """An engine of another driver, with a connection for each use.

    pg8000 warns about pooled connections that it finds closed.
    """
    engine = sqlalchemy.create_engine(f"postgresql+{request.param}://{postgres_bank.where}", poolclass=NullPool)
    yield engine
    engine.dispose()


def test_a_branch_done_before_is_done(engine: sqlalchemy.Engine, postgres_bank: Bank) -> None:
    call = call_of(new_gid())
    assert [once(engine, call, spend) for _ in range(3)] == ["done", None, None]
    assert postgres_bank.balance() == 70


def test_a_held_row_is_in_progress(
    engine: sqlalchemy.Engine, postgres_bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    gid = new_gid()
    assert once(engine, call_of(gid), spend) == "done"
    wait_for_locks(monkeypatch, 0.2)
    with postgres_bank.plain() as holder:
        with closing(holder.cursor()) as cursor:
            cursor.execute("select id from barrier for update")
        assert answer_branch(lambda: once(engine, call_of(gid), spend)).status == 425
        holder.rollback()
        transaction = open_transaction(holder)
        begin(transaction, gid)
        assert check_back(engine, gid).verdict is Verdict.IN_PROGRESS
        transaction.rollback()
        transaction.close()


@pytest.fixture(
    params=[pytest.param("mysql", marks=pytest.mark.mariadb), pytest.param("psycopg", marks=pytest.mark.postgres)]
)
def of_bytes(request: pytest.FixtureRequest, banks: dict[str, Bank]) -> Iterator[tuple[Bank, Any]]:
    """A bank, and what reaches it with texts as bytes."""
    if request.param == "mysql":
        with banks["mysql"].engine(connect_args={"use_unicode": False}) as engine:
            yield banks["mysql"], engine
        return
    with banks["postgresql"].plain() as connection:
        connection.execute("set client_encoding = 'SQL_ASCII'")
        connection.commit()
        yield banks["postgresql"], connection


def test_texts_may_come_as_bytes(of_bytes: tuple[Bank, Any]) -> None:
    bank, engine = of_bytes
    gid = new_gid()
    assert install(engine) == []
    assert [once(engine, call_of(gid), spend) for _ in range(3)] == ["done", None, None]
    transaction = open_transaction(engine)
    identity = perform(read_identity(transaction.dialect, "barrier"), transaction)
    begun = begin_producer(transaction.dialect, "barrier", gid, gid, None, identity=identity, is_open=True)
    perform(begun, transaction)
    perform(write_branches(transaction.dialect, "barrier", gid, gid, b"\xff"), transaction)
    transaction.commit(verify_producer(transaction.dialect, "barrier", gid, gid))
    transaction.close()
    answer = check_back(engine, gid, identity=identity)
    assert (answer.verdict, answer.body) == (Verdict.COMMITTED, b"\xff")
    assert check_back(engine, new_gid(), identity=identity).verdict is Verdict.ROLLED_BACK
    transaction = open_transaction(engine)
    with pytest.raises(CheckBackCameFirst):
        begin(transaction, gid)
    transaction.rollback()
    transaction.close()
    assert bank.balance() == 70


class _BytesAsText:
    """A connection of PyMySQL that quotes bytes without `_binary`.

    So do mysqlclient and MySQL Connector.
    """

    dialect = MYSQL

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: Statement) -> list[Row]:
        with self._connection.cursor() as cursor:
            quoted = {name: _quoted(value) for name, value in statement.parameters.items()}
            cursor.execute((pyformat(statement.sql) % quoted).encode("utf-8", "surrogateescape"))
            return list(cursor.fetchall())


def _quoted(value: Any) -> str:
    if value is None or isinstance(value, int):
        return "null" if value is None else str(value)
    return f"'{escape_string(value.decode('utf-8', 'surrogateescape') if isinstance(value, bytes) else value)}'"


@pytest.mark.mariadb
@pytest.mark.parametrize("client", ["utf8mb4", "latin1"])
def test_branches_of_the_block_survive_a_session_that_converts_its_texts(mysql_bank: Bank, client: str) -> None:
    gid = new_gid()
    body = encode_branches((Branch("http://bank-b/in", '{"name": "\u0141\u20ac"}'.encode()),))
    with mysql_bank.plain() as connection:
        with closing(connection.cursor()) as cursor:
            cursor.execute(f"set character_set_client = {client}, collation_connection = latin2_bin")
        transaction = _BytesAsText(connection)
        perform(begin_producer(MYSQL, "barrier", gid, gid, None, is_open=True), transaction)
        perform(write_branches(MYSQL, "barrier", gid, gid, body), transaction)
        perform(verify_producer(MYSQL, "barrier", gid, gid), transaction)
        connection.commit()
    with mysql_bank.plain() as connection:
        answer = check_back(connection, gid)
    assert (answer.verdict, answer.body) == (Verdict.COMMITTED, body)


@pytest.mark.parametrize("as_text", [str, str.encode])
def test_rows_whose_texts_are_bytes_are_cleaned(as_text: Callable[[str], object]) -> None:
    page = [(7, as_text("producer"), 1, 1, as_text("old")), (8, as_text("branch"), None, 1, as_text("old"))]
    assert old_rows(page, Horizons(2, 2)) == ([Found(7, "old")], [Found(8, "old")])


@pytest.mark.parametrize("factory", [psycopg.RawCursor, psycopg.ClientCursor])
def test_a_connection_of_psycopg_may_make_cursors_of_any_class(
    postgres_bank: Bank, factory: type[psycopg.Cursor[TupleRow]]
) -> None:
    gid = new_gid()
    with psycopg.connect(f"postgresql://{postgres_bank.where}", cursor_factory=factory) as connection:
        assert once(connection, call_of(gid), spend) == "done"
        assert check_back(connection, gid).verdict is Verdict.ROLLED_BACK


@pytest.mark.parametrize("factory", [psycopg.AsyncRawCursor, psycopg.AsyncClientCursor])
async def test_an_async_connection_of_psycopg_may_make_cursors_of_any_class(
    postgres_bank: Bank, factory: type[psycopg.AsyncCursor[TupleRow]]
) -> None:
    url = f"postgresql://{postgres_bank.where}"
    async with await psycopg.AsyncConnection.connect(url, cursor_factory=factory) as connection:
        assert (await acheck_back(connection, new_gid())).verdict is Verdict.ROLLED_BACK


def test_a_check_back_that_came_first_bars_the_producer(engine: sqlalchemy.Engine) -> None:
    gid = new_gid()
    assert check_back(engine, gid).verdict is Verdict.ROLLED_BACK
    transaction = open_transaction(engine)
    with pytest.raises(CheckBackCameFirst):
        begin(transaction, gid)
    transaction.rollback()
    transaction.close()


def test_a_missing_table_is_named(engine: sqlalchemy.Engine) -> None:
    with pytest.raises(BarrierTableMissing) as caught:
        once(engine, call_of(new_gid()), spend, table="nowhere")
    assert code_of(caught.value) == "SQLSTATE 42P01"


def test_a_driver_whose_errors_are_not_known_is_refused() -> None:
    engine = sqlalchemy.create_engine("sqlite+pysqlcipher://", module=sqlite3)
    with pytest.raises(UnsupportedEngine, match="pysqlcipher"):
        open_transaction(engine)
