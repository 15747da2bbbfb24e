"""A cancellation, even a second one, does not cut off the return of a connection."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from twophase.barrier.shelter import give_back


class SlowTransaction:
    """A transaction that rolls back when the test allows it; it runs no statements."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.ended: list[str] = []

    async def rollback(self) -> None:
        await self.let.wait()
        self.ended.append("rolled back")

    async def close(self) -> None:
        self.ended.append("closed")


@pytest.mark.parametrize("cancellations", [1, 2, 3])
async def test_a_rollback_under_way_ends_before_the_cancellation_goes_on(cancellations: int) -> None:
    transaction = SlowTransaction()
    giving_back = asyncio.create_task(give_back(transaction))  # type: ignore[arg-type] # it executes nothing
    for _ in range(cancellations):
        await asyncio.sleep(0)
        giving_back.cancel()
    for _ in range(4):
        await asyncio.sleep(0)
    assert not giving_back.done()
    transaction.let.set()
    with contextlib.suppress(asyncio.CancelledError):
        await giving_back
    assert transaction.ended == ["rolled back", "closed"]
    assert giving_back.cancelled()
