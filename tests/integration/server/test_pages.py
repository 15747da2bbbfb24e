"""Pages of messages delay neither look-ups nor the end; a few may wait."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.integration.server.running import Running, running
from tests.support.fake_coordinator import Client, Response, get, prepare
from tests.support.identities import bearer, write
from twophase.coordinator.page_turns import WAITING_MAX
from twophase.core.errors import Overloaded
from twophase.server.identity.scopes import Scope
from twophase.stores import search

PATHS = [
    "/api/twophase/messages?limit=1000",
    "/api/dtmsvr/all?limit=1000",
    "/api/twophase/log",
]
ADMITTED = 1 + WAITING_MAX


class HeldPages:
    """The store's readings of many rows, held until `go`."""

    def __init__(self, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = asyncio.Event()
        self._store = server.server.coordinator._runtime.store
        for name in ("search", "audit_search", "oldest_undecided"):
            monkeypatch.setattr(self._store, name, self._held(name))

    def _held(self, name: str) -> object:
        method = getattr(self._store, name)

        async def answer(*given: object) -> object:
            await self.go.wait()
            return await method(*given)

        return answer


async def _ask(server: Running, path: str) -> Response:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    try:
        return await client.ask(get(path))
    finally:
        client.close()


async def _refused(asked: list[asyncio.Task[Response]]) -> list[Response]:
    """Wait until all but those that are admitted have an answer."""
    async with asyncio.timeout(60):
        while len(done := [one for one in asked if one.done()]) < len(asked) - ADMITTED:
            await asyncio.sleep(0.01)
    return [one.result() for one in done]


@pytest.mark.parametrize("path", PATHS)
async def test_pages_beyond_a_few_are_refused_and_a_look_up_goes_before_them(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as server:
        held = HeldPages(server, monkeypatch)
        asked = [asyncio.ensure_future(_ask(server, path)) for _ in range(3 * ADMITTED)]
        for refused in await _refused(asked):
            assert (refused.status, json.loads(refused.body)["code"]) == (503, Overloaded.code)
            assert int(refused.headers["retry-after"]) >= 1
        assert (await _ask(server, "/api/dtmsvr/query?gid=unknown")).status == 200
        held.go.set()
        answers = [one.status for one in await asyncio.gather(*asked)]
    assert answers.count(200) == ADMITTED


async def test_requests_that_are_cut_at_the_end_are_no_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, drain_timeout_ms=100) as server:
        HeldPages(server, monkeypatch)
        asked = [asyncio.ensure_future(_ask(server, PATHS[0])) for _ in range(2 * ADMITTED)]
        await _refused(asked)
    cut = await asyncio.gather(*asked, return_exceptions=True)
    assert len([one for one in cut if isinstance(one, OSError)]) == ADMITTED
    assert [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")] == []


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("path", ["/api/twophase/messages", "/api/dtmsvr/all"])
async def test_a_position_names_no_message_of_another_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, limit: int
) -> None:
    monkeypatch.setattr(search, "EXAMINED_MAX", 3)
    write(tmp_path, "other", [Scope.PRODUCE])
    tokens = write(tmp_path, "own", [Scope.PRODUCE, Scope.OBSERVE])
    async with running(tmp_path, tokens=tokens) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        for number in range(30):
            owner = "own" if number in {4, 5, 17} else "other"
            asked = prepare(f"{owner}-{number:02}", *bearer(owner))
            assert (await client.ask(asked)).status == 200
        found: list[str] = []
        position = ""
        for _ in range(20):
            asked_path = f"{path}?limit={limit}&position={position}"
            page = json.loads((await client.ask(get(asked_path, *bearer("own")))).body)
            found += [one["gid"] for one in page.get("messages", page.get("transactions"))]
            position = page.get("position", page.get("next_position"))
            assert not position or position[0] == "h" or position[1:] in found
            if not position:
                break
        client.close()
    assert (found, position) == (["own-17", "own-05", "own-04"], "")
