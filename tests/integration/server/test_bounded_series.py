"""Ten thousand messages to ten thousand hosts make no more series than a few do.

The series are counted in a scrape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.support.fake_coordinator import Client, get
from tests.support.waiting import until
from twophase.core.message import Branch, Message
from twophase.destinations.base import Answer, Call
from twophase.server.app import Server
from twophase.server.destinations import AllowedDestination
from twophase.server.settings import Settings

MESSAGES = 10_000
SERIES_MAX = 700


class Everywhere:
    """A destination in which every host answers, and each tenth fails."""

    def __init__(self) -> None:
        self.called: set[str] = set()

    def accepts(self, url: str) -> str | None:
        return None

    def key(self, url: str) -> str:
        return "/".join(url.split("/")[:3])

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        self.called.add(self.key(call.url))
        status = 500 if self.key(call.url).endswith("0") else 200
        asyncio.get_running_loop().call_soon(on_answer, Answer(status))

    async def stop(self) -> None:
        """Do nothing: nothing is to close."""


async def _series(port: int, path: str = "/metrics") -> list[str]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    text = (await client.ask(get(path))).body.decode()
    client.close()
    return [line for line in text.splitlines() if not line.startswith("#")]


async def test_a_listed_destination_has_a_series_behind_two_hundred_others(tmp_path: Path) -> None:
    everywhere = Everywhere()
    listed = (AllowedDestination(name="bank", url="http://bank-b/in"),)
    store = f"sqlite:///{tmp_path / 'store.db'}"
    settings = Settings(store=store, http_port=0, log_level="error", destinations=listed)
    server = Server(settings, destinations={"http": everywhere})
    await server.start()
    try:
        for number, host in enumerate([*(f"host-{number}" for number in range(200)), "bank-b:80"]):
            message = Message(f"gid-{number}", (Branch(f"http://{host}/in", b"{}"),))
            server.coordinator.submit(message, lambda reply: None)
        await until(lambda: len(everywhere.called) >= 201)
        await asyncio.sleep(0)
        lines = await _series(int(server.urls[0].rpartition(":")[2]))
    finally:
        await server.stop()
    assert 'twophase_branch_calls_total{destination="http://bank-b:80",result="error"} 1.0' in lines


async def test_series_do_not_grow_with_gids_urls_or_hosts(tmp_path: Path) -> None:
    everywhere = Everywhere()
    settings = Settings(store=f"sqlite:///{tmp_path / 'store.db'}", http_port=0, log_level="error")
    server = Server(settings, destinations={"http": everywhere})
    await server.start()
    try:
        for number in range(MESSAGES):
            branch = Branch(f"http://host-{number}/path-{number}?query={number}", b"{}")
            server.coordinator.submit(Message(f"gid-{number}", (branch,)), lambda reply: None)
        await until(lambda: len(everywhere.called) >= MESSAGES)
        port = int(server.urls[0].rpartition(":")[2])
        for number in range(200):
            await _series(port, f"/api/dtmsvr/query?gid=gid-{number}")
            await _series(port, f"/no/such/path/{number}")
        lines = await _series(port)
    finally:
        await server.stop()
    assert len(lines) < SERIES_MAX
    assert sum("destination=" in line for line in lines) <= 2 * 101
    assert not any("gid-" in line or "path-" in line or "query=" in line for line in lines)
