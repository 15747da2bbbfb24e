"""An `AsyncMessage.join` that nothing awaits.

The Session's commit is refused, so the message is not lost.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from tests.integration.client.banks import CHECK, Bank
from tests.integration.client.ledgers import TRANSFER
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import AsyncMessage
from twophase.errors import FunctionRefused

pytestmark = pytest.mark.kinds(where=lambda kind: kind.name.endswith(" async engine"))


def transfer_message(coordinator: RecordingCoordinator) -> AsyncMessage:
    return AsyncMessage(coordinator.url).add("http://bank-b/transfer-in", {"amount": 30})


@pytest.fixture(autouse=True)
def _python_s_own_warning_is_allowed() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
        gc.collect()


@pytest.mark.parametrize("writes_first", [True, False])
async def test_commit_behind_a_join_that_was_not_awaited_is_refused(
    bank: Bank, coordinator: RecordingCoordinator, writes_first: bool
) -> None:
    async with AsyncSession(bank.engine) as session:
        if writes_first:
            await session.execute(text(TRANSFER))
        _ = transfer_message(coordinator).join(session, CHECK)
        if not writes_first:
            await session.execute(text(TRANSFER))
        for _ in range(2):
            with pytest.raises(FunctionRefused, match="was not awaited"):
                await session.commit()
        await session.rollback()
        assert bank.ledger.balance() == 100
        assert coordinator.operations == []

        await session.execute(text(TRANSFER))
        message = await transfer_message(coordinator).join(session, CHECK)
        await session.commit()
    assert bank.ledger.balance() == 70
    assert message.submitted


async def test_block_of_the_session_is_rolled_back(bank: Bank, coordinator: RecordingCoordinator) -> None:
    async def business() -> None:
        async with AsyncSession(bank.engine) as session, session.begin():
            await session.execute(text(TRANSFER))
            _ = transfer_message(coordinator).join(session, CHECK)

    with pytest.raises(FunctionRefused, match="was not awaited"):
        await business()
    assert bank.ledger.balance() == 100


async def test_join_that_a_task_awaits_and_a_savepoint_meanwhile_are_not_refused(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async with AsyncSession(bank.engine) as session:
        joining = transfer_message(coordinator).join(session, CHECK)
        async with session.begin_nested():
            await session.execute(text("select 1"))
        message = await asyncio.wait_for(joining, 10)
        await session.execute(text(TRANSFER))
        await session.commit()
    assert message.submitted
    assert bank.ledger.balance() == 70


async def test_join_that_was_cancelled_before_it_began_counts_as_not_awaited(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async with AsyncSession(bank.engine) as session:
        joining = asyncio.create_task(transfer_message(coordinator).join(session, CHECK))
        joining.cancel()
        await asyncio.wait([joining])
        await session.execute(text(TRANSFER))
        with pytest.raises(FunctionRefused, match="was not awaited"):
            await session.commit()
    assert bank.ledger.balance() == 100
