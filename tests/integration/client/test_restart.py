"""A coordinator that is killed and started again within a producer's timeout.

No request is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.ports import KeptPort
from tests.support.server_process import ServerProcess
from twophase import AsyncClient, AsyncMessage, Client, Message, RetryPolicy

PATIENCE_S = 60.0


class RestartedServer:
    """A server process that is killed, and started again at the same addresses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._http, self._grpc = KeptPort(), KeptPort()
        self._process: ServerProcess | None = None

    def url(self, scheme: str) -> str:
        return f"{scheme}://127.0.0.1:{(self._http if scheme == 'http' else self._grpc).number}"

    async def start(self) -> None:
        words = ("--port", str(self._http.number), "--grpc-port", str(self._grpc.number))
        self._process = await ServerProcess.spawn(*words, cwd=self._folder)
        await self._process.until_ready()

    async def kill(self) -> None:
        assert self._process is not None
        await self._process.kill()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RestartedServer]:
    one = RestartedServer(tmp_path)
    await one.start()
    yield one
    await one.kill()


async def prepare_and_submit(endpoint: Any, message: Any = None) -> Message | AsyncMessage:
    message = message or endpoint.message().add("http://127.0.0.1:1/in", {})
    if isinstance(endpoint, AsyncClient):
        await message.prepare("http://127.0.0.1:1/check")
        done: AsyncMessage = await message.submit()
        return done
    await asyncio.to_thread(message.prepare, "http://127.0.0.1:1/check")
    return await asyncio.to_thread(message.submit)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
async def test_requests_made_while_the_coordinator_restarts_get_through(server: RestartedServer, scheme: str) -> None:
    retry = RetryPolicy(attempts=1, total=PATIENCE_S)
    endpoints = [kind(server.url(scheme), retry=retry) for kind in (Client, AsyncClient)]
    for endpoint in endpoints:
        await prepare_and_submit(endpoint)  # its connection is open when the server is killed
    await server.kill()
    # Such a request is refused at once, while the new process is still loading.
    during = [asyncio.create_task(prepare_and_submit(endpoint)) for endpoint in endpoints for _ in range(2)]
    await server.start()
    assert all(message.submitted for message in await asyncio.gather(*during))
