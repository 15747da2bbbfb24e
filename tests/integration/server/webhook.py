"""A webhook that takes alerts, refuses them or hangs.

Beside it stand branches that fail until the test lets them succeed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec


class Sink:
    """A webhook that takes alerts by POST.

    It answers `status`, or never while it `hangs`.
    """

    def __init__(self) -> None:
        self.status = 200
        self.hangs = False
        self.alerts: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.connected = 0
        self.connected_most = 0
        self.port = 0

    def url(self, login: str = "") -> str:
        return f"http://{login}127.0.0.1:{self.port}/services/T0/path-secret?token=query-secret"

    async def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for an alert for which this holds."""
        async with asyncio.timeout(60):
            while True:
                found = next((alert for alert in self.alerts if holds(alert)), None)
                if found is not None:
                    return found
                await asyncio.sleep(0.01)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        self.connected_most = max(self.connected_most, self.connected)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                    length = int(head.lower().partition("content-length:")[2].split()[0])
                    body = await reader.readexactly(length)
                    self.heads.append(head)
                    self.alerts.append(msgspec.json.decode(body))
                    if self.hangs:
                        await reader.read()
                        break
                    writer.write(f"HTTP/1.1 {self.status} X\r\ncontent-length: 0\r\n\r\n".encode())
        finally:
            self.connected -= 1
            writer.close()


@contextlib.asynccontextmanager
async def sink() -> AsyncIterator[Sink]:
    """Run a webhook for one test."""
    one = Sink()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()
