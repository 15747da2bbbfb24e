"""The port for RocketMQ's clients in the test's event loop, with queues in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.support.memory_queues import MemoryQueues
from twophase.core.hooks import WallClock
from twophase.http_client.byte_budget import ByteBudget
from twophase.server.browsers import BrowserGuard
from twophase.server.identity.gate import Gate
from twophase.server.rocketmq.port import RocketmqPort
from twophase.server.sessions import Sessions
from twophase.server.settings import Settings
from twophase.server.tls import ServerTls


class Serving:
    """A port that a test may stop, and start again at its address."""

    def __init__(self, queues: MemoryQueues, gate: Gate | None = None, tls: ServerTls | None = None) -> None:
        self.queues = queues
        self.refused: list[str] = []
        self.address = ""
        self.gate = gate or Gate()
        self._tls = tls
        self._starts = 0
        self.port: RocketmqPort | None = None

    async def start(self, **settings: Any) -> None:
        """Listen, at the same address as before."""
        number = int(self.address.rpartition(":")[2]) if self.address else 0
        self.port = RocketmqPort(
            Settings(rocketmq_port=number, connections_per_address_percent=100, **settings),
            self.queues,
            Sessions(self.queues),
            WallClock(),
            self.refused.append,
            self.gate,
            BrowserGuard(),
            ByteBudget(64 << 20),
            self._tls,
        )
        self._starts += 1
        (url,) = await self.port.start(self._starts)
        self.address = url.partition("://")[2]

    async def stop(self) -> None:
        """Cut every connection."""
        if self.port is not None:
            await self.port.stop()


@contextlib.asynccontextmanager
async def serving(gate: Gate | None = None, tls: ServerTls | None = None, **queues: Any) -> AsyncIterator[Serving]:
    """Run a port for the block's time."""
    one = Serving(MemoryQueues(**queues), gate, tls)
    await one.start()
    try:
        yield one
    finally:
        await one.stop()
        await one.queues.stop()
