"""A connection that a network's partition has silenced.

A call that is cancelled meanwhile ends within a bound, although neither ROLLBACK nor the pool's reset is answered.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.client.banks import Bank, BusinessHandle, Kind
from tests.integration.client.ledgers import TRANSFER, PostgresLedger
from tests.servers.proxy import Proxy
from twophase.barrier import aonce, shelter

CALL = {"gid": "silent", "branch_id": "01", "op": "action", "trans_type": "msg"}


@pytest.mark.kinds(where=lambda kind: kind.name in ("asyncpg pool", "postgresql async engine"))
async def test_a_cancelled_branch_ends_within_its_bound(
    kind: Kind, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelter, "END_SECONDS_MAX", 0.5)
    with Proxy(ledger.database.host, ledger.database.port) as proxy:
        bank = Bank(kind, ledger, await kind.open(ledger, proxy.port))

        async def business(handle: object) -> None:
            proxy.partition()
            await BusinessHandle(handle).execute(TRANSFER)

        branch = asyncio.create_task(aonce(bank.engine, CALL, business))
        await asyncio.sleep(0.5)
        branch.cancel()
        ended, _ = await asyncio.wait([branch], timeout=8)
        proxy.cut()
        proxy.heal()
        await asyncio.wait([branch])
        await bank.close()
    assert ended
    assert branch.cancelled()
