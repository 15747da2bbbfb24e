"""No task or thread ends a transaction between the last look and COMMIT (I1, I6)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from asyncpg.exceptions import InterfaceError
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError, StatementError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Session
from sqlalchemy.util import greenlet_spawn

from tests.integration.barrier.test_branch import call_of
from tests.support.business_databases import Bank, arun, new_gid
from twophase.barrier.adapters.sqlalchemy_commit import looking_last
from twophase.barrier.branch import aonce, once
from twophase.barrier.dialect import POSTGRESQL, SQLITE
from twophase.barrier.transaction import Steps
from twophase.core.errors import OpenTransaction, TransactionLost

WRONG_STATEMENT = "select 1 / 0"
SPEND = "update account set balance = balance - 30 where id = 'A'"
DEFERRED = "alter table later add constraint one unique (number) deferrable initially deferred"
TURNS = 60
"""Turns of the event loop for which the statement waits at most."""
DRIVERS = pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])


@contextlib.contextmanager
def engine_of(bank: Bank, driver: str) -> Iterator[Engine]:
    engine = create_engine(bank.url(driver))
    yield engine
    engine.dispose()


def spoil(connection: Connection) -> Steps[None]:
    """Let another user of the connection fail after the look."""
    with contextlib.suppress(Exception):
        connection.connection.cursor().execute(WRONG_STATEMENT)
    yield from ()


@DRIVERS
def test_a_statement_that_fails_behind_the_look_is_no_commit(postgres_bank: Bank, driver: str) -> None:
    with engine_of(postgres_bank, driver) as engine, engine.connect() as connection:
        connection.execute(text(SPEND))
        with pytest.raises(TransactionLost), looking_last(spoil(connection), connection, POSTGRESQL):
            connection.commit()
        connection.rollback()
        assert connection.execute(text("select balance from account")).scalar_one() == 100


@DRIVERS
def test_it_is_none_of_a_session_either(postgres_bank: Bank, driver: str) -> None:
    with engine_of(postgres_bank, driver) as engine, Session(engine) as session:
        session.execute(text(SPEND))
        connection = session.connection()
        with pytest.raises(TransactionLost), looking_last(spoil(connection), connection, POSTGRESQL):
            session.commit()
        session.rollback()
        assert session.execute(text("select balance from account")).scalar_one() == 100


@DRIVERS
def test_an_error_of_commit_keeps_sqlalchemy_s_class(postgres_bank: Bank, driver: str) -> None:
    def insert_twice(connection: Connection) -> None:
        connection.execute(text("create table later (number int)"))
        connection.execute(text(DEFERRED))
        connection.execute(text("insert into later values (1), (1)"))

    with engine_of(postgres_bank, driver) as engine, pytest.raises(IntegrityError):
        once(engine, call_of(new_gid()), insert_twice)


@DRIVERS
def test_a_connection_commits_as_before_when_the_look_is_over(postgres_bank: Bank, driver: str) -> None:
    with engine_of(postgres_bank, driver) as engine, engine.connect() as connection:
        once(connection, call_of(new_gid()), lambda handle: handle.execute(text(SPEND)))
        assert "commit" not in vars(connection.connection)
        connection.execute(text(SPEND))
        connection.commit()
    assert postgres_bank.query("select balance from account where id = 'A'") == [(40,)]


async def test_a_forgotten_task_s_statement_leaves_no_branch_without_its_effect(postgres_bank: Bank) -> None:
    forgotten: list[asyncio.Task[None]] = []
    confirmed = 0

    async def fail(connection: AsyncConnection, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        with contextlib.suppress(StatementError, InvalidRequestError):
            await connection.execute(text(WRONG_STATEMENT))

    async with postgres_bank.areached("psycopg engine") as engine:
        for turns in range(TURNS):

            async def credit(connection: AsyncConnection, turns: int = turns) -> None:
                await connection.execute(text("update account set balance = balance + 1 where id = 'A'"))
                forgotten.append(asyncio.create_task(fail(connection, turns)))

            # The task may have left its failed transaction to the next user of the pooled connection, who then fails.
            with contextlib.suppress(TransactionLost, DBAPIError):
                await aonce(engine, call_of(new_gid()), credit)
                confirmed += 1
            await asyncio.gather(*forgotten)
    assert postgres_bank.query("select balance - 100 from account where id = 'A'") == [(confirmed,)]


FORGOTTEN = [
    *[("sqlite", way) for way in ("aiosqlite engine", "aiosqlite plain", "aiosqlite session")],
    *[("postgresql", f"{driver} engine") for driver in ("asyncpg", "psycopg")],
    *[("postgresql", way) for way in ("psycopg plain", "asyncpg connection", "asyncpg session", "psycopg session")],
    ("mysql", "asyncmy engine"),
]


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
@pytest.mark.parametrize("way", FORGOTTEN, ids=lambda way: way[1])
async def test_a_forgotten_task_s_rollback_leaves_no_branch_without_its_effect(
    banks: dict[str, Bank], way: tuple[str, str]
) -> None:
    """It comes at every moment between the end of the function and the answer."""
    bank, confirmed, forgotten = banks[way[0]], 0, list[asyncio.Task[None]]()

    async def roll_back(connection: Any, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        with contextlib.suppress(Exception):
            await (connection.execute("rollback") if way[1].startswith("asyncpg c") else connection.rollback())

    for turns in range(0, TURNS, 3):

        async def credit(connection: Any, turns: int = turns) -> None:
            await arun(connection, "update account set balance = balance + 1 where id = 'A'")
            forgotten.append(asyncio.create_task(roll_back(connection, turns)))

        async with bank.areached(way[1]) as engine:
            with contextlib.suppress(TransactionLost, DBAPIError, InvalidRequestError, InterfaceError):
                await aonce(engine, call_of(new_gid()), credit)
                confirmed += 1
            await asyncio.gather(*forgotten)

    assert confirmed > 0
    assert bank.query("select balance - 100 from account where id = 'A'") == [(confirmed,)]


@pytest.mark.postgres
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("outcome", [TransactionLost, ZeroDivisionError], ids=["returns", "fails"])
async def test_an_end_that_asyncpg_refuses_beside_a_statement_is_not_the_transaction_s(
    postgres_bank: Bank, outcome: type[Exception], end: str
) -> None:
    """SQLAlchemy's adapter forgets the transaction, in which asyncpg still is."""

    async def end_it(connection: AsyncConnection) -> None:
        raw = await connection.get_raw_connection()
        await asyncio.sleep(0.05)  # the statement is on its way
        with contextlib.suppress(Exception):
            await greenlet_spawn(getattr(raw.dbapi_connection, end))

    async def credit(connection: AsyncConnection) -> None:
        slow = "update account set balance = balance + 1 from pg_sleep(0.2) where id = 'A'"
        await asyncio.gather(connection.execute(text(slow)), end_it(connection))
        if outcome is ZeroDivisionError:
            raise ZeroDivisionError

    async with postgres_bank.areached("asyncpg engine", pool_size=1, max_overflow=0) as engine:
        with pytest.raises(outcome):
            await aonce(engine, call_of(new_gid()), credit)
        await aonce(engine, call_of(new_gid()), lambda handle: arun(handle, SPEND))
    assert postgres_bank.balance() == 70, "the connection was not left in the lost transaction"


@pytest.mark.parametrize("use", ["rollback", "commit", "execute"])
def test_another_thread_cannot_use_the_connection_between_the_look_and_commit(sqlite_bank: Bank, use: str) -> None:
    refused: list[object] = []

    def use_it(connection: Connection) -> None:
        try:
            if use == "execute":
                connection.execute(text(SPEND))
            else:
                getattr(connection, use)()
        except (OpenTransaction, StatementError) as error:
            refused.append(getattr(error, "orig", error))

    def elsewhere(connection: Connection) -> Steps[None]:
        thread = threading.Thread(target=use_it, args=(connection,))
        thread.start()
        thread.join()
        yield from ()

    with sqlite_bank.engine() as engine, engine.connect() as connection:
        connection.execute(text(SPEND))
        with warnings.catch_warnings(action="ignore"), looking_last(elsewhere(connection), connection, SQLITE):
            connection.commit()
    assert [type(error) for error in refused] == [OpenTransaction]
    assert sqlite_bank.balance() == 70
