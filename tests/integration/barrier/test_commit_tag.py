"""COMMIT itself reports a statement that failed after the last look (I1, I6)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
import sqlalchemy
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Session

from tests.integration.barrier.test_branch import call_of
from tests.support.business_databases import Bank, new_gid
from twophase.barrier.adapters.sqlalchemy_commit import looking_last
from twophase.barrier.branch import aonce, once
from twophase.barrier.dialect import POSTGRESQL
from twophase.barrier.transaction import Steps
from twophase.core.errors import TransactionLost

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
        with contextlib.suppress(DBAPIError, sqlalchemy.exc.InvalidRequestError):
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
