"""A pool that gives one SQLite connection to every caller.

The transaction that is open on it is left alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from tests.support.business_databases import begin, new_gid, verify
from twophase.barrier.asking import acheck_back, check_back
from twophase.barrier.installing import ainstall, install
from twophase.barrier.open import aopen_transaction, join_transaction, open_transaction
from twophase.core.errors import OpenTransaction
from twophase.core.verdict import Verdict


@pytest.mark.parametrize("pool", [StaticPool, SingletonThreadPool])
@pytest.mark.parametrize("asked_on", ["engine", "session"])
def test_check_back_leaves_the_open_transaction_of_a_shared_connection(
    tmp_path: Path, pool: type[sqlalchemy.Pool], asked_on: str
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'bank.db'}", poolclass=pool)
    install(engine)
    gid = new_gid()
    producer = open_transaction(engine)
    begin(producer, gid)
    asked = engine if asked_on == "engine" else Session(engine)
    with pytest.raises(OpenTransaction):
        open_transaction(asked)
    assert check_back(asked, gid).verdict is Verdict.UNKNOWN
    verify(producer, gid)
    producer.rollback()
    producer.close()
    assert check_back(asked, gid).verdict is Verdict.ROLLED_BACK
    engine.dispose()


@pytest.mark.parametrize("pool", [StaticPool, SingletonThreadPool])
@pytest.mark.parametrize("begun_before", [False, True])
def test_no_session_joins_the_open_transaction_of_a_shared_connection(
    tmp_path: Path, pool: type[sqlalchemy.Pool], begun_before: bool
) -> None:
    """Its commit would commit what the other one has not decided yet."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'bank.db'}", poolclass=pool)
    install(engine)
    with Session(engine) as session:
        if begun_before:
            session.execute(text("select 1"))
        producer = open_transaction(engine) if not begun_before else None
        other = Session(engine) if begun_before else None
        if other is not None:
            join_transaction(other)
        with pytest.raises(OpenTransaction):
            join_transaction(session)
        for one in (producer, other):
            if one is not None:
                one.rollback()
                one.close()
        session.rollback()
        join_transaction(session)  # the other one has ended
        join_transaction(session)  # a second message of the same transaction
    engine.dispose()


async def test_check_back_leaves_the_open_transaction_of_a_shared_async_connection(tmp_path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'bank.db'}", poolclass=StaticPool)
    await ainstall(engine)
    producer = await aopen_transaction(engine)
    with pytest.raises(OpenTransaction):
        await aopen_transaction(engine)
    assert (await acheck_back(engine, new_gid())).verdict is Verdict.UNKNOWN
    await producer.rollback()
    await producer.close()
    assert (await acheck_back(engine, new_gid())).verdict is Verdict.ROLLED_BACK
    await engine.dispose()


def test_recipe_for_savepoints_works_on_a_shared_connection(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'bank.db'}", poolclass=StaticPool)

    @event.listens_for(engine, "connect")
    def durable(raw: object, _: object) -> None:
        raw.isolation_level = None  # type: ignore[attr-defined]
        raw.execute("pragma synchronous = extra")  # type: ignore[attr-defined]

    @event.listens_for(engine, "begin")
    def say_begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("begin")

    install(engine)
    gid = new_gid()
    producer = open_transaction(engine)
    begin(producer, gid)
    producer.handle.execute(text("select 1"))
    verify(producer, gid)
    producer.commit()
    producer.close()
    assert check_back(engine, gid).verdict is Verdict.COMMITTED
    engine.dispose()
