"""A whole server in the test's own event loop.

Everything but the process boundary is real.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from twophase.coordinator.view import MessageView
from twophase.core.lifecycle import State
from twophase.server.app import Server
from twophase.server.settings import Settings
from twophase.testing.clock import VirtualClock

QUICK: dict[str, Any] = {
    "retry_first_ms": 20,
    "retry_cap_ms": 100,
    "check_back_first_ms": 20,
    "check_back_cap_ms": 100,
    "drain_timeout_ms": 2_000,
    "request_timeout_ms": 60_000,
    "alert_timeout_ms": 60_000,
    "probe_check_addresses": False,
}
SECOND_TRY_MS = 30_000
PATIENT: dict[str, Any] = {
    "retry_first_ms": SECOND_TRY_MS,
    "retry_cap_ms": SECOND_TRY_MS,
    "check_back_first_ms": SECOND_TRY_MS,
    "check_back_cap_ms": SECOND_TRY_MS,
}
"""No second try before the test lets time pass."""


class Running:
    """A started server."""

    def __init__(self, server: Server, clock: VirtualClock) -> None:
        self.server = server
        self.clock = clock

    @property
    def port(self) -> int:
        """Return the port of HTTP."""
        return int(self.server.urls[0].rpartition(":")[2])

    async def view(self, gid: str) -> MessageView:
        """Return its view of a message that it must know."""
        view = await self.server.coordinator.query(gid)
        assert view is not None, f"{gid} is unknown"
        return view

    async def until(self, gid: str, state: State) -> MessageView:
        """Poll until the message is in this state."""
        async with asyncio.timeout(60):
            while (view := await self.server.coordinator.query(gid)) is None or view.state is not state:
                await asyncio.sleep(0.01)
        return view

    async def until_logged(self, gid: str, attempts: int = 1) -> MessageView:
        """Poll until `attempts` failed calls are on record."""
        async with asyncio.timeout(60):
            while (view := await self.server.coordinator.query(gid)) is None or len(view.log) < attempts:
                await asyncio.sleep(0.01)
        return view

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance(ms)
        self.server.coordinator.tick()


@contextlib.asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    """A server on free ports, its store in `folder`."""
    clock = VirtualClock()
    server = Server(
        Settings(**{**QUICK, "store": f"sqlite:///{folder / 'store.db'}", "http_port": 0, **settings}), clock=clock
    )
    try:
        await server.start()
        yield Running(server, clock)
    finally:
        await server.drain()
        await server.stop()
