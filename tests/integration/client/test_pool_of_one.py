"""The barrier is asked without another connection of the pool.

The application holds the pool's only connection itself.
"""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.integration.client.banks import CHECK, Bank
from tests.integration.client.ledgers import TRANSFER, PostgresLedger
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import AsyncMessage, Message, Progress

RECEIVER = "http://bank-b/transfer-in"
ENGINES = pytest.mark.kinds(where=lambda kind: kind.name.endswith(" engine") and not kind.is_async)
ASYNC_ENGINES = pytest.mark.kinds(where=lambda kind: kind.name.endswith("async engine"))
POSTGRES = pytest.mark.kinds(where=lambda kind: kind.name == "postgresql engine")
ONE = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.5}


@ENGINES
@pytest.mark.parametrize("of", ["connection", "session"])
def test_an_error_of_the_block_is_told_from_a_commit(bank: Bank, coordinator: RecordingCoordinator, of: str) -> None:
    engine = create_engine(bank.engine.url, **ONE)
    message = Message(coordinator.url).add(RECEIVER)
    with engine.connect() as connection:
        idle = connection if of == "connection" else Session(connection)
        with pytest.raises(ZeroDivisionError), message.transaction(idle, CHECK):
            idle.execute(text(TRANSFER))
            raise ZeroDivisionError
    engine.dispose()
    assert bank.ledger.balance() == 100
    assert (message.state, coordinator.operations) == (Progress.ROLLED_BACK, ["prepare", "abort"])


@ASYNC_ENGINES
@pytest.mark.parametrize("of", ["connection", "session"])
async def test_an_error_of_an_async_block_is_told_from_a_commit(
    bank: Bank, coordinator: RecordingCoordinator, of: str
) -> None:
    engine = create_async_engine(bank.engine.url, **ONE)
    message = AsyncMessage(coordinator.url).add(RECEIVER)
    async with engine.connect() as connection:
        idle = connection if of == "connection" else AsyncSession(connection)
        with pytest.raises(ZeroDivisionError):
            async with message.transaction(idle, CHECK):
                await idle.execute(text(TRANSFER))
                raise ZeroDivisionError
    await engine.dispose()
    assert bank.ledger.balance() == 100
    assert (message.state, coordinator.operations) == (Progress.ROLLED_BACK, ["prepare", "abort"])


@POSTGRES
def test_a_connection_that_died_in_the_block_is_replaced(bank: Bank, coordinator: RecordingCoordinator) -> None:
    assert isinstance(bank.ledger, PostgresLedger)
    engine = create_engine(bank.engine.url, **ONE)
    message = Message(coordinator.url).add(RECEIVER)
    with engine.connect() as connection, pytest.raises(ZeroDivisionError), message.transaction(connection, CHECK):
        connection.execute(text(TRANSFER))
        bank.ledger.terminate_others()
        raise ZeroDivisionError
    engine.dispose()
    assert bank.ledger.balance() == 100
    assert (message.state, coordinator.operations) == (Progress.ROLLED_BACK, ["prepare", "abort"])
