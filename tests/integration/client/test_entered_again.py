"""A transaction that is entered again inside its own block.

The second entry is refused. The block that is open still ends: it commits, or it rolls back.
"""

from __future__ import annotations

import pytest
from sqlalchemy import text

from tests.integration.client.banks import CHECK, Bank
from tests.integration.client.ledgers import TRANSFER
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import AsyncMessage, Message, Progress
from twophase.errors import MessageUsedTwice

RECEIVER = "http://bank-b/transfer-in"
ENGINES = pytest.mark.kinds(where=lambda kind: kind.name.endswith(" engine") and not kind.is_async)
ASYNC_ENGINES = pytest.mark.kinds(where=lambda kind: kind.name.endswith("async engine"))


@ENGINES
def test_the_first_entry_still_commits(bank: Bank, coordinator: RecordingCoordinator) -> None:
    message = Message(coordinator.url).add(RECEIVER)
    transaction = message.transaction(bank.engine, CHECK)
    with transaction as connection:
        connection.execute(text(TRANSFER))
        with pytest.raises(MessageUsedTwice):
            transaction.__enter__()
    assert bank.ledger.balance() == 70
    assert message.submitted


@ENGINES
def test_an_error_still_rolls_back(bank: Bank, coordinator: RecordingCoordinator) -> None:
    message = Message(coordinator.url).add(RECEIVER)
    transaction = message.transaction(bank.engine, CHECK)

    def business() -> None:
        with transaction as connection:
            connection.execute(text(TRANSFER))
            with transaction:
                raise AssertionError("it is entered twice")

    with pytest.raises(MessageUsedTwice):
        business()
    assert bank.ledger.balance() == 100
    assert (message.state, coordinator.operations) == (Progress.ROLLED_BACK, ["prepare", "abort"])


@ASYNC_ENGINES
async def test_the_first_entry_still_commits_on_asyncio(bank: Bank, coordinator: RecordingCoordinator) -> None:
    message = AsyncMessage(coordinator.url).add(RECEIVER)
    transaction = message.transaction(bank.engine, CHECK)
    async with transaction as connection:
        await connection.execute(text(TRANSFER))
        with pytest.raises(MessageUsedTwice):
            await transaction.__aenter__()
    assert bank.ledger.balance() == 70
    assert message.submitted
