"""Engines whose transactions cannot keep the promises are refused.

Nothing of theirs is touched.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import pymysql
import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.integration.client.banks import CHECK, Bank, BusinessHandle
from tests.integration.client.ledgers import TRANSFER, SqliteLedger
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import AsyncClient, AsyncMessage, Client, Message, Progress
from twophase.barrier import aonce, once
from twophase.errors import (
    AutocommitRefused,
    BarrierTableMissing,
    CommittedDespiteError,
    OpenTransaction,
    UnsafeDatabase,
    UnsupportedEngine,
)


def message_for(coordinator: RecordingCoordinator) -> Message:
    return Message(coordinator.url).add("http://bank-b/transfer-in", {"amount": 30})


def refuse(
    coordinator: RecordingCoordinator, engine: Any, error: type[Exception], sent: list[str] | None = None
) -> Message:
    message = message_for(coordinator)
    ran = False
    with pytest.raises(error), message.transaction(engine, check=CHECK):
        ran = True
    assert not ran
    if sent is None:
        assert not {"submit", "abort"} & set(coordinator.operations)
    else:
        assert coordinator.operations == sent
    assert message.state is Progress.NOT_STARTED
    return message


@pytest.fixture
def sqlite_ledger(tmp_path: Any) -> Any:
    ledger = SqliteLedger(tmp_path)
    yield ledger
    ledger.close()


@pytest.mark.kinds(where=lambda kind: kind.name.endswith((" connection", " session")) and not kind.is_async)
def test_connection_in_a_transaction_is_refused_and_stays_in_it(bank: Bank, coordinator: RecordingCoordinator) -> None:
    bank.engine.execute(text(TRANSFER))
    refuse(coordinator, bank.engine, OpenTransaction)
    bank.engine.rollback()
    assert bank.ledger.balance() == 100
    assert bank.ledger.barrier() == []


@pytest.mark.kinds(where=lambda kind: kind.name in {"sqlite3", "psycopg", "pymysql"})
def test_driver_connection_in_a_transaction_is_refused_and_stays_in_it(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    cursor = bank.engine.cursor()
    cursor.execute(TRANSFER)
    refuse(coordinator, bank.engine, OpenTransaction)
    bank.engine.commit()
    assert bank.ledger.balance() == 70
    assert bank.ledger.barrier() == []


@pytest.mark.kinds(where=lambda kind: kind.name == "asyncpg connection")
async def test_asyncpg_connection_in_a_transaction_is_refused(bank: Bank, coordinator: RecordingCoordinator) -> None:
    async with bank.engine.transaction():
        with pytest.raises(OpenTransaction):
            async with message_for(coordinator).transaction(bank.engine, check=CHECK):
                pytest.fail("the business ran")


@pytest.mark.kinds(where=lambda kind: kind.name.endswith(" session") and not kind.is_async)
def test_session_on_a_connection_in_a_transaction_is_refused(bank: Bank, coordinator: RecordingCoordinator) -> None:
    engine = bank.engine.get_bind()
    with engine.connect() as connection, connection.begin(), Session(connection) as inner:
        refuse(coordinator, inner, OpenTransaction)


@pytest.mark.kinds(where=lambda kind: not kind.name.endswith((" engine", " pool")))
async def test_open_transaction_on_a_known_database_is_refused_before_anything_is_sent(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async def nothing(_: BusinessHandle) -> None:
        pytest.fail("the business ran")

    await bank.transact(message_for(coordinator), lambda business: business.execute(TRANSFER))
    sent = list(coordinator.operations)
    handle = BusinessHandle(bank.engine)
    if bank.kind.name.startswith("asyncpg"):
        await handle.execute("begin")  # else each statement commits by itself
    await handle.execute(TRANSFER)
    with pytest.raises(OpenTransaction):
        await bank.transact(message_for(coordinator), nothing)
    assert coordinator.operations == sent


def test_open_scoped_session_is_refused_before_anything_is_sent(
    sqlite_ledger: SqliteLedger, coordinator: RecordingCoordinator
) -> None:
    engine = create_engine(f"sqlite:///{sqlite_ledger.path}")
    session = scoped_session(sessionmaker(engine))
    with message_for(coordinator).transaction(session, check=CHECK):
        session.execute(text(TRANSFER))
    sent = list(coordinator.operations)
    session.execute(text(TRANSFER))
    refuse(coordinator, session, OpenTransaction, sent)
    session.remove()
    engine.dispose()


def test_session_on_an_open_connection_is_refused_before_anything_is_sent(
    sqlite_ledger: SqliteLedger, coordinator: RecordingCoordinator
) -> None:
    engine = create_engine(f"sqlite:///{sqlite_ledger.path}")
    with engine.connect() as connection, Session(connection) as session:
        with message_for(coordinator).transaction(session, check=CHECK):
            session.execute(text(TRANSFER))
        sent = list(coordinator.operations)
        connection.execute(text(TRANSFER))
        refuse(coordinator, session, OpenTransaction, sent)
    engine.dispose()


@pytest.mark.kinds(where=lambda kind: kind.name.endswith(" engine") and not kind.is_async)
def test_autocommit_engine_is_refused(bank: Bank, coordinator: RecordingCoordinator) -> None:
    refuse(coordinator, bank.engine.execution_options(isolation_level="AUTOCOMMIT"), AutocommitRefused)
    assert bank.ledger.barrier() == []


@pytest.mark.kinds(where=lambda kind: kind.name.endswith(" engine") and kind.is_async)
async def test_autocommit_async_engine_is_refused(bank: Bank, coordinator: RecordingCoordinator) -> None:
    engine = bank.engine.execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(AutocommitRefused):
        async with message_for(coordinator).transaction(engine, check=CHECK):
            pytest.fail("the business ran")
    assert bank.ledger.barrier() == []


@pytest.mark.kinds(where=lambda kind: kind.name == "psycopg")
def test_psycopg_in_autocommit_is_refused(bank: Bank, coordinator: RecordingCoordinator) -> None:
    bank.engine.autocommit = True
    refuse(coordinator, bank.engine, AutocommitRefused)


@pytest.mark.kinds(where=lambda kind: kind.name == "pymysql")
def test_pymysql_in_autocommit_is_refused(bank: Bank, coordinator: RecordingCoordinator) -> None:
    bank.engine.autocommit(True)
    refuse(coordinator, bank.engine, AutocommitRefused)


@pytest.mark.kinds(where=lambda kind: kind.database == "mysql" and kind.name.endswith((" engine", " session")))
async def test_autocommit_that_a_block_switches_on_does_not_stay_in_the_pool(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async def switch(business: BusinessHandle) -> None:
        await business.execute(TRANSFER)
        await business.execute("set autocommit = 1")

    with pytest.raises(CommittedDespiteError):
        await bank.transact(message_for(coordinator), switch)
    following = message_for(coordinator)
    await bank.transact(following, lambda business: business.execute(TRANSFER))
    assert following.submitted
    assert bank.ledger.balance() == 40


def test_pymysql_connection_that_never_connected_is_refused_by_its_driver(coordinator: RecordingCoordinator) -> None:
    connection = pymysql.connect(host="127.0.0.1", port=1, defer_connect=True)
    refuse(coordinator, connection, pymysql.err.Error, [])


def test_sqlite3_in_autocommit_is_refused(sqlite_ledger: SqliteLedger, coordinator: RecordingCoordinator) -> None:
    connection = sqlite3.connect(sqlite_ledger.path, isolation_level=None)
    refuse(coordinator, connection, AutocommitRefused)
    connection.close()


@pytest.mark.parametrize("engine", [None, 5, "postgresql://bank", object()])
def test_thing_that_is_no_engine_is_refused_before_anything_is_sent(
    engine: object, coordinator: RecordingCoordinator
) -> None:
    refuse(coordinator, engine, UnsupportedEngine)
    assert coordinator.operations == []


def test_async_engine_in_a_sync_block_is_refused(coordinator: RecordingCoordinator) -> None:
    refuse_before = message_for(coordinator)
    engine: Any = create_async_engine("sqlite+aiosqlite://")
    with (
        pytest.raises(UnsupportedEngine, match="async with"),
        refuse_before.transaction(engine, check=CHECK),
    ):
        pytest.fail("the business ran")
    assert refuse_before.state is Progress.NEW


async def test_sync_engine_in_an_async_block_is_refused(coordinator: RecordingCoordinator) -> None:
    engine: Any = create_engine("sqlite://")
    with pytest.raises(UnsupportedEngine, match="write `with"):
        async with message_for(coordinator).transaction(engine, check=CHECK):
            pytest.fail("the business ran")


@pytest.mark.parametrize("bind", [lambda engine: engine, Session])
def test_sync_side_of_an_async_engine_is_refused_with_the_remedy(
    bind: Any, tmp_path: Any, coordinator: RecordingCoordinator
) -> None:
    engine = bind(create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'bank.db'}").sync_engine)
    refuse(coordinator, engine, UnsupportedEngine, [])
    with pytest.raises(UnsupportedEngine, match="Give the AsyncEngine"):
        once(engine, {"gid": "g", "branch_id": "01", "op": "action"}, lambda _: pytest.fail("the effect ran"))


@pytest.mark.parametrize("binds", [{}, {Session: create_engine("sqlite://")}])
def test_session_without_an_engine_by_default_is_refused_with_the_remedy(
    binds: Any, coordinator: RecordingCoordinator
) -> None:
    session = Session(binds=binds)
    refuse(coordinator, session, UnsupportedEngine, [])
    with pytest.raises(UnsupportedEngine, match="Make it as `Session"):
        message_for(coordinator).join(session, CHECK)
    with pytest.raises(UnsupportedEngine, match="Make it as `Session"):
        once(session, {"gid": "g", "branch_id": "01", "op": "action"}, lambda _: pytest.fail("the effect ran"))
    assert coordinator.operations == []


async def test_async_session_without_an_engine_by_default_is_refused_with_the_remedy(
    coordinator: RecordingCoordinator,
) -> None:
    message = AsyncMessage(coordinator.url).add("http://bank-b/transfer-in")
    with pytest.raises(UnsupportedEngine, match="Make it as `Session"):
        await message.join(AsyncSession(), CHECK)
    with pytest.raises(UnsupportedEngine, match="Make it as `Session"):
        async with message.transaction(AsyncSession(), CHECK):
            pytest.fail("the business ran")
    with pytest.raises(UnsupportedEngine, match="Make it as `Session"):
        await aonce(AsyncSession(), {"gid": "g", "branch_id": "01", "op": "action"}, lambda _: pytest.fail("it ran"))
    assert coordinator.operations == []


def test_database_without_a_barrier_is_refused_before_anything_is_sent(
    tmp_path: Any, coordinator: RecordingCoordinator
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'empty.db'}")
    refuse(coordinator, engine, BarrierTableMissing)
    assert coordinator.operations == []
    engine.dispose()


def forgets_commits(engine: Engine) -> None:
    """Keep the rollback journal in memory.

    A crash in the middle of a commit then damages the file.
    """

    @event.listens_for(engine, "begin")
    def _journal_in_memory(connection: Any) -> None:
        connection.exec_driver_sql("pragma journal_mode = memory")


def test_database_that_may_forget_commits_is_refused_unless_allowed(
    sqlite_ledger: SqliteLedger, coordinator: RecordingCoordinator
) -> None:
    sqlite_ledger.run("pragma journal_mode = delete")
    engine = create_engine(f"sqlite:///{sqlite_ledger.path}")
    forgets_commits(engine)
    refuse(coordinator, engine, UnsafeDatabase)
    assert coordinator.operations == []

    with Client(coordinator.url, allow_unsafe_database=True) as careless:
        message = careless.message().add("http://bank-b/transfer-in")
        with message.transaction(engine, check=CHECK) as connection:
            connection.execute(text(TRANSFER))
        assert message.submitted
    # A producer of its own, because the one before remembers that the database was looked at.
    with Client(coordinator.url, allow_unsafe_database=True) as careless, Session(engine) as session:
        joined = careless.message().add("http://bank-b/transfer-in").join(session, CHECK)
        session.commit()
    assert joined.submitted
    engine.dispose()


def test_session_whose_connection_may_forget_commits_is_refused_though_the_engine_was_found_safe(
    sqlite_ledger: SqliteLedger, coordinator: RecordingCoordinator
) -> None:
    """A Session that has written cannot be made careful any more.

    SQLite accepts no such change inside a transaction.
    """
    engine = create_engine(f"sqlite:///{sqlite_ledger.path}")

    @event.listens_for(engine, "connect")
    def _careless(connection: Any, _: object) -> None:
        connection.execute("pragma synchronous = off")

    with Client(coordinator.url) as producer:
        first = producer.message().add("http://bank-b/transfer-in")
        with first.transaction(engine, check=CHECK) as connection:
            connection.execute(text(TRANSFER))
        assert first.submitted
        with Session(engine) as session:
            session.execute(text(TRANSFER))
            with pytest.raises(UnsafeDatabase, match="synchronous"):
                producer.message().add("http://bank-b/transfer-in").join(session, check=CHECK)
            session.rollback()
    assert coordinator.operations.count("submit") == 1
    with Client(coordinator.url, allow_unsafe_database=True) as careless, Session(engine) as session:
        third = careless.message().add("http://bank-b/transfer-in")
        with third.transaction(session, check=CHECK):
            session.execute(text(TRANSFER))
        assert third.submitted
    engine.dispose()


async def test_async_database_that_may_forget_commits_is_refused_unless_allowed(
    sqlite_ledger: SqliteLedger, coordinator: RecordingCoordinator
) -> None:
    sqlite_ledger.run("pragma journal_mode = delete")
    engine = create_async_engine(f"sqlite+aiosqlite:///{sqlite_ledger.path}")
    forgets_commits(engine.sync_engine)
    with pytest.raises(UnsafeDatabase):
        async with message_for(coordinator).transaction(engine, check=CHECK):
            pytest.fail("the business ran")
    assert coordinator.operations == []

    async with AsyncClient(coordinator.url, allow_unsafe_database=True) as careless:
        message = careless.message().add("http://bank-b/transfer-in")
        async with message.transaction(engine, check=CHECK) as connection:
            await connection.execute(text(TRANSFER))
        assert message.submitted
    async with AsyncClient(coordinator.url, allow_unsafe_database=True) as careless, AsyncSession(engine) as session:
        joined = await careless.message().add("http://bank-b/transfer-in").join(session, CHECK)
        await session.commit()
    assert joined.submitted
    await engine.dispose()
