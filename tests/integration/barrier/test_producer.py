"""The producer's transaction on real databases, through every sync library.

The tests show rules 2 and 12.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session, registry

from tests.support.business_databases import SPEND, Bank, begin, new_gid, run, verify
from twophase.barrier.asking import check_back
from twophase.barrier.open import ask_engine, open_transaction
from twophase.barrier.producer import read_identity, write_branches
from twophase.barrier.transaction import Statement, perform
from twophase.core.errors import (
    AutocommitRefused,
    BarrierTableMissing,
    BeginDeadlinePassed,
    CheckBackCameFirst,
    OpenTransaction,
    TransactionLost,
)
from twophase.core.verdict import Verdict

DATABASE_ERRORS = (Exception,)


def spend(engine: Any, gid: str) -> None:
    """Run a whole, undisturbed transaction."""
    transaction = open_transaction(engine)
    begin(transaction, gid)
    run(transaction.handle, SPEND)
    verify(transaction, gid)
    transaction.commit()
    transaction.close()


def lose(engine: Any, gid: str) -> None:
    """Let the verification fail, and roll back as the client does."""
    transaction = engine
    with pytest.raises(TransactionLost):
        verify(transaction, gid)
    transaction.rollback()
    transaction.close()


def test_row_and_business_commit_together(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        spend(engine, gid)
    assert bank.reasons(gid) == ["msg"]
    assert bank.balance() == 70


def test_row_and_business_roll_back_together(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        run(transaction.handle, SPEND)
        transaction.rollback()
        transaction.close()
    assert bank.reasons(gid) == []
    assert bank.balance() == 100


def test_an_engine_serves_one_transaction_after_another(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    with bank.reached(way) as engine:
        for _ in range(3):
            spend(engine, new_gid())
    assert bank.balance() == 10


def test_a_second_begin_of_one_gid_is_refused(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        spend(engine, gid)
        transaction = open_transaction(engine)
        with pytest.raises(CheckBackCameFirst):
            begin(transaction, gid)
        transaction.rollback()
        transaction.close()
    assert bank.balance() == 70


def test_an_open_transaction_is_refused(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    with bank.reached("connection" if way == "engine" else way) as engine:  # an Engine has none of its own
        run(engine, SPEND)
        with pytest.raises(OpenTransaction):
            open_transaction(engine)
        engine.rollback()
    assert bank.balance() == 100


def test_a_plain_connection_in_autocommit_is_refused(bank: Bank) -> None:
    with bank.plain(autocommit=True) as connection, pytest.raises(AutocommitRefused):
        open_transaction(connection)


def test_a_check_back_on_a_connection_in_autocommit_names_the_cause(bank: Bank) -> None:
    with bank.plain(autocommit=True) as connection:
        answer = check_back(connection, new_gid())
    assert (answer.verdict, answer.evidence[:7]) == (Verdict.UNKNOWN, AutocommitRefused.code)


@pytest.mark.parametrize("way", ["engine", "connection", "session"])
def test_an_autocommit_engine_is_refused(bank: Bank, way: str) -> None:
    with bank.reached(way, isolation_level="AUTOCOMMIT") as engine, pytest.raises(AutocommitRefused):
        open_transaction(engine)


def test_an_engine_with_autocommit_option_is_refused(bank: Bank) -> None:
    with bank.engine() as engine, pytest.raises(AutocommitRefused):
        open_transaction(engine.execution_options(isolation_level="AUTOCOMMIT"))


def test_a_session_that_gets_no_connection_keeps_its_objects(bank: Bank) -> None:
    class Account:
        pass

    table = sqlalchemy.Table(
        "account", sqlalchemy.MetaData(), sqlalchemy.Column("id", sqlalchemy.String(8), primary_key=True)
    )
    registry().map_imperatively(Account, table)

    def unreachable(*_: object) -> None:
        raise ConnectionRefusedError

    with bank.engine() as engine, Session(engine, expire_on_commit=False) as session:
        account = session.get(Account, "A")
        session.commit()
        engine.dispose()
        sqlalchemy.event.listen(engine, "do_connect", unreachable)
        with pytest.raises(ConnectionRefusedError):
            open_transaction(session)
        assert account in session


def test_a_swallowed_statement_error_never_passes_for_a_commit(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        run(transaction.handle, SPEND)
        with contextlib.suppress(*DATABASE_ERRORS):
            run(transaction.handle, "insert into account values ('A', 1)")
        if bank.kind == "postgresql":
            lose(transaction, gid)
        else:  # there a failed statement undoes only itself
            verify(transaction, gid)
            transaction.commit()
            transaction.close()
    committed = bank.kind != "postgresql"
    assert (bank.reasons(gid), bank.balance()) == ((["msg"], 70) if committed else ([], 100))


@pytest.mark.parametrize("then", ["commit", "rollback"])
def test_sql_that_ends_the_transaction_inside_the_block_is_noticed(bank_and_way: tuple[Bank, str], then: str) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        run(transaction.handle, then)
        run(transaction.handle, SPEND)
        lose(transaction, gid)
    assert bank.reasons(gid) == (["msg"] if then == "commit" else [])
    assert bank.balance() == 100


@pytest.mark.parametrize("then", ["commit", "rollback"])
def test_a_method_that_ends_the_transaction_inside_the_block_is_noticed(
    bank_and_way: tuple[Bank, str], then: str
) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        getattr(transaction.handle, then)()
        run(transaction.handle, SPEND)
        lose(transaction, gid)
    assert bank.reasons(gid) == (["msg"] if then == "commit" else [])
    assert bank.balance() == 100


def test_a_commit_that_is_the_last_thing_in_the_block_is_noticed(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        run(transaction.handle, SPEND)
        run(transaction.handle, "commit")
        lose(transaction, gid)
    assert bank.reasons(gid) == ["msg"]


@pytest.mark.mariadb
@pytest.mark.parametrize(
    "ddl", ["create table other (id int)", "truncate table other_account", "lock tables account write"]
)
def test_an_implicit_commit_is_noticed(mysql_bank: Bank, ddl: str) -> None:
    mysql_bank.query("drop table if exists other")
    mysql_bank.query("create table if not exists other_account (id int)")
    gid = new_gid()
    with mysql_bank.engine() as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        run(transaction.handle, ddl)
        lose(transaction, gid)
    assert mysql_bank.reasons(gid) == ["msg"]


@pytest.mark.mariadb
def test_switching_autocommit_on_inside_the_block_is_noticed(mysql_bank: Bank) -> None:
    gid = new_gid()
    with mysql_bank.plain() as connection:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        run(connection, "set autocommit = 1")
        run(connection, SPEND)
        lose(transaction, gid)


def test_a_nested_transaction_may_roll_back_alone(bank: Bank) -> None:
    gid = new_gid()
    with bank.engine() as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        with contextlib.suppress(LookupError), transaction.handle.begin_nested():
            run(transaction.handle, SPEND)
            raise LookupError
        verify(transaction, gid)
        transaction.commit()
        transaction.close()
    assert (bank.reasons(gid), bank.balance()) == (["msg"], 100)


def test_a_nested_transaction_left_open_commits_with_the_rest(bank: Bank) -> None:
    gid = new_gid()
    with bank.engine() as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        run(transaction.handle, "savepoint of_the_application")
        run(transaction.handle, SPEND)
        perform(write_branches(transaction.dialect, "barrier", gid, gid, b"\x90"), transaction)
        verify(transaction, gid)
        transaction.commit()
        transaction.close()
    assert (bank.reasons(gid), bank.balance()) == (["msg"], 70)


def test_rolling_back_to_before_the_row_is_impossible_for_a_savepoint_of_the_block(bank: Bank) -> None:
    gid = new_gid()
    with bank.engine() as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        run(transaction.handle, "savepoint mine")
        run(transaction.handle, SPEND)
        run(transaction.handle, "rollback to savepoint mine")
        verify(transaction, gid)
        transaction.commit()
        transaction.close()
    assert (bank.reasons(gid), bank.balance()) == (["msg"], 100)


def test_a_deleted_row_is_noticed(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        run(transaction.handle, "delete from barrier")
        lose(transaction, gid)


def test_begin_an_hour_after_prepare_is_refused(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        transaction = open_transaction(engine)
        with pytest.raises(BeginDeadlinePassed):
            begin(transaction, gid, prepared_at_ms=int(time.time() * 1000) - 3_605_000)
        transaction.rollback()
        transaction.close()
    assert bank.reasons(gid) == []


def test_begin_within_the_hour_is_taken(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid, prepared_at_ms=int(time.time() * 1000) - 3_590_000)
        verify(transaction, gid)
        transaction.commit()
        transaction.close()
    assert bank.reasons(gid) == ["msg"]


def test_branches_of_the_block_are_in_the_row(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        perform(write_branches(transaction.dialect, "barrier", gid, gid, b"\x00\xff%s:x"), transaction)
        verify(transaction, gid)
        transaction.commit()
        transaction.close()
    assert [bytes(body) for (body,) in bank.query("select body from barrier")] == [b"\x00\xff%s:x"]


def test_a_missing_table_says_what_to_run(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    bank.query("drop table barrier")
    with bank.reached(way) as engine:
        transaction = open_transaction(engine)
        with pytest.raises(BarrierTableMissing, match="twophase barrier install"):
            begin(transaction, new_gid())
        transaction.rollback()
        transaction.close()


def test_identity_is_the_database_s_own(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    with bank.reached(way) as engine:
        transaction = open_transaction(engine)
        identity = perform(read_identity(transaction.dialect, "barrier"), transaction)
        transaction.rollback()
        transaction.close()
    assert [(identity,)] == bank.query("select value from twophase_meta where name = 'identity'")


def test_settings_of_a_connection_are_put_back(bank: Bank) -> None:
    asked = {
        "sqlite": ["pragma synchronous", "pragma busy_timeout"],
        "postgresql": ["show synchronous_commit", "show idle_in_transaction_session_timeout"],
        "mysql": ["select @@session.wait_timeout, @@session.innodb_lock_wait_timeout, @@session.lock_wait_timeout"],
    }[bank.kind]
    changed = {
        "sqlite": "pragma synchronous = 1",
        "postgresql": "set synchronous_commit = off",
        "mysql": "set session wait_timeout = 1234",
    }[bank.kind]
    with bank.plain() as connection:
        cursor = connection.cursor()

        def settings() -> list[Any]:
            found = []
            for question in asked:
                cursor.execute(question)
                found.append(cursor.fetchone())
            connection.rollback()
            return found

        cursor.execute(changed)
        connection.commit()
        before = settings()
        spend(connection, new_gid())
        assert settings() == before
        cursor.close()


@pytest.mark.postgres
def test_a_commit_that_rolls_back_on_psycopg_is_no_commit(postgres_bank: Bank) -> None:
    """Another thread's statement may fail between the last look and COMMIT."""
    with postgres_bank.plain() as connection:
        transaction = open_transaction(connection)
        begin(transaction, new_gid())
        with contextlib.suppress(psycopg.Error):
            connection.execute("select 1 / 0")
        with pytest.raises(TransactionLost):
            transaction.commit()
        transaction.rollback()
        transaction.close()


