"""Servers are killed under groups of requests: no acknowledged message is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from benchmarks.servers.ports import KeptPort
from tests.servers.database import Database
from tests.support.server_process import BranchService, ServerProcess, branch_service
from tests.support.waiting import until
from twophase import AsyncClient, AsyncMessage, RetryPolicy

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]
_AT_A_TIME = 48
_KILLS = 4
_BETWEEN_KILLS = 150
"""Messages that are acknowledged before the next kill."""
_WAIT_S = 120.0
_LEASE_MS = 600_000
"""Longer than the test: nothing may wait for it, whenever a worker is killed."""


class Producers:
    """Producers that share one client, each with one message after the other."""

    def __init__(self, port: int, branch: BranchService) -> None:
        self.acknowledged: list[str] = []
        self._branch = branch
        url = f"http://127.0.0.1:{port}"
        self._client = AsyncClient(url, check=branch.url("/check"), retry=RetryPolicy(attempts=100, total=60))
        self._stopping = False

    async def run(self, kill: Callable[[], Awaitable[None]]) -> None:
        """Produce, and kill now and then."""
        async with self._client, asyncio.TaskGroup() as tasks:
            for number in range(_AT_A_TIME):
                tasks.create_task(self._produce(number))
            for _ in range(_KILLS):
                await self._until(len(self.acknowledged) + _BETWEEN_KILLS)
                await kill()
            await self._until(len(self.acknowledged) + _BETWEEN_KILLS)
            self._stopping = True

    async def _produce(self, number: int) -> None:
        count = 0
        while not self._stopping:
            message = AsyncMessage(self._client, gid=f"order-{number}-{count}").add(
                self._branch.url("/in"), {"n": count}
            )
            await message.prepare()
            await message.submit()
            self.acknowledged.append(message.gid)
            count += 1

    async def _until(self, count: int) -> None:
        await until(lambda: len(self.acknowledged) >= count, _WAIT_S)

    async def until_delivered(self) -> None:
        """Wait until every acknowledged message has reached its branch."""
        await until(
            lambda: set(self.acknowledged) <= {gid for path, gid in self._branch.calls if path == "/in"}, _WAIT_S
        )


async def test_groups_outlive_a_killed_server(tmp_path: Path) -> None:
    kept = KeptPort()  # the server that starts again needs the same port
    servers = [await ServerProcess.spawn("--port", str(kept.number), cwd=tmp_path)]
    try:
        await servers[0].until_ready()

        async def kill_the_server() -> None:
            await servers[-1].kill()
            servers.append(await ServerProcess.spawn("--port", str(kept.number), cwd=tmp_path))
            await servers[-1].until_ready()

        async with branch_service() as branch:
            producers = Producers(kept.number, branch)
            await producers.run(kill_the_server)
            await producers.until_delivered()
            assert (await servers[-1].terminate())[0] == 0
    finally:
        await servers[-1].kill()


@pytest.mark.postgres
async def test_groups_outlive_killed_workers(tmp_path: Path, postgres_database: Database) -> None:
    settings = ("--workers", "2", "--store", postgres_database.dsn, "--set", f"lease_ms={_LEASE_MS}")
    server = await ServerProcess.spawn("--port", "0", *settings, cwd=tmp_path)
    chance = random.Random(1)

    async def kill_a_worker() -> None:
        os.kill(chance.choice(sorted(server.workers)), signal.SIGKILL)

    try:
        await server.until_ready()
        async with branch_service() as branch:
            producers = Producers(server.port, branch)
            await producers.run(kill_a_worker)
            await producers.until_delivered()
            assert (await server.terminate())[0] == 0
    finally:
        await server.kill()
