"""A branch that a forgotten task adds while the block ends.

It is in the barrier row, or it is refused: a check-back must answer with every branch that a submit would send.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.client.banks import Bank, BusinessHandle
from tests.integration.client.ledgers import TRANSFER
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import AsyncMessage
from twophase.core.message import decode_branches
from twophase.errors import InvalidRequest


@pytest.mark.kinds(where=lambda kind: kind.is_async and kind.database == "postgresql")
async def test_a_branch_that_a_forgotten_task_adds_is_in_the_row_or_refused(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = AsyncMessage(coordinator.url, allow_late_branches=True).add("http://bank-b/in")
    forgotten: list[asyncio.Task[None]] = []

    async def add() -> None:
        for number in range(1_000):
            try:
                message.add(f"http://bank-b/late/{number}")
            except InvalidRequest:
                return
            await asyncio.sleep(0)

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        forgotten.append(asyncio.create_task(add()))

    await bank.transact(message, business)
    await forgotten[0]
    answer = bank.ledger.check_back(message.gid)
    assert answer.body is not None
    assert decode_branches(answer.body) == message.branches[1:]
