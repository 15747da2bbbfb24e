"""Two server processes on one database, and a topic that changes at one of them.

The other uses the change within the bound that it states.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count
from pathlib import Path

import pytest

from tests.servers.database import Database
from tests.support.fake_coordinator import get
from tests.support.server_process import BranchService, ServerProcess, serving

pytestmark = pytest.mark.postgres

INTERVAL_MS = 200
MACHINE_S = 15.0
"""Time that this machine may need for a request and a reading, beside others."""


async def test_a_change_at_one_node_is_used_at_once_there_and_within_the_interval_at_the_other(
    tmp_path: Path, postgres_database: Database, branches: BranchService
) -> None:
    arguments = ("--store", postgres_database.dsn, "--set", f"topics_interval_ms={INTERVAL_MS}")
    address = branches.url("/in")
    async with serving(tmp_path, *arguments) as one, serving(tmp_path, *arguments) as two:
        assert await _submit(one, "before") == await _submit(two, "before") == 500

        assert (await one.ask(get(f"/api/dtmsvr/subscribe?topic=rates&url={address}"))).status == 200
        began_s = time.monotonic()
        assert await _submit(one, "at-once") == 200
        gid = await _until(two, 200)
        assert time.monotonic() - began_s < INTERVAL_MS / 1000 + MACHINE_S
        await branches.until_called("/in", "at-once")
        await branches.until_called("/in", gid)

        assert (await two.ask(get(f"/api/dtmsvr/unsubscribe?topic=rates&url={address}"))).status == 200
        began_s = time.monotonic()
        assert await _submit(two, "left") == 500
        await _until(one, 500)
        assert time.monotonic() - began_s < INTERVAL_MS / 1000 + MACHINE_S


async def _submit(server: ServerProcess, gid: str) -> int:
    steps = [{"action": "topic://rates"}]
    return (await server.post("submit", gid=gid, steps=steps, payloads=["{}"])).status


async def _until(server: ServerProcess, status: int) -> str:
    """Submit new messages until one is answered by this status; return its gid."""
    async with asyncio.timeout(60):
        for number in count():
            gid = f"{status}-{number}"
            if await _submit(server, gid) == status:
                return gid
            await asyncio.sleep(0.01)
    raise AssertionError("unreachable")
