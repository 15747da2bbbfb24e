"""A cancellation at each await of a transaction, branch or check-back.

Each call is cancelled at its first await, then at its second, and so on to the last. Nothing is lost, nothing is a
ghost, no row stays held, and the engine works on.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from tests.integration.client.banks import CHECK, Bank, BusinessHandle
from tests.integration.client.ledgers import TRANSFER
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import AsyncMessage, Verdict
from twophase.barrier import aonce
from twophase.barrier.asking import acheck_back

AWAITS_MAX = 400
POOLS = pytest.mark.kinds(where=lambda kind: kind.is_async and kind.name not in ("asyncpg connection", "psycopg async"))
"""Kinds without a connection that the application itself has opened.

After an unclear commit such a one is closed.
"""
ASYNC = pytest.mark.kinds(where=lambda kind: kind.is_async)
SQLALCHEMY = pytest.mark.kinds(
    where=lambda kind: kind.is_async and kind.name.endswith("async engine") and kind.database != "sqlite"
)


async def cancelled_at(work: Coroutine[Any, Any, Any], number: int) -> bool:
    """Run `work`, and cancel its task while it waits for the n-th time.

    Returns False when it ended before.
    """
    reached = False

    @types.coroutine
    def steps() -> Generator[Any, Any, Any]:
        nonlocal reached
        waits, step, value = 0, work.send, None
        while True:
            try:
                waiting = step(value)
            except StopIteration as stop:
                return stop.value
            waits += 1
            if waits == number:
                reached = True
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                value, step = (yield waiting), work.send
            except BaseException as error:  # noqa: BLE001 -- handed on, as a task does
                value, step = error, work.throw

    async def run() -> None:
        await steps()

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return reached


def assert_agreed(bank: Bank, gid: str, operations: list[str], before: int) -> None:
    """Assert that balance, barrier and coordinator tell one story about a message."""
    verdict = bank.ledger.check_back(gid).verdict
    assert verdict in {Verdict.COMMITTED, Verdict.ROLLED_BACK}
    assert bank.ledger.balance() == before - 30 * (verdict is Verdict.COMMITTED)
    assert "submit" not in operations or verdict is Verdict.COMMITTED
    assert "abort" not in operations or verdict is Verdict.ROLLED_BACK


async def transfer(handle: BusinessHandle) -> None:
    await handle.execute(TRANSFER)


@ASYNC
async def test_a_transaction_that_is_cancelled_anywhere(bank: Bank, coordinator: RecordingCoordinator) -> None:
    for number in range(1, AWAITS_MAX):
        coordinator.requests.clear()
        message, before = AsyncMessage(coordinator.url).add("http://bank-b/in", {}), bank.ledger.balance()
        reached = await cancelled_at(bank.transact(message, transfer), number)
        assert_agreed(bank, message.gid, coordinator.operations, before)
        if not reached:
            assert message.submitted
            return
    raise AssertionError("it never ends")


@POOLS
async def test_a_branch_that_is_cancelled_anywhere(bank: Bank) -> None:
    for number in range(1, AWAITS_MAX):
        call = {"gid": f"g{number}", "branch_id": "01", "op": "action", "trans_type": "msg"}
        before = bank.ledger.balance()
        reached = await cancelled_at(aonce(bank.engine, call, lambda handle: transfer(BusinessHandle(handle))), number)
        assert bank.ledger.balance() in {before, before - 30}
        await aonce(bank.engine, call, lambda handle: transfer(BusinessHandle(handle)))
        assert bank.ledger.balance() == before - 30
        if not reached:
            return
    raise AssertionError("it never ends")


@ASYNC
async def test_a_check_back_that_is_cancelled_anywhere(bank: Bank) -> None:
    for number in range(1, AWAITS_MAX):
        if not await cancelled_at(acheck_back(bank.engine, f"g{number}"), number):
            return
        assert bank.ledger.check_back(f"g{number}").verdict is Verdict.ROLLED_BACK
    raise AssertionError("it never ends")


@SQLALCHEMY
async def test_a_joined_session_that_is_cancelled_anywhere(bank: Bank, coordinator: RecordingCoordinator) -> None:
    async def join(message: AsyncMessage) -> None:
        async with AsyncSession(bank.engine) as session, session.begin():
            await message.join(session, CHECK)
            await transfer(BusinessHandle(session))

    for number in range(1, AWAITS_MAX):
        coordinator.requests.clear()
        message, before = AsyncMessage(coordinator.url).add("http://bank-b/in", {}), bank.ledger.balance()
        reached = await cancelled_at(join(message), number)
        assert_agreed(bank, message.gid, coordinator.operations, before)
        if not reached:
            assert message.submitted
            return
    raise AssertionError("it never ends")