def test_the_commit_is_durable_whatever_the_session_says(postgres_bank: Bank) -> None:
    with postgres_bank.plain() as connection:
        connection.execute("set synchronous_commit = off")
        connection.commit()
        transaction = open_transaction(connection)
        begin(transaction, new_gid())
        assert connection.execute("show synchronous_commit").fetchone() == ("on",)
        assert connection.execute("show idle_in_transaction_session_timeout").fetchone() == ("5min",)
        transaction.rollback()


@pytest.mark.mariadb
def test_a_dead_client_s_transaction_ends_within_minutes_on_mysql_too(mysql_bank: Bank) -> None:
    """Its lock would delay every check-back (rule 11)."""
    with mysql_bank.plain() as connection:
        transaction = open_transaction(connection)
        begin(transaction, new_gid())
        assert transaction.execute(Statement("select @@session.wait_timeout", {}))[0][0] == 300
        transaction.rollback()


def test_a_failure_is_asked_about_elsewhere_where_there_is_a_pool(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    with bank.reached(way) as engine:
        asked = ask_engine(engine)
        pooled = way in ("engine", "connection", "session")
        assert (type(asked).__name__ == "Engine") == pooled
        assert pooled or asked is engine


@pytest.mark.parametrize("way", ["sqlite3", "engine", "connection"])
def test_sqlite_waits_for_the_disk_whatever_the_connection_says(sqlite_bank: Bank, way: str) -> None:
    """A careless engine is made careful for the time of twophase's transaction.

    Afterwards it is as it was.
    """
    with sqlite_bank.reached(way) as engine:
        if way == "engine":

            @sqlalchemy.event.listens_for(engine, "connect")
            def _careless(raw: Any, _: object) -> None:
                raw.execute("pragma synchronous = off")

        elif way == "connection":
            engine.connection.driver_connection.execute("pragma synchronous = off")
        else:
            engine.execute("pragma synchronous = off")
        transaction = open_transaction(engine)
        during = transaction.execute(Statement("pragma synchronous", {}))
        transaction.rollback()
        transaction.close()
        raw = engine.raw_connection() if way == "engine" else getattr(engine, "connection", engine)
        cursor = raw.cursor()
        after = cursor.execute("pragma synchronous").fetchall()
        cursor.close()
        if way == "engine":
            raw.close()
    assert ([tuple(row) for row in during], after) == ([(3,)], [(0,)])
