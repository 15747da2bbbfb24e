"""A real `twophase server` process for clients of queues.

A test may kill it, and start it again at its address.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from tests.support.fake_coordinator import get, post
from tests.support.server_process import ServerProcess
from twophase import AsyncClient, Client, RetryPolicy
from twophase.core.queue_operating import OneGroup
from twophase.server.api.queues_http import GROUPS_PATH

_SETTINGS: Final = {
    "TWOPHASE_TIMEOUT_TO_FAIL_MS": "1000",
    "TWOPHASE_CHECK_BACK_FIRST_MS": "200",
    "TWOPHASE_CHECK_BACK_CAP_MS": "500",
    "TWOPHASE_PRODUCER_ANSWER_MS": "2000",
    "TWOPHASE_CONNECTIONS_PER_ADDRESS_PERCENT": "100",
    "TWOPHASE_GRPC_PORT": "off",
}
PATIENT: Final = RetryPolicy(attempts=1_000, total=60)


class QueueServer:
    """See the module."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = arguments
        self._port = 0
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start it, at the same address as before."""
        self._process = await ServerProcess.spawn(
            "--port", str(self._port), *self._arguments, environment=_SETTINGS, cwd=self._folder
        )
        await self._process.until_ready()
        self._port = self._process.port

    async def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            await self._process.kill()
            self._process = None

    async def define_group(self, name: str, **settings: object) -> None:
        """Make a group, or change its settings, as operators do."""
        assert self._process is not None, "it runs"
        body = msgspec.json.encode({**settings, "who": "eve", "reason": "a test"})
        answer = await self._process.ask(post(f"{GROUPS_PATH}/{name}/define", body))
        assert answer.status == 200, answer.body

    async def not_done(self, group: str) -> int:
        """Return how many messages a group has not done, in all topics that it reads."""
        assert self._process is not None, "it runs"
        answer = await self._process.ask(get(f"{GROUPS_PATH}/{group}"))
        return sum(lag.lag for lag in msgspec.json.decode(answer.body, type=OneGroup).group.lags)

    def client(self, token: str | None = None) -> AsyncClient:
        """Return a client that outlives a restart."""
        return AsyncClient(self.url, retry=PATIENT, token=token)

    def blocking(self, token: str | None = None) -> Client:
        """Return a blocking client that outlives a restart."""
        return Client(self.url, retry=PATIENT, token=token, allow_event_loop=True)


@contextlib.asynccontextmanager
async def queue_server(folder: Path, *arguments: str) -> AsyncIterator[QueueServer]:
    """Run a server for the block's time."""
    server = QueueServer(folder, *arguments)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()
