"""The application holds a pool's connection itself.

The barrier is asked without another one, and what dies there is replaced.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.integration.client.banks import CHECK, Bank
from tests.integration.client.ledgers import TRANSFER, PostgresLedger
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import AsyncMessage, Message, Progress

RECEIVER = "http://bank-b/transfer-in"
ENGINES = pytest.mark.kinds(where=lambda kind: kind.name.endswith(" engine") and not kind.is_async)
ASYNC_ENGINES = pytest.mark.kinds(where=lambda kind: kind.name.endswith("async engine"))
MARIADB = pytest.mark.kinds(where=lambda kind: kind.name == "mysql engine")
POSTGRES = pytest.mark.kinds(where=lambda kind: kind.name == "postgresql engine")


def fail_on_the_only_connection(
    bank: Bank,
    message: Message,
    of: str = "connection",
    before_it_fails: Callable[[], None] | None = None,
    *,
    rollback_fails: bool = False,
) -> None:
    engine = create_engine(bank.engine.url, pool_size=1, max_overflow=0, pool_timeout=0.5)
    try:
        with engine.connect() as connection:
            idle = connection if of == "connection" else Session(connection)
            with message.transaction(idle, CHECK):
                idle.execute(text(TRANSFER))
                if before_it_fails is not None:
                    before_it_fails()
                if rollback_fails:
                    event.listen(connection, "rollback", _fails, once=True)
                raise ZeroDivisionError
    finally:
        engine.dispose()


async def fail_on_the_only_async_connection(bank: Bank, message: AsyncMessage, of: str) -> None:
    engine = create_async_engine(bank.engine.url, pool_size=1, max_overflow=0, pool_timeout=0.5)
    try:
        async with engine.connect() as connection:
            idle: AsyncConnection | AsyncSession = connection if of == "connection" else AsyncSession(connection)
            async with message.transaction(idle, CHECK):
                await idle.execute(text(TRANSFER))
                raise ZeroDivisionError
    finally:
        await engine.dispose()


@ENGINES
@pytest.mark.parametrize("of", ["connection", "session"])
def test_an_error_of_the_block_is_told_from_a_commit(bank: Bank, coordinator: RecordingCoordinator, of: str) -> None:
    message = Message(coordinator.url).add(RECEIVER)
    with pytest.raises(ZeroDivisionError):
        fail_on_the_only_connection(bank, message, of)
    assert bank.ledger.balance() == 100
    assert (message.state, coordinator.operations) == (Progress.ROLLED_BACK, ["prepare", "abort"])


@ASYNC_ENGINES
@pytest.mark.parametrize("of", ["connection", "session"])
async def test_an_error_of_an_async_block_is_told_from_a_commit(
    bank: Bank, coordinator: RecordingCoordinator, of: str
) -> None:
    message = AsyncMessage(coordinator.url).add(RECEIVER)
    with pytest.raises(ZeroDivisionError):
        await fail_on_the_only_async_connection(bank, message, of)
    assert bank.ledger.balance() == 100
    assert (message.state, coordinator.operations) == (Progress.ROLLED_BACK, ["prepare", "abort"])


@POSTGRES
def test_a_connection_that_died_in_the_block_is_replaced(bank: Bank, coordinator: RecordingCoordinator) -> None:
    assert isinstance(bank.ledger, PostgresLedger)
    message = Message(coordinator.url).add(RECEIVER)
    with pytest.raises(ZeroDivisionError):
        fail_on_the_only_connection(bank, message, before_it_fails=bank.ledger.terminate_others)
    assert bank.ledger.balance() == 100
    assert (message.state, coordinator.operations) == (Progress.ROLLED_BACK, ["prepare", "abort"])


@POSTGRES
def test_a_block_whose_rollback_failed_is_not_committed(bank: Bank, coordinator: RecordingCoordinator) -> None:
    """A Session forgets a transaction whose rollback fails.

    The Connection is still in it.
    """
    message = Message(coordinator.url).add(RECEIVER)
    with pytest.raises(ZeroDivisionError):
        fail_on_the_only_connection(bank, message, of="session", rollback_fails=True)
    assert bank.ledger.balance() == 100
    assert (message.state, coordinator.operations) == (Progress.ROLLED_BACK, ["prepare", "abort"])


@MARIADB
def test_a_connection_that_dies_before_its_settings_are_put_back_is_replaced(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    """SQLAlchemy begins a transaction with that statement, and keeps it for open."""
    ledger = bank.ledger

    def die_once(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if "set session wait_timeout = cast" in statement:
            event.remove(connection, "before_cursor_execute", die_once)
            for (number,) in ledger.run(
                "select id from information_schema.processlist where db = database() and id <> connection_id()"
            ):
                ledger.run(f"kill {number}")

    with bank.engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", die_once)
        for _ in range(2):
            with Message(coordinator.url).add(RECEIVER).transaction(connection, CHECK):
                connection.execute(text(TRANSFER))
        assert not connection.in_transaction()
    assert ledger.balance() == 40
    assert coordinator.operations == ["prepare", "submit"] * 2


def _fails(_: object) -> None:
    raise RuntimeError


@POSTGRES
def test_a_connection_whose_session_is_rolled_back_is_kept(bank: Bank, coordinator: RecordingCoordinator) -> None:
    """A listener fails the Session's commit before COMMIT is sent."""
    message = Message(coordinator.url).add(RECEIVER)
    engine = create_engine(bank.engine.url)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("create temporary table of_this_connection (id int)")
            connection.commit()
            session = Session(connection)
            event.listen(session, "before_commit", _fails)
            with pytest.raises(RuntimeError), message.transaction(session, CHECK):
                session.execute(text(TRANSFER))
            connection.exec_driver_sql("select id from of_this_connection")
    finally:
        engine.dispose()
    assert bank.ledger.balance() == 100
