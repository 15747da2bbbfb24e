"""The servers of a soak of queues, and their faults.

It is one on SQLite, or two on one PostgreSQL. A server is killed by SIGKILL at a random moment or at a failpoint of its
flush; one of two is frozen for longer than its lease, too.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from examples.banks import processes
from tests.crash.queues.wire import Port
from twophase.core.hooks import WallClock
from twophase.server.stores import open_store
from twophase.stores.base import Store

LEASE_MS: Final = 6_000
_FROZEN_S: Final = LEASE_MS / 1000 + 2.0
_FAILPOINTS: Final = ("coordinator.before_flush", "coordinator.after_flush")
_FLUSHES_MAX: Final = 400
_REACHED_S: Final = 20.0
_LOOK_S: Final = 0.05
_SETTINGS: Final = {
    "TWOPHASE_CHECK_BACK_FIRST_MS": "300",
    "TWOPHASE_CHECK_BACK_CAP_MS": "1000",
    "TWOPHASE_TIMEOUT_TO_FAIL_MS": "1000",
    "TWOPHASE_PRODUCER_ANSWER_MS": "2000",
    "TWOPHASE_PRODUCER_CHECKS_MAX": "1000",
    "TWOPHASE_GRPC_PORT": "off",
    "TWOPHASE_CONNECTIONS_PER_ADDRESS_PERCENT": "100",
    "TWOPHASE_LEASE_MS": str(LEASE_MS),
}


class Server:
    """One server, which keeps its ports; it has a `port` while it runs."""

    def __init__(self, number: int, folder: Path, store: str, planted: str | None) -> None:
        self.name = f"server-{number}"
        http, rocketmq = processes.keep_port(), processes.keep_port()
        self.address = f"127.0.0.1:{rocketmq}"
        environment = {"TWOPHASE_STORE": store, "TWOPHASE_ROCKETMQ_PORT": str(rocketmq), **_SETTINGS}
        command = [sys.executable, "-m", "twophase", "server", "--http-port", str(http)]
        self.service = processes.Service(self.name, command, environment, folder, http)
        if planted is not None:
            self.service.run_through([sys.executable, "-m", "tests.crash.planted", planted])
        self.port: Port | None = None
        self._lives = 0

    async def start(self, failpoint: str | None = None) -> None:
        """Start it, and open its next life."""
        self.service.launch(failpoint)
        await asyncio.to_thread(self.service.wait_ready, 60.0)
        self._begin_life()

    def _begin_life(self) -> None:
        self._lives += 1
        self.port = Port(self.address, f"{self.name}.{self._lives}")

    async def kill(self) -> None:
        """End it by SIGKILL."""
        port, self.port = self.port, None
        self.service.kill()
        if port is not None:
            await port.close()

    async def freeze(self) -> None:
        """Stop it for longer than its lease; what comes after counts as another life."""
        os.kill(self.service.pid, signal.SIGSTOP)
        await asyncio.sleep(_FROZEN_S)
        os.kill(self.service.pid, signal.SIGCONT)
        port = self.port
        self._begin_life()
        if port is not None:
            await port.close()


class Servers:
    """All servers of a run.

    Arguments:
        folder: of logs.
        store: the URL of the coordinator's store.
        count: of servers.
        planted: a bug for each of them, see `tests.crash.planted`.
        chance: of the faults.
    """

    def __init__(self, folder: Path, store: str, count: int, chance: random.Random, planted: str | None = None) -> None:
        self.store_url = store
        self.all = [Server(number, folder, store, planted) for number in range(count)]
        self.faults: Counter[str] = Counter()
        self._chance = chance

    @property
    def ports(self) -> list[Port]:
        """The ports of the servers that run."""
        return [one.port for one in self.all if one.port is not None]

    async def start(self) -> None:
        """Start every server."""
        for server in self.all:
            await server.start()

    async def kill(self) -> None:
        """End every server."""
        for server in self.all:
            await server.kill()

    async def fault(self) -> None:
        """Do one fault, and end it."""
        faults: list[Callable[[Server], Awaitable[None]]] = [self._kill_one, self._kill_at_failpoint]
        if len(self.all) > 1:
            faults += [self._kill_all, self._freeze_one]
        fault = self._chance.choice(faults)
        await fault(self._chance.choice(self.all))
        self.faults[getattr(fault, "__name__", "").strip("_").replace("_", " ")] += 1

    async def _kill_one(self, server: Server) -> None:
        await server.kill()
        await server.start()

    async def _kill_all(self, _: Server) -> None:
        await self.kill()
        await self.start()

    async def _freeze_one(self, server: Server) -> None:
        await server.freeze()

    async def _kill_at_failpoint(self, server: Server) -> None:
        await server.kill()
        await server.start(f"{self._chance.choice(_FAILPOINTS)}:{self._chance.randint(20, _FLUSHES_MAX)}")
        for _ in range(int(_REACHED_S / _LOOK_S)):
            if not server.service.alive:
                self.faults["reached the failpoint"] += 1
                break
            await asyncio.sleep(_LOOK_S)
        await server.kill()
        await server.start()

    def open_store(self) -> Store:
        """Return the store, not started; no server may run."""
        return open_store(self.store_url, WallClock(), lease_ms=LEASE_MS)
