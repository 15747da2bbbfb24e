"""A call that takes longer than the lease.

The node that waits for the call is alive, so no other node makes the call, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.servers.database import Database
from tests.support.fake_coordinator import get
from tests.support.server_process import BranchService, ServerProcess, serving

pytestmark = pytest.mark.postgres
LEASE_MS = 6_000
"""The lease; a busy machine delays a node for less.

With a shorter lease a delayed node would count as dead.
"""
SETTINGS = (f"lease_ms={LEASE_MS}", "retry_first_ms=50", "check_back_first_ms=50")


@pytest.fixture
async def two(tmp_path: Path, database: Database) -> AsyncIterator[list[ServerProcess]]:
    """Two servers on one database."""
    dsn = f"postgresql://{database.user}:{database.password}@{database.host}:{database.port}/{database.name}"
    arguments = ["--store", dsn, *(part for one in SETTINGS for part in ("--set", one))]
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(serving(tmp_path, *arguments)) for _ in range(2)]


async def _leases_pass(servers: list[ServerProcess], count: float) -> None:
    """Wait for the time of `count` leases, by the heartbeats of both nodes."""
    async with asyncio.timeout(60):
        ends_s = asyncio.get_running_loop().time() + count * LEASE_MS / 1000
        while asyncio.get_running_loop().time() < ends_s:
            for server in servers:
                assert (await server.ask(get("/health/ready"))).status == 200
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", ["branch", "check-back"])
async def test_it_is_made_once(two: list[ServerProcess], branches: BranchService, kind: str) -> None:
    first, second = two
    said = {"steps": [{"action": branches.url("/in")}], "payloads": ["{}"], "request_timeout": 30}
    path = "/in" if kind == "branch" else "/check"
    branches.open.clear()
    if kind == "branch":
        assert (await first.post("submit", gid="g", **said)).status == 200
    else:
        asked = {"query_prepared": branches.url("/check"), "timeout_to_fail_ms": 1}
        assert (await first.post("prepare", gid="g", **said, **asked)).status == 200
    await branches.until_called(path, "g")
    await _leases_pass(two, 1.6)
    assert branches.calls == [(path, "g")]
    branches.open.set()
    await second.until_state("g", "succeed")
    assert branches.calls.count(("/in", "g")) == 1


async def test_when_its_node_dies_the_other_calls_it_again(two: list[ServerProcess], branches: BranchService) -> None:
    first, second = two
    branches.open.clear()
    said = {"steps": [{"action": branches.url("/in")}], "payloads": ["{}"], "request_timeout": 30}
    assert (await first.post("submit", gid="g", **said)).status == 200
    await branches.until_called("/in", "g")
    await first.kill()
    await branches.until_called("/in", "g", times=2)
    branches.open.set()
    await second.until_state("g", "succeed")
